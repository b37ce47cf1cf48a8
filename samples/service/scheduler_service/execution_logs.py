"""The logs of runs: appended, listed, never changed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from scheduler_service.bodies import Lease, Listing, LogBatch
from scheduler_service.calls import Call, Id, Limit, TenantCall, UnderLease, absent, same_id
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute
from scheduler_service.policy_jobs import check_held
from twinstore import SchedulerSession, ValidationError
from twinstore.scheduler import ExecutionLogEntry

router = APIRouter(route_class=CanonicalRoute, tags=["execution logs"])

Sequence = Annotated[int, Path(ge=1)]


def append(
    call: TenantCall, run_id: str, entries: tuple[ExecutionLogEntry, ...], lease: Lease | None = None
) -> LogBatch:
    """Store entries of one run of the caller."""
    for entry in entries:
        same_id(run_id, entry.run_id)
        call.owns(entry.tenant_id)
    if lease is None:
        return LogBatch(items=call.scheduler.execution_logs.append(entries))

    def store(unit: SchedulerSession) -> LogBatch:
        check_held(call, unit, lease)
        return LogBatch(items=unit.execution_logs.append(entries))

    return call.transact(store)


@router.post("/runs/{run_id}/logs", response_model=LogBatch, summary="Append to the log of a run")
def append_logs(call: Call, run_id: Id, batch: LogBatch) -> Response:
    """All or nothing. An entry without a sequence gets the next one, so a repetition appends it again."""
    return CanonicalResponse(append(call, run_id, batch.items))


@router.put(
    "/runs/{run_id}/logs/{sequence}",
    response_model=ExecutionLogEntry,
    summary="Append an entry that has a number",
)
def put_log(
    call: Call, run_id: Id, sequence: Sequence, entry: ExecutionLogEntry, lease: UnderLease
) -> Response:
    """Repeated with the same entry: the same answer. Another entry under the number is refused.

    A worker names the lease of its job, and is refused with 409 `lease_lost` once another one may have it.
    """
    if entry.sequence != sequence:
        raise ValidationError(
            f"The path names sequence {sequence} and the body another one; correct one of them."
        )
    return CanonicalResponse(append(call, run_id, (entry,), lease).items[0])


@router.get(
    "/runs/{run_id}/logs/{sequence}", response_model=ExecutionLogEntry, summary="Read an entry of a log"
)
def get_log(call: Call, run_id: Id, sequence: Sequence) -> Response:
    """By its number."""
    found = call.scheduler.execution_logs.list(call.tenant, run_id, after_sequence=sequence - 1, limit=1)
    if not found or found[0].sequence != sequence:
        raise absent("log entry", f"{run_id}/{sequence}")
    return CanonicalResponse(found[0])


@router.get("/runs/{run_id}/logs", response_model=Listing[ExecutionLogEntry], summary="Read the log of a run")
def list_logs(
    call: Call,
    run_id: Id,
    after_sequence: Annotated[int, Query(alias="afterSequence", ge=0)] = 0,
    limit: Limit = 500,
) -> Response:
    """At most 5,000 at once. It has no page token: go on after the sequence of the last entry."""
    entries = call.scheduler.execution_logs.list(
        call.tenant, run_id, after_sequence=after_sequence, limit=limit
    )
    return CanonicalResponse(Listing[ExecutionLogEntry](items=entries))
