"""Policy runs: what a caller asks for and is told, and the contract of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Protocol

from pydantic import Field

from twinstore.canonical import CanonicalModel
from twinstore.fields import (
    Count,
    Count32,
    Flag,
    Id,
    LowerKeyMap,
    LowerKeyObject,
    Number,
    OptionalText,
    SchemaVersion,
    StringSet,
    TenantId,
    Timestamp,
)
from twinstore.scheduler.enums import PolicyRunExecutionStatus, PolicyRunMode, PolicyRunPriority

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions

__all__ = ["PolicyRunInputs", "PolicyRunRequest", "PolicyRunService", "PolicyRunStats", "PolicyRunStatus"]

REQUEST_VERSION: Final = "scheduler.policy-run-request@1"
STATUS_VERSION: Final = "scheduler.policy-run-status@1"


class PolicyRunInputs(CanonicalModel):
    """What a policy is evaluated on. The names in ``environment`` are lower-case, its values any JSON."""

    sbom_set: StringSet = ()
    advisory_cursor: OptionalText = None
    vex_cursor: OptionalText = None
    environment: LowerKeyObject = Field(default_factory=dict)
    capture_explain: Flag = False


class PolicyRunStats(CanonicalModel):
    """Counters of the result of a policy run."""

    components: Count = 0
    rules_fired: Count = 0
    findings_written: Count = 0
    vex_overrides: Count = 0
    quieted: Count = 0
    suppressed: Count = 0
    duration_seconds: Number | None = None


class PolicyRunRequest(CanonicalModel):
    """A request for one policy run; it is stored as a job and never by itself.

    ``runId`` makes a repetition harmless; without it every request is another run.
    """

    schema_version: Annotated[str, SchemaVersion(REQUEST_VERSION)] = REQUEST_VERSION
    tenant_id: TenantId
    policy_id: Id
    policy_version: Count32 | None = None
    mode: PolicyRunMode
    priority: PolicyRunPriority = PolicyRunPriority.NORMAL
    run_id: Id | None = None
    queued_at: Timestamp | None = None
    requested_by: OptionalText = None
    correlation_id: OptionalText = None
    metadata: LowerKeyMap = Field(default_factory=dict)
    inputs: PolicyRunInputs = PolicyRunInputs()


class PolicyRunStatus(CanonicalModel):
    """Where a policy run stands; derived from its job and never stored."""

    schema_version: Annotated[str, SchemaVersion(STATUS_VERSION)] = STATUS_VERSION
    run_id: Id
    tenant_id: TenantId
    policy_id: Id
    policy_version: Count32 | None = None
    mode: PolicyRunMode
    status: PolicyRunExecutionStatus
    priority: PolicyRunPriority
    queued_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    error: OptionalText = None
    attempts: Count32
    inputs: PolicyRunInputs
    stats: PolicyRunStats | None = None
    metadata: LowerKeyMap = Field(default_factory=dict)


class PolicyRunService(Protocol):
    """Lets a caller ask for policy runs and follow them; workers take the jobs behind them.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a job. ``now`` is the clock of the storage where it is left out.
    """

    def enqueue(self, request: PolicyRunRequest, *, now: datetime | None = None) -> PolicyRunStatus:
        """Store the job of a request and return where it stands.

        Repeated call with the same tenant and ``runId``: the status of the run that is there, whatever became
        of it since. Atomic.

        Raises:
            ConflictError: the run was asked for with other content.
        """
        ...

    def get(self, tenant_id: str, run_id: str) -> PolicyRunStatus | None:
        """Return where a run stands. Absent: ``None`` when unknown or foreign."""
        ...

    def list(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> Page[PolicyRunStatus]:
        """Return a page of runs in the order of :meth:`PolicyJobRepository.list`. Empty: an empty page."""
        ...

    def request_cancellation(
        self, tenant_id: str, run_id: str, reason: str | None, *, now: datetime | None = None
    ) -> PolicyRunStatus:
        """Ask for the end of a run and return where it stands.

        A pending job is cancelled at once; of one that is dispatched or submitted the worker learns by
        reading it, and it does not return to pending. Repeated call: nothing changes. Atomic.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: it has completed or failed.
        """
        ...

    def retry(self, tenant_id: str, run_id: str, *, now: datetime | None = None) -> PolicyRunStatus:
        """Make a failed run pending again and return where it stands; attempts are counted on. Atomic.

        A request for its cancellation ends with it. Repeated call: an error, because it failed no longer.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: it has not failed.
        """
        ...
