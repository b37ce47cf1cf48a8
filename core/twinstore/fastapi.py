"""What a service on FastAPI needs around its handlers. Needs ``twinstore[service]``.

app = FastAPI(lifespan=lifespan)
add_error_handlers(app)
app.include_router(probes(lambda request: request.app.state.library))
tenant = tenant_dependency(authenticate)

@app.get("/tenants/{tenant_id}/runs/{run_id}")
def get_run(caller: Annotated[Caller, Depends(tenant)], ...) -> Response: ...
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import pydantic
from typing_extensions import override

from twinstore.access.scope import tenant_argument
from twinstore.errors import (
    ConfigurationError,
    TenantScopeError,
    TwinstoreError,
    UnavailableError,
    ValidationError,
)
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.models.fields import explain

try:
    from anyio import CapacityLimiter, fail_after, to_thread
    from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response
    from fastapi.exceptions import RequestValidationError, ResponseValidationError
    from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
    from starlette.exceptions import HTTPException as StarletteHTTPException
except ImportError as error:
    raise ConfigurationError(
        "twinstore.fastapi needs FastAPI, which is not installed. Run: pip install 'twinstore[service]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI
    from pydantic_core import ErrorDetails

__all__ = [
    "Authenticate",
    "Caller",
    "CanonicalResponse",
    "Health",
    "Problem",
    "Ready",
    "Token",
    "WrongField",
    "add_error_handlers",
    "caller_of",
    "error_response",
    "probes",
    "problems",
    "refuse",
    "tenant_dependency",
]

log = logging.getLogger("twinstore.fastapi")

# An orchestrator waits for a second as a rule, and counts a process without an answer as dead.
READY_MS: Final = 800
RETRY_AFTER: Final = "1"
NAMED_FIELDS: Final = 10
SERVER_ERROR: Final = 500
CODES: Final = {
    400: "validation_error",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "not_json",
    422: "validation_error",
}
DESCRIPTIONS: Final = {
    400: "An argument or the body is not acceptable",
    401: "There is no token, or it is not valid",
    403: "The token or the body belongs to another tenant",
    404: "It does not exist for this tenant",
    408: "The body did not arrive in time",
    409: "What is stored is not as expected",
    413: "The body is too large",
    415: "The body is not sent as JSON",
    500: "The service is set up wrongly, or a stored document cannot be read",
    503: "The database cannot be reached; try again",
    504: "The database did not answer in time; try again",
}


class Health(CanonicalModel):
    """That all is well."""

    status: str = "ok"


class WrongField(CanonicalModel):
    """One part of a request that is not acceptable, and why."""

    path: str
    message: str


class Problem(CanonicalModel):
    """The body of an error. ``outcome`` is ``unknown`` where a write may have been done all the same."""

    code: str
    message: str
    retryable: bool = False
    outcome: str | None = None
    fields: tuple[WrongField, ...] = ()


class CanonicalResponse(Response):
    """Answers with the canonical bytes of a model; FastAPI alone writes nulls and other instants."""

    media_type = "application/json"

    @override
    def render(self, content: CanonicalModel) -> bytes:
        """Return the compact form."""
        return CanonicalJsonSerializer.serialize(content)


def problems(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return the error answers of an operation for its OpenAPI page; without statuses all of them."""
    known: dict[int | str, str] = {status: DESCRIPTIONS[status] for status in statuses or DESCRIPTIONS}
    # "default" in place of FastAPI's own 422, which no refused request is answered with.
    known["default"] = "Any other error"
    return {status: {"model": Problem, "description": text} for status, text in known.items()}


