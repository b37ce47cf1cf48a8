"""Policy jobs: the queue behind policy runs. Workers hold them by leases; the attempt is the fence."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request, Response

from scheduler_service.bodies import Completion, Counts, Failure, Held, Lease, Listing, Release, Renewal
from scheduler_service.calls import NO_CONTENT, Call, Id, TenantCall, absent, created
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from scheduler_service.queries import JobQuery
from twinstore import ConflictError, InvalidTransitionError, LeaseLostError, SchedulerSession
from twinstore.scheduler import PolicyRunJob, PolicyRunJobStatus

router = APIRouter(route_class=CanonicalRoute, tags=["policy jobs"])

PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, _ = PolicyRunJobStatus


@router.post("/policy-jobs", response_model=PolicyRunJob, status_code=201, summary="Create a policy job")
def post_policy_job(call: Call, request: Request, job: PolicyRunJob) -> Response:
    """A pending one. To request a run, use `policy-runs`."""
    call.owns(job.tenant_id)
    stored = call.scheduler.policy_jobs.create(job)
    return created(CanonicalResponse(stored), request, stored.id)


@router.get("/policy-jobs/{job_id}", response_model=PolicyRunJob, summary="Read a policy job")
def get_policy_job(call: Call, job_id: Id) -> Response:
    """With its lease."""
    return CanonicalResponse(call.scheduler.policy_jobs.get_required(call.tenant, job_id))


@router.get("/policy-jobs", response_model=Listing[PolicyRunJob], summary="List policy jobs, newest first")
def list_policy_jobs(call: Call, options: JobQuery) -> Response:
    """`status` may stand several times; at most 200 on a page."""
    return listing(Listing[PolicyRunJob], call.scheduler.policy_jobs.list(call.tenant, options))


@router.get("/policy-job-counts", response_model=Counts, summary="Count policy jobs by status")
def count_policy_jobs(call: Call) -> Response:
    """The depth of the queue."""
    found = call.scheduler.policy_jobs.count_by_status(call.tenant)
    return CanonicalResponse(Counts(counts={status.value: found[status] for status in sorted(found)}))


@router.delete("/policy-jobs/{job_id}", status_code=NO_CONTENT, summary="Remove a policy job")
def delete_policy_job(call: Call, job_id: Id) -> Response:
    """Whatever its status. Repeated: 404."""
    if not call.scheduler.policy_jobs.delete(call.tenant, job_id):
        raise absent("policy job", job_id)
    return Response(status_code=NO_CONTENT)


@router.post("/policy-jobs/{job_id}/renew", response_model=PolicyRunJob, summary="Hold a job for longer")
def renew_policy_job(call: Call, job_id: Id, renewal: Renewal) -> Response:
    """Answers 409 `lease_lost` once another one may have it: stop then, and write nothing."""
    until = call.now + timedelta(seconds=renewal.lease_seconds)
    return CanonicalResponse(moved(call, job_id, renewal, DISPATCHING, lease_expires_at=until))


@router.post("/policy-jobs/{job_id}/complete", response_model=PolicyRunJob, summary="Say that a job is done")
def complete_policy_job(call: Call, job_id: Id, completion: Completion) -> Response:
    """Both moves, to `submitted` and to `completed`, in one unit. Repeated: the same answer."""
    return CanonicalResponse(
        moved(call, job_id, completion, COMPLETED, completed_at=call.now, stats=completion.stats)
    )


@router.post("/policy-jobs/{job_id}/fail", response_model=PolicyRunJob, summary="Say that a job failed")
def fail_policy_job(call: Call, job_id: Id, failure: Failure) -> Response:
    """For good, until its run is retried. Repeated: the same answer."""
    return CanonicalResponse(
        moved(call, job_id, failure, FAILED, completed_at=call.now, last_error=failure.error)
    )


@router.post("/policy-jobs/{job_id}/release", response_model=PolicyRunJob, summary="Give a job back")
def release_policy_job(call: Call, job_id: Id, release: Release) -> Response:
    """It is claimed again after the delay. One whose cancellation is requested is cancelled instead."""
    again = call.now + timedelta(seconds=release.delay_seconds)
    return CanonicalResponse(
        moved(call, job_id, release, PENDING, available_at=again, last_error=release.error)
    )


def moved(
    call: TenantCall,
    job_id: str,
    held: Held,
    status: PolicyRunJobStatus,
    /,
    **changes: object,
) -> PolicyRunJob:
    """Move a job on for the worker that holds it, and return it as it is stored.

    Raises:
        LeaseLostError: another worker has it, or may have it.
        ConflictError: it is no longer dispatched.
        InvalidTransitionError: it has ended.
    """

    def move(unit: SchedulerSession) -> PolicyRunJob:
        job = unit.policy_jobs.get_required(call.tenant, job_id)
        if job.status is status is not DISPATCHING and job.attempt_count == held.attempt:
            return job  # the answer of an earlier call was lost
        # Asked here, because what such a job holds fits no other status: it could not even be made.
        if job.status is PENDING:
            raise LeaseLostError("The policy job is back in the queue; claim it again.", key=job.id)
        if job.status not in {DISPATCHING, SUBMITTED}:
            message = f"The policy job is {job.status} and moves no more; read it again."
            raise InvalidTransitionError(message, from_state=job.status, to_state=status, key=job.id)
        # The attempt is what the worker says: the storage compares it with its own.
        mine = job.evolve(attempt_count=held.attempt)
        steps: list[tuple[PolicyRunJobStatus, dict[str, object]]] = [(status, changes)]
        if status is COMPLETED:
            steps.insert(0, (SUBMITTED, {"submitted_at": call.now}))
        for to, fields in steps:
            before = mine.status
            after: dict[str, object] = {**free_of(to), **fields, "status": to}
            mine = mine.evolve(**after)
            owner = held.worker_id if before is DISPATCHING else None
            if not unit.policy_jobs.try_replace(mine, before, lease_owner=owner, now=call.now):
                raise ConflictError(f"The policy job is {job.status}; read it again.", key=job.id)
        return unit.policy_jobs.get_required(call.tenant, job_id)

    return call.transact(move)


def check_held(call: TenantCall, unit: SchedulerSession, lease: Lease | None) -> None:
    """Refuse what a worker writes for a job that it no longer holds; without a lease admit it.

    The job is written, as it is: a look alone would not stop another worker that claims it meanwhile.

    Raises:
        LeaseLostError: another worker has it, or may have it, or it has ended.
    """
    if lease is None:
        return
    job = unit.policy_jobs.get_required(call.tenant, lease.job_id)
    mine, owner = job.evolve(attempt_count=lease.attempt), lease.worker_id
    if job.status is not DISPATCHING or not unit.policy_jobs.try_replace(
        mine, DISPATCHING, lease_owner=owner, now=call.now
    ):
        raise LeaseLostError(f"The policy job is {job.status}; write nothing more.", key=job.id)


def free_of(status: PolicyRunJobStatus) -> dict[str, object]:
    """Return what ends a lease, for a status that has none."""
    return {} if status is DISPATCHING else {"lease_owner": None, "lease_expires_at": None}
