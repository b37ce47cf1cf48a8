"""Whose call it is, and what every handler needs: the tenant, the instant, the storage, the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, TypeVar
from urllib.parse import quote, unquote

from fastapi import Depends, Header, Path, Query, Request, Response
from pydantic import AfterValidator, BeforeValidator

from scheduler_service.bodies import Lease
from twinstore import (
    Clock,
    NotFoundError,
    SchedulerSession,
    SchedulerStorage,
    Storage,
    TenantScopeError,
    ValidationError,
)
from twinstore.fastapi import Authenticate, Token, caller_of
from twinstore.models.fields import OptionalReference, Timestamp
from twinstore.scheduler import AuditActor, AuditEvent

__all__ = [
    "NO_CONTENT",
    "Call",
    "Id",
    "Instant",
    "Limit",
    "PageToken",
    "Service",
    "TenantCall",
    "UnderLease",
    "absent",
    "created",
    "same_id",
]

T = TypeVar("T")
NO_CONTENT: Final = 204


def decoded(part: str) -> str:
    """Return a part of the path; what is no UTF-8 is refused, so that no two parts become one id."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise ValueError("Path should be percent-encoded UTF-8") from error


def as_utf8(value: str) -> str:
    """Return a header as clients send it today; servers read it as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise ValueError("Header should be UTF-8") from error


# Decoded here, because the path is routed as it was sent; see ``canonical.RawPaths``.
Id = Annotated[str, Path(description="The id, with `/` sent as `%2F`"), AfterValidator(decoded)]
Limit = Annotated[int, Query(ge=1, description="Rows per page; more than the list allows are refused")]
PageToken = Annotated[str | None, Query(alias="pageToken", description="`nextPageToken` of the page before")]
Instant = Annotated[Timestamp | None, Query()]


@dataclass(frozen=True, slots=True)
class Service:
    """What the application holds while it runs.

    Attributes:
        storage: the storage that the configuration names.
        clock: the one clock of all instants that the service sets itself.
        authenticate: says whose token it is.
        stamp: gives an audit event its id.
    """

    storage: Storage
    clock: Clock
    authenticate: Authenticate
    stamp: Callable[[AuditEvent], AuditEvent]


@dataclass(frozen=True, slots=True)
class TenantCall:
    """One call of one tenant."""

    service: Service
    tenant: str
    now: datetime
    actor: str
    request_id: str | None

    @property
    def scheduler(self) -> SchedulerStorage:
        """The storage of the scheduler."""
        return self.service.storage.scheduler

    def owns(self, tenant_id: str | None) -> None:
        """Refuse a body of another tenant.

        Raises:
            TenantScopeError: it belongs to another one, or to none.
        """
        if tenant_id != self.tenant:
            raise TenantScopeError("The body belongs to another tenant than the path; correct one of them.")

    def transact(self, fn: Callable[[SchedulerSession], T]) -> T:
        """Run a unit of work of this tenant; it is repeated where another one wins a race."""
        return self.scheduler.transact(fn, tenant_id=self.tenant)

    def audit(
        self,
        unit: SchedulerSession,
        category: str,
        action: str,
        *,
        entity_id: str,
        schedule_id: str | None,
        run_id: str | None = None,
    ) -> None:
        """Write down what was done, in the unit in which it is done."""
        event = AuditEvent(
            tenant_id=self.tenant,
            category=category,
            action=f"{category}.{action}",
            occurred_at=self.now,
            actor=AuditActor(actor_id=self.actor, display_name=self.actor, kind="api"),
            correlation_id=self.request_id,
            entity_id=entity_id,
            schedule_id=schedule_id,
            run_id=run_id,
        )
        unit.audit_service.write(self.service.stamp(event))


async def tenant_call(
    request: Request,
    tenant_id: Id,
    token: Token,
    x_request_id: Annotated[
        OptionalReference,
        BeforeValidator(as_utf8),
        Header(description="In UTF-8; goes into the audit as correlation id"),
    ] = None,
) -> TenantCall:
    """Return the call, of the tenant and the actor that the token names.

    Asynchronous, because FastAPI gives a thread to every dependency that is not.
    """
    service: Service = request.app.state.service
    caller = await caller_of(service.authenticate, token, tenant_id)
    return TenantCall(service, caller.tenant_id, service.clock.now(), caller.actor, x_request_id)


Call = Annotated[TenantCall, Depends(tenant_call)]


async def lease_of(
    job_id: Annotated[str | None, Query(alias="leaseJobId")] = None,
    worker_id: Annotated[str | None, Query(alias="leaseWorkerId")] = None,
    attempt: Annotated[int | None, Query(alias="leaseAttempt")] = None,
) -> Lease | None:
    """Return the lease that a caller names: all of it, or none."""
    if job_id is None and worker_id is None and attempt is None:
        return None
    return Lease.model_validate({"jobId": job_id, "workerId": worker_id, "attempt": attempt})


UnderLease = Annotated[Lease | None, Depends(lease_of)]


def same_id(in_path: str, in_body: str | None) -> None:
    """Refuse a body that stands under the id of another one.

    Raises:
        ValidationError: the two differ.
    """
    if in_path.strip() != in_body:
        raise ValidationError(f"The path names {in_path!r} and the body another id; correct one of them.")


def absent(what: str, item_id: str) -> NotFoundError:
    """Return the error of what the tenant does not have; another tenant may."""
    return NotFoundError(
        f"The {what} {item_id.strip()!r} does not exist for this tenant.", key=item_id.strip()
    )


def created(response: Response, request: Request, item_id: str) -> Response:
    """Say that something was made, and where it is."""
    response.status_code = 201
    response.headers["Location"] = f"{request.url.path.rstrip('/')}/{quote(item_id, safe='')}"
    return response
