"""Pack runs: one execution of a task pack with its plan and steps, and the contract of their store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import StringConstraints

from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import Ordered, Unique
from twinstore.models.fields import (
    NO_NUL,
    Count,
    Flag,
    FreeObject,
    Id,
    OptionalText,
    PositiveInt,
    TenantId,
    Text,
    Timestamp,
)
from twinstore.models.rules import NotBefore
from twinstore.taskrunner.enums import PackRunStepKind, PackRunStepStatus

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.catalog.tenancy import AllTenants

__all__ = [
    "FilledText",
    "PackRunFailurePolicy",
    "PackRunQueryOptions",
    "PackRunState",
    "PackRunStateStore",
    "PackRunStep",
]

# Kept as it is given, blanks too: what made it compares it by the byte.
FilledText = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=NO_NUL)]


class PackRunFailurePolicy(CanonicalModel):
    """How often a failed step is tried again, and how long it waits in between."""

    max_attempts: PositiveInt = 1
    backoff_seconds: Count = 0
    continue_on_error: Flag = False


class PackRunStep(CanonicalModel):
    """One step of a run. Those that a map made have ids like ``scan[0]::image``.

    ``attempts`` counts the failed ones. ``lastTransitionAt`` is absent until the step first moves.
    """

    step_id: Id
    kind: PackRunStepKind = PackRunStepKind.RUN
    enabled: Flag = True
    continue_on_error: Flag = False
    max_parallel: PositiveInt | None = None
    approval_id: OptionalText = None
    gate_message: Text | None = None
    status: PackRunStepStatus
    attempts: Count = 0
    last_transition_at: Timestamp | None = None
    next_attempt_at: Timestamp | None = None
    status_reason: Text | None = None


class PackRunState(CanonicalModel):
    """One execution of a task pack. ``plan`` is free JSON, kept in canonical form.

    ``requestedAt`` may lie after ``createdAt``: two hosts read two clocks.
    """

    rules = (
        NotBefore(
            "updated_at",
            earlier=("created_at",),
            code="pack_run_updated",
            message="updatedAt should not be before createdAt",
        ),
    )

    run_id: Id
    plan_hash: FilledText
    plan: FreeObject
    failure_policy: PackRunFailurePolicy = PackRunFailurePolicy()
    requested_at: Timestamp
    created_at: Timestamp
    updated_at: Timestamp
    steps: Annotated[
        tuple[PackRunStep, ...],
        Ordered(
            by=("step_id",),
            unique=Unique(
                field="step_id",
                code="duplicate_step",
                message="steps should name each stepId once",
            ),
        ),
    ] = ()
    tenant_id: TenantId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRunQueryOptions:
    """Filter of :meth:`PackRunStateStore.list`; order (updated_at descending, run_id).

    Both bounds are strict. Limit 50, at most 200.
    """

    updated_after: datetime | None = None
    updated_before: datetime | None = None
    limit: int = 50
    page_token: str | None = None


class PackRunStateStore(Protocol):
    """Stores pack runs; none is ever removed.

    A call is about the runs of the tenant it names, without one about those that have no tenant, and with
    ``ALL_TENANTS``, in system scope, about every run. All methods raise ``ValidationError`` for bad
    arguments, ``TenantScopeError`` when bound to another tenant or when tenancy is enforced and no tenant is
    named, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a run.
    """

    def create(self, state: PackRunState) -> PackRunState:
        """Insert a new run; return it. Its tenant is the one it names. Repeated call: ``DuplicateError``.

        Raises:
            DuplicateError: the id exists, in this or another tenant, or without one.
        """
        ...

    def get(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> PackRunState | None:
        """Return one run. Absent: ``None`` when the id is unknown or outside the scope."""
        ...

    def get_required(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> PackRunState:
        """Return one run as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def save(self, state: PackRunState, *, expected_updated_at: datetime | None = None) -> PackRunState:
        """Insert a run, or replace the run with its id if every step may move so; return it. Atomic.

        The check and the write are one step. Steps may be added, and never disappear. With
        ``expected_updated_at`` the stored run must have it, and one that changes must have a later one, so
        that no writer who compares overwrites another. Repeated call with an equal run: no write.

        Raises:
            InvalidTransitionError: the state machine forbids the move of a step.
            ConflictError: the stored run was not updated then, or there is none.
            DuplicateError: the id belongs to another tenant, or to none.
            ValidationError: ``createdAt`` or ``planHash`` changes, a step is missing, or
                ``expected_updated_at`` could not be distinguished from the written value.
        """
        ...

    def list(
        self, options: PackRunQueryOptions | None = None, *, tenant_id: str | AllTenants | None = None
    ) -> Page[PackRunState]:
        """Return a page of runs.

        Order: updated_at descending, then run_id ascending. Empty: an empty page. Of all tenants: runs that
        cannot be read are named in ``undecodable``. A run that is updated between two pages moves to the
        front, where the pages to come do not show it.
        """
        ...

    def count(
        self, options: PackRunQueryOptions | None = None, *, tenant_id: str | AllTenants | None = None
    ) -> int:
        """Return how many runs all pages of :meth:`list` have together. Empty: 0."""
        ...
