"""Policy jobs: the queue behind policy runs, leased to workers, and the contract of their repository."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from pydantic import Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
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
from twinstore.models.rules import AllOrNone, PresentExactlyIn, PresentIn
from twinstore.scheduler.enums import (
    PolicyRunExecutionStatus,
    PolicyRunJobStatus,
    PolicyRunMode,
    PolicyRunPriority,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = [
    "LEASE",
    "PolicyJobQueryOptions",
    "PolicyJobRepository",
    "PolicyRunInputs",
    "PolicyRunJob",
    "PolicyRunRequest",
    "PolicyRunService",
    "PolicyRunStats",
    "PolicyRunStatus",
    "policy_job_id",
]


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
    """The status of a policy run; derived from its job and never stored."""

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
    """Lets a caller request policy runs and follow them; workers take the jobs behind them.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a job. ``now`` defaults to the clock of the storage.
    """

    def enqueue(self, request: PolicyRunRequest, *, now: datetime | None = None) -> PolicyRunStatus:
        """Store the job of a request and return the status of its run.

        Repeated call with the same tenant and ``runId``: the current status of the existing run. Atomic.

        Raises:
            ConflictError: the run was requested with other content.
        """
        ...

    def get(self, tenant_id: str, run_id: str) -> PolicyRunStatus | None:
        """Return the status of a run. Absent: ``None`` when unknown or foreign."""
        ...

    def list(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> Page[PolicyRunStatus]:
        """Return a page of runs in the order of :meth:`PolicyJobRepository.list`. Empty: an empty page."""
        ...

    def request_cancellation(
        self, tenant_id: str, run_id: str, reason: str | None, *, now: datetime | None = None
    ) -> PolicyRunStatus:
        """Request the cancellation of a run and return its status.

        A pending job is cancelled at once; of one that is dispatched or submitted the worker learns by
        reading it, and it does not return to pending. Repeated call: nothing changes. Atomic.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: it has completed or failed.
        """
        ...

    def retry(self, tenant_id: str, run_id: str, *, now: datetime | None = None) -> PolicyRunStatus:
        """Make a failed run pending again and return its status; attempts keep counting. Atomic.

        A request for its cancellation ends with it. Repeated call: an error, because it failed no longer.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: it has not failed.
        """
        ...


JOB_VERSION: Final = "scheduler.policy-run-job@1"
LEASE: Final = timedelta(seconds=60)


def policy_job_id(tenant_id: str, run_id: str) -> str:
    """Return the id of the one job of a policy run; it depends on nothing else."""
    return f"pjob_{sha256(f'{tenant_id}:{run_id}'.encode()).hexdigest()[:32]}"


class PolicyRunJob(CanonicalModel):
    """One policy run in the queue.

    A worker that leases it counts an attempt, which is the fence of its lease. What was asked for never
    changes: everything up to ``queuedAt``, and ``createdAt``.
    """

    rules = (
        AllOrNone(
            ("lease_owner", "lease_expires_at"),
            code="job_lease",
            message="leaseOwner and leaseExpiresAt should be present together or not at all",
        ),
        PresentExactlyIn(
            "lease_owner",
            by="status",
            members=(PolicyRunJobStatus.DISPATCHING,),
            code="job_lease",
            message="a lease should be present exactly in status dispatching",
        ),
        PresentIn(
            "last_attempt_at",
            by="status",
            members=(PolicyRunJobStatus.DISPATCHING,),
            code="job_status",
            message="lastAttemptAt should be present in status dispatching",
        ),
        PresentIn(
            "submitted_at",
            by="status",
            members=(PolicyRunJobStatus.SUBMITTED, PolicyRunJobStatus.COMPLETED),
            code="job_status",
            message="submittedAt should be present in the statuses submitted and completed",
        ),
        PresentExactlyIn(
            "completed_at",
            by="status",
            members=(PolicyRunJobStatus.COMPLETED, PolicyRunJobStatus.FAILED),
            code="job_status",
            message="completedAt should be present exactly in the statuses completed and failed",
        ),
        PresentExactlyIn(
            "cancelled_at",
            by="status",
            members=(PolicyRunJobStatus.CANCELLED,),
            code="job_status",
            message="cancelledAt should be present exactly in status cancelled",
        ),
        PresentIn(
            "last_error",
            by="status",
            members=(PolicyRunJobStatus.FAILED,),
            code="job_status",
            message="lastError should be present in status failed",
        ),
    )

    schema_version: Annotated[str, SchemaVersion(JOB_VERSION)] = JOB_VERSION
    id: Id
    tenant_id: TenantId
    policy_id: Id
    policy_version: Count32 | None = None
    mode: PolicyRunMode
    priority: PolicyRunPriority = PolicyRunPriority.NORMAL
    run_id: Id | None = None
    requested_by: OptionalText = None
    correlation_id: OptionalText = None
    metadata: LowerKeyMap = Field(default_factory=dict)
    inputs: PolicyRunInputs
    queued_at: Timestamp | None = None
    status: PolicyRunJobStatus = PolicyRunJobStatus.PENDING
    attempt_count: Count32 = 0
    last_attempt_at: Timestamp | None = None
    last_error: OptionalText = None
    created_at: Timestamp
    updated_at: Timestamp
    available_at: Timestamp
    submitted_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    lease_owner: Id | None = None
    lease_expires_at: Timestamp | None = None
    cancellation_requested: Flag = False
    cancellation_requested_at: Timestamp | None = None
    cancellation_reason: OptionalText = None
    cancelled_at: Timestamp | None = None
    stats: PolicyRunStats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyJobQueryOptions:
    """Filter of :meth:`PolicyJobRepository.list`; ``None`` means no filter; no statuses: nothing matches.

    Order created_at descending, then id; limit 50, at most 200.
    """

    statuses: Collection[PolicyRunJobStatus] | None = None
    policy_id: str | None = None
    limit: int = 50
    page_token: str | None = None


class PolicyJobRepository(Protocol):
    """Stores policy jobs and leases them to workers.

    A lease is held until its expiry, by the ``now`` of the callers: give them one clock. All methods raise
    ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another tenant,
    ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored document
    that does not form a job, unless they say otherwise.
    """

    def create(self, job: PolicyRunJob) -> PolicyRunJob:
        """Insert a job, which must be pending, and return it. Repeated call: an error. Atomic.

        Raises:
            DuplicateError: the id, or the run in this tenant, has a job already.
        """
        ...

    def get(self, tenant_id: str, job_id: str) -> PolicyRunJob | None:
        """Return one job. Absent: ``None`` when unknown or foreign."""
        ...

    def get_required(self, tenant_id: str, job_id: str) -> PolicyRunJob:
        """Return one job as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def get_by_run(self, tenant_id: str, run_id: str) -> PolicyRunJob | None:
        """Return the job of a run. Absent: ``None`` when unknown or foreign."""
        ...

    def list(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> Page[PolicyRunJob]:
        """Return a page of jobs.

        Order: created_at descending, id. Limit 50, at most 200. Empty: an empty page.
        """
        ...

    def count(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> int:
        """Return how many jobs all pages of :meth:`list` have together. Empty: 0."""
        ...

    def try_replace(
        self,
        job: PolicyRunJob,
        expected: PolicyRunJobStatus,
        *,
        lease_owner: str | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Replace a job that is in status ``expected``; return whether that was so. Atomic.

        ``updatedAt`` becomes ``now`` where that is given; ``lease_owner`` needs it. With a lease owner the
        stored lease must be that owner's, of the attempt that the job names, and unexpired. Without one the
        lease stays as it is stored. A cancellation that was requested meanwhile is kept, and a job with a
        requested cancellation is cancelled instead of becoming pending. Absent, foreign, in another status or
        leased again: false. Repeated call: false once the status has changed.

        Raises:
            InvalidTransitionError: the state machine forbids the move.
            LeaseLostError: the lease belongs to another owner or another attempt, or has expired.
            ValidationError: what never changes would, or an instant of a status without that status.
        """
        ...

    def modify(
        self, tenant_id: str, job_id: str, change: Callable[[PolicyRunJob], PolicyRunJob | None]
    ) -> PolicyRunJob | None:
        """Read, change and write one job as one serialised step; return what is stored afterwards.

        ``change`` receives the stored job and returns the new one, or ``None`` for "leave it"; it may be
        called again after a lost race and must not have side effects. Absent: ``None``, and ``change`` is not
        called.

        Raises:
            InvalidTransitionError: the state machine forbids the move.
            ValidationError: as :meth:`try_replace`; nothing was written.
            ConcurrencyError: other writers won every repetition.
        """
        ...

    def lease_next(
        self, lease_owner: str, now: datetime, *, lease: timedelta = LEASE, tenant_id: str | None = None
    ) -> PolicyRunJob | None:
        """Lease the first pending job that is available at ``now``, and return it as it is then.

        Order: priority descending, available_at, created_at, id. Without a tenant over all tenants, in system
        scope. Nothing to do: ``None``. Repeated call: another job. No job is handed out twice, whatever the
        owners are called: status, owner, expiry and attempt change in one step. Atomic. A job that cannot be
        decoded is passed over for the length of a lease, and logged.
        """
        ...

    def lease_many(
        self,
        lease_owner: str,
        now: datetime,
        *,
        limit: int = 100,
        lease: timedelta = LEASE,
        tenant_id: str | None = None,
    ) -> tuple[PolicyRunJob, ...]:
        """Lease the first pending jobs as :meth:`lease_next` does; return them in its order.

        Limit 100, at most 1000; fewer than asked for where fewer are due or other workers are faster. Atomic
        for each job.
        """
        ...

    def complete_many(
        self,
        jobs: Sequence[PolicyRunJob],
        expected: PolicyRunJobStatus,
        *,
        lease_owner: str | None,
        now: datetime,
    ) -> tuple[bool, ...]:
        """Replace each job as :meth:`try_replace` does; return one answer for each, in the order given.

        Each job is independent: a lost lease, or an unreadable stored job, is false and does not stop the
        others. ``lease_owner`` is ``None`` for jobs that are no longer leased. No jobs: ``()``. Jobs of
        several tenants: in system scope. Repeated call: false for those that have changed. Atomic for each
        job.

        Raises:
            InvalidTransitionError: the state machine forbids one of the moves; nothing was written.
            ValidationError: as :meth:`try_replace`; other jobs may be written.
        """
        ...

    def release_expired(self, now: datetime, *, limit: int = 100) -> int:
        """End the leases that expired at ``now`` or before, over all tenants; return how many.

        The jobs are pending again and available at ``now``, with their attempts counted; those of which the
        cancellation was requested are cancelled. Order: lease_expires_at, id. Limit 100, at most 1000.
        Repeated call: 0. Atomic for each job.
        """
        ...

    def count_by_status(self, tenant_id: str) -> dict[PolicyRunJobStatus, int]:
        """Return how many jobs there are in each status; statuses without any are omitted."""
        ...

    def delete(self, tenant_id: str, job_id: str) -> bool:
        """Remove one job, whatever its status; return whether it was there. Absent or repeated: false."""
        ...
