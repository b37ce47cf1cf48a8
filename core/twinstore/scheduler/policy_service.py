"""The service of policy runs over the repository of policy jobs; the same code runs on every driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from typing_extensions import override

from twinstore.access.errors import invalid_transition
from twinstore.access.paging import Page
from twinstore.access.scope import instant_argument, model_argument, optional_text_argument
from twinstore.errors import ConflictError, DuplicateError, NotFoundError
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.enums import PolicyRunExecutionStatus, PolicyRunJobStatus
from twinstore.scheduler.policy_jobs import (
    PolicyRunJob,
    PolicyRunRequest,
    PolicyRunService,
    PolicyRunStatus,
    policy_job_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.clock import Clock
    from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions, PolicyJobRepository

PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
STATUSES: Final = {
    PENDING: PolicyRunExecutionStatus.QUEUED,
    DISPATCHING: PolicyRunExecutionStatus.QUEUED,
    SUBMITTED: PolicyRunExecutionStatus.RUNNING,
    COMPLETED: PolicyRunExecutionStatus.SUCCEEDED,
    FAILED: PolicyRunExecutionStatus.FAILED,
    CANCELLED: PolicyRunExecutionStatus.CANCELED,
}
COMPARED_FIELDS: Final = (
    "policy_id",
    "policy_version",
    "mode",
    "priority",
    "requested_by",
    "correlation_id",
    "metadata",
    "inputs",
)


class PolicyRuns(PolicyRunService):
    """Implements :class:`~twinstore.scheduler.policy_jobs.PolicyRunService`."""

    def __init__(self, jobs: PolicyJobRepository, clock: Clock, *, in_unit: bool = False) -> None:
        self._jobs = jobs
        self._clock = clock
        self._in_unit = in_unit

    @override
    def enqueue(self, request: PolicyRunRequest, *, now: datetime | None = None) -> PolicyRunStatus:
        request = model_argument(request, PolicyRunRequest, "request")
        job = job_of(request, self._instant(now))
        # Looked for first: a refused insert ends a unit of work, and a repetition is no reason for that.
        stored = None if request.run_id is None else self._jobs.get_by_run(job.tenant_id, request.run_id)
        return status_of(self._created(job) if stored is None else same(stored, request))

    def _created(self, job: PolicyRunJob) -> PolicyRunJob:
        try:
            return self._jobs.create(job)
        except DuplicateError:
            stored = None if self._in_unit else self._jobs.get_by_run(job.tenant_id, job.run_id or "")
            if stored is None:
                raise
            return same(stored, job)

    @override
    def get(self, tenant_id: str, run_id: str) -> PolicyRunStatus | None:
        job = self._jobs.get_by_run(tenant_id, run_id)
        return None if job is None else status_of(job)

    @override
    def list(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> Page[PolicyRunStatus]:
        page = self._jobs.list(tenant_id, options)
        return Page(tuple(map(status_of, page)), page.next_page_token)

    @override
    def request_cancellation(
        self, tenant_id: str, run_id: str, reason: str | None, *, now: datetime | None = None
    ) -> PolicyRunStatus:
        instant, why = self._instant(now), optional_text_argument(reason, "reason")
        return self._changed(tenant_id, run_id, lambda job: cancelled(job, why, instant))

    @override
    def retry(self, tenant_id: str, run_id: str, *, now: datetime | None = None) -> PolicyRunStatus:
        instant = self._instant(now)
        return self._changed(tenant_id, run_id, lambda job: retried(job, instant))

    def _changed(
        self, tenant_id: str, run_id: str, change: Callable[[PolicyRunJob], PolicyRunJob]
    ) -> PolicyRunStatus:
        """Change the job of a run as it is stored; return the status of the run then."""
        found = self._jobs.get_by_run(tenant_id, run_id)
        stored = None if found is None else self._jobs.modify(tenant_id, found.id, change)
        if stored is None:
            raise NotFoundError(
                f"The policy run {run_id.strip()!r} does not exist for this tenant.",
                **POLICY_JOBS.located(run_id.strip()),
            )
        return status_of(stored)

    def _instant(self, now: datetime | None) -> datetime:
        return self._clock.now() if now is None else instant_argument(now, "now")


def job_of(request: PolicyRunRequest, now: datetime) -> PolicyRunJob:
    """Return the new job of a request."""
    run_id = request.run_id or f"prun_{uuid4().hex}"
    return PolicyRunJob.model_validate(
        {
            **{name: getattr(request, name) for name in COMPARED_FIELDS},
            "id": policy_job_id(request.tenant_id, run_id),
            "tenant_id": request.tenant_id,
            "run_id": run_id,
            "queued_at": request.queued_at or now,
            "created_at": now,
            "updated_at": now,
            "available_at": now,
        }
    )


def same(stored: PolicyRunJob, request: PolicyRunRequest | PolicyRunJob) -> PolicyRunJob:
    """Return a job that was asked for in the same words, whatever became of it.

    Raises:
        ConflictError: it was requested with other content.
    """
    differing = [name for name in COMPARED_FIELDS if getattr(stored, name) != getattr(request, name)]
    if differing:
        raise ConflictError(
            f"Policy run {stored.run_id!r} was requested with other content ({', '.join(differing)}); choose "
            "another run id.",
            entity=POLICY_JOBS.name,
            key=stored.run_id,
        )
    return stored


def cancelled(job: PolicyRunJob, reason: str | None, now: datetime) -> PolicyRunJob:
    """Return a job of which the cancellation is requested; a pending one is cancelled at once.

    Raises:
        InvalidTransitionError: it has completed or failed.
    """
    if job.status is CANCELLED or (job.cancellation_requested and job.status not in {COMPLETED, FAILED}):
        return job
    if job.status in {COMPLETED, FAILED}:
        raise invalid_transition(
            POLICY_JOBS.name, "policy job", job.id, (job.status, CANCELLED), "the run has ended"
        )
    changes: dict[str, object] = {
        "cancellation_requested": True,
        "cancellation_requested_at": now,
        "cancellation_reason": reason,
        "updated_at": now,
    }
    if job.status is PENDING:
        changes |= {"status": CANCELLED, "cancelled_at": now}
    return job.evolve(**changes)


def retried(job: PolicyRunJob, now: datetime) -> PolicyRunJob:
    """Return a failed job as it is pending again.

    Raises:
        InvalidTransitionError: it has not failed.
    """
    if job.status is not FAILED:
        raise invalid_transition(
            POLICY_JOBS.name, "policy job", job.id, (job.status, PENDING), "only a failed run is retried"
        )
    return job.evolve(
        status=PENDING,
        completed_at=None,
        available_at=now,
        updated_at=now,
        cancellation_requested=False,
        cancellation_requested_at=None,
        cancellation_reason=None,
    )


def status_of(job: PolicyRunJob) -> PolicyRunStatus:
    """Return the status of the run of a job."""
    again = job.status is PENDING and job.attempt_count > 0
    return PolicyRunStatus(
        run_id=job.run_id or job.id,
        tenant_id=job.tenant_id,
        policy_id=job.policy_id,
        policy_version=job.policy_version,
        mode=job.mode,
        status=PolicyRunExecutionStatus.REPLAY_PENDING if again else STATUSES[job.status],
        priority=job.priority,
        queued_at=job.queued_at or job.created_at,
        started_at=job.submitted_at,
        finished_at=job.completed_at or job.cancelled_at,
        error=job.last_error,
        attempts=job.attempt_count,
        inputs=job.inputs,
        stats=job.stats,
        metadata=job.metadata,
    )