def error_response(error: TwinstoreError, status: int | None = None) -> CanonicalResponse:
    """Return what a client gets for an error of the library; what names hosts and settings is logged."""
    if error.http_status >= SERVER_ERROR:
        log.warning("%s: %s", error.code, error, exc_info=isinstance(error, ConfigurationError))
    problem = Problem(
        code=error.code,
        message=error.public_message,
        retryable=error.retryable,
        outcome=error.outcome if isinstance(error, UnavailableError) else None,
    )
    headers = {"Retry-After": RETRY_AFTER} if error.retryable else None
    return CanonicalResponse(problem, status or error.http_status, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with a :class:`Problem` and its status; none quotes a value of a body."""

    @app.exception_handler(TwinstoreError)
    async def of_library(_: Request, error: TwinstoreError) -> CanonicalResponse:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def of_request(_: Request, error: RequestValidationError) -> CanonicalResponse:
        return CanonicalResponse(_refused(error.errors()), 400)

    @app.exception_handler(pydantic.ValidationError)
    async def of_model(_: Request, error: pydantic.ValidationError) -> CanonicalResponse:
        # A handler made a model of what the client sent, and the parts do not fit together.
        log.warning("a handler refused a %s; if no client sent it, the service is at fault", error.title)
        return CanonicalResponse(_refused(error.errors(include_input=False)), 400)

    @app.exception_handler(StarletteHTTPException)
    async def of_http(_: Request, error: HTTPException) -> CanonicalResponse:
        other = "internal_error" if error.status_code >= SERVER_ERROR else "refused"
        code = CODES.get(error.status_code, other)
        return CanonicalResponse(
            Problem(code=code, message=str(error.detail)), error.status_code, error.headers
        )

    @app.exception_handler(ResponseValidationError)
    async def of_response(_: Request, error: ResponseValidationError) -> CanonicalResponse:
        # Its text holds what is stored.
        log.error("an answer does not fit its response_model, in %d places", len(error.errors()))
        return CanonicalResponse(Problem(code="internal_error", message="The service failed."), 500)

    @app.exception_handler(Exception)
    async def of_anything(_: Request, error: Exception) -> CanonicalResponse:
        log.error("a request ended with %s", type(error).__name__, exc_info=error)
        return CanonicalResponse(Problem(code="internal_error", message="The service failed."), 500)


def _refused(errors: Sequence[ErrorDetails]) -> Problem:
    """Name each wrong part by its path and its rule, without its value, which logs should not hold."""
    fields = tuple(
        WrongField(path=".".join(map(str, problem["loc"])), message=explain(problem))
        for problem in errors[:NAMED_FIELDS]
    )
    first = f"{fields[0].path}: {fields[0].message}" if fields else "It is not acceptable"
    more = f"; and {len(errors) - 1} more" if len(errors) > 1 else ""
    return Problem(code="validation_error", message=f"{first}{more}", fields=fields)


class Ready(Protocol):
    """A storage of a module, also one for asyncio."""

    def check_ready(self, *, timeout_ms: int | None = None) -> Awaitable[None] | None:
        """Raise an error of the library unless the database is ready."""
        ...


def probes(storage_of: Callable[[Request], Ready]) -> APIRouter:
    """Return the routes ``/healthz`` and ``/readyz``.

    Args:
        storage_of: returns the storage whose database has to be ready.
    """
    router = APIRouter(tags=["health"])

    @router.get("/healthz", response_model=Health, summary="Whether the process lives")
    async def healthz() -> Response:
        """Asks no database: a restart repairs none."""
        return CanonicalResponse(Health())

    @router.get("/readyz", response_model=Health, summary="Whether the database answers and its schema fits")
    async def readyz(request: Request) -> Response:
        """Answers 503 until it does, whatever the reason."""
        try:
            check = partial(storage_of(request).check_ready, timeout_ms=READY_MS)
            # A separate thread: those of the handlers may all wait for the very database. One for asyncio
            # returns at once what is awaited then.
            ready = await to_thread.run_sync(check, limiter=CapacityLimiter(1))
            if ready is not None:
                # The slots of asyncio may all be in use for longer.
                with fail_after(READY_MS / 1000):
                    await ready
        except TimeoutError:
            busy = f"The service did not answer within {READY_MS} ms whether it is ready."
            return error_response(UnavailableError(busy), 503)
        except TwinstoreError as error:
            return error_response(error, 503)
        return CanonicalResponse(Health())

    return router


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, as the token says.

    Attributes:
        tenant_id: the one tenant of the token.
        actor: the user or program, for the audit.
    """

    tenant_id: str
    actor: str


Authenticate = Callable[[str], Awaitable[Caller | None]]
"""Checks a bearer token; ``None`` refuses it."""

Token = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
"""The bearer token of a request, for a dependency that calls :func:`caller_of`."""


async def refuse(_: str) -> Caller | None:
    """Refuse every token: what holds until a service names its own check."""
    return None


async def caller_of(authenticate: Authenticate, token: Token, tenant_id: str) -> Caller:
    """Return who calls, after comparing the tenant of the token with that of the path.

    Raises:
        HTTPException: 401, the token is missing or not valid.
        TenantScopeError: it is the token of another tenant.
    """
    caller = None if token is None else await authenticate(token.credentials)
    if caller is None:
        raise HTTPException(401, "Send a valid bearer token.", {"WWW-Authenticate": "Bearer"})
    wanted, own = tenant_argument(tenant_id), _tenant_of(caller)
    if own is None:
        raise HTTPException(401, "Send a token of a tenant.", {"WWW-Authenticate": "Bearer"})
    if own != wanted:
        raise TenantScopeError("The token belongs to another tenant than the path; use one of this tenant.")
    return replace(caller, tenant_id=own)


def _tenant_of(caller: Caller) -> str | None:
    """Return the tenant of a token in its one spelling; ``None`` if no tenant can have that id."""
    try:
        return tenant_argument(caller.tenant_id)
    except ValidationError:
        log.warning("a token names a tenant that cannot exist")
        return None


def tenant_dependency(authenticate: Authenticate = refuse) -> Callable[..., Awaitable[Caller]]:
    """Return a dependency for routes below ``/tenants/{tenant_id}``; it gives handlers the caller."""

    async def tenant(tenant_id: Annotated[str, Path()], token: Token) -> Caller:
        return await caller_of(authenticate, token, tenant_id)

    return tenant
