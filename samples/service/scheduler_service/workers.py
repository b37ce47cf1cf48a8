"""Workers: the processes that execute jobs, and what they claim.

The registry is outside of the tenants, so each call is answered in system scope: here the worker is read, and
one of another tenant is "not found", in the unit that changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Query, Response

from scheduler_service.bodies import ClaimRequest, Heartbeat, Listing
from scheduler_service.calls import NO_CONTENT, Call, Id, Limit, PageToken, TenantCall, absent, same_id
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from twinstore import ConflictError, SchedulerSession
from twinstore.scheduler import PolicyRunJob, Worker, WorkerStatus

router = APIRouter(route_class=CanonicalRoute, tags=["workers"])

T = TypeVar("T")
PURPOSE: Final = "serve a worker of one tenant"


def with_worker(call: TenantCall, worker_id: str, fn: Callable[[SchedulerSession, Worker], T]) -> T:
    """Do something with a worker of the caller, in one unit with the look at whose it is.

    Raises:
        NotFoundError: it is unknown or another tenant's.
    """

    def change(unit: SchedulerSession) -> T:
        worker = unit.workers.get(worker_id)
        if worker is None or worker.tenant_id != call.tenant:
            raise absent("worker", worker_id)
        return fn(unit, worker)

    return call.scheduler.transact(change, purpose=PURPOSE)


@router.put("/workers/{worker_id}", response_model=Worker, summary="Register a worker")
def put_worker(call: Call, worker_id: Id, worker: Worker) -> Response:
    """It becomes active; a repetition keeps the instant of the first registration."""
    same_id(worker_id, worker.id)
    call.owns(worker.tenant_id)
    return CanonicalResponse(call.scheduler.workers.register(worker))


@router.post("/workers/{worker_id}/heartbeat", response_model=Worker, summary="Say that a worker lives")
def heartbeat(call: Call, worker_id: Id, sign: Heartbeat) -> Response:
    """By the clock of the service. It revives a dead worker; a stopped one has to register again."""

    def note(unit: SchedulerSession, _: Worker) -> Worker:
        unit.workers.heartbeat(worker_id, call.now, current_jobs=sign.current_jobs)
        return unit.workers.get_required(worker_id)

    return CanonicalResponse(with_worker(call, worker_id, note))


@router.post("/workers/{worker_id}/drain", response_model=Worker, summary="Let a worker claim no more")
def drain(call: Call, worker_id: Id) -> Response:
    """It ends what it has."""
    return CanonicalResponse(moved(call, worker_id, WorkerStatus.DRAINING))


@router.post("/workers/{worker_id}/stop", response_model=Worker, summary="Say that a worker has ended")
def stop(call: Call, worker_id: Id) -> Response:
    """What it still holds returns when its lease runs out."""
    return CanonicalResponse(moved(call, worker_id, WorkerStatus.STOPPED))


def moved(call: TenantCall, worker_id: str, status: WorkerStatus) -> Worker:
    """Move a worker to another status and return it."""

    def move(unit: SchedulerSession, _: Worker) -> Worker:
        unit.workers.set_status(worker_id, status)
        return unit.workers.get_required(worker_id)

    return with_worker(call, worker_id, move)


@router.get("/workers/{worker_id}", response_model=Worker, summary="Read a worker")
def get_worker(call: Call, worker_id: Id) -> Response:
    """Of this tenant."""
    worker = call.scheduler.workers.get(worker_id)
    if worker is None or worker.tenant_id != call.tenant:
        raise absent("worker", worker_id)
    return CanonicalResponse(worker)


@router.get("/workers", response_model=Listing[Worker], summary="List workers, longest silent first")
def list_workers(
    call: Call,
    statuses: Annotated[list[WorkerStatus] | None, Query(alias="status")] = None,
    limit: Limit = 100,
    page_token: PageToken = None,
) -> Response:
    """Of this tenant alone; `status` may stand several times; at most 1,000 on a page."""
    page = call.scheduler.workers.list(
        statuses=statuses, tenant_id=call.tenant, limit=limit, page_token=page_token
    )
    return listing(Listing[Worker], page)


@router.delete("/workers/{worker_id}", status_code=NO_CONTENT, summary="Remove a worker")
def delete_worker(call: Call, worker_id: Id) -> Response:
    """From the registry. Repeated: 404."""
    with_worker(call, worker_id, lambda unit, _: unit.workers.remove(worker_id))
    return Response(status_code=NO_CONTENT)


@router.post("/workers/{worker_id}/claims", response_model=Listing[PolicyRunJob], summary="Claim policy jobs")
def claim(call: Call, worker_id: Id, request: ClaimRequest) -> Response:
    """The next jobs of this tenant, held until their leases end; none: an empty list. Repeated: other jobs.

    The owner of the leases is the worker; its `attemptCount` has to be named in each later call for a job.
    """
    worker = call.scheduler.workers.get(worker_id)
    if worker is None or worker.tenant_id != call.tenant:
        raise absent("worker", worker_id)
    if worker.status is not WorkerStatus.ACTIVE:
        raise ConflictError(
            f"The worker is {worker.status}, and only an active one claims; register it again."
        )
    jobs = call.scheduler.policy_jobs.lease_many(
        worker.id,
        call.now,
        limit=request.limit,
        lease=timedelta(seconds=request.lease_seconds),
        tenant_id=call.tenant,
    )
    return CanonicalResponse(Listing[PolicyRunJob](items=jobs))
