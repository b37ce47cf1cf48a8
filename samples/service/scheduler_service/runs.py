"""Runs: each change brings the summary of the schedule up to date and leaves an audit record, in one unit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from scheduler_service.bodies import Listing
from scheduler_service.calls import (
    Call,
    Id,
    Instant,
    Limit,
    PageToken,
    TenantCall,
    UnderLease,
    absent,
    created,
    same_id,
)
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from scheduler_service.policy_jobs import check_held
from twinstore import SchedulerSession
from twinstore.scheduler import ImpactSet, Run, RunQueryOptions, RunState

router = APIRouter(route_class=CanonicalRoute, tags=["runs"])


def recorded(call: TenantCall, unit: SchedulerSession, run: Run) -> Run:
    """Follow a change of a run with its summary and an audit record."""
    unit.run_summary_service.project(run, now=call.now)
    call.audit(unit, "run", run.state, entity_id=run.id, schedule_id=run.schedule_id, run_id=run.id)
    return run


@router.post("/runs", response_model=Run, status_code=201, summary="Create a run")
def post_run(call: Call, request: Request, run: Run) -> Response:
    """In state `planning` or `queued`."""
    call.owns(run.tenant_id)
    stored = call.transact(lambda unit: recorded(call, unit, unit.runs.create(run)))
    return created(CanonicalResponse(stored), request, stored.id)


@router.put("/runs/{run_id}", response_model=Run, summary="Change a run")
def put_run(
    call: Call,
    run_id: Id,
    run: Run,
    lease: UnderLease,
    expected_state: Annotated[RunState | None, Query(alias="expectedState")] = None,
) -> Response:
    """The whole run, moved along its states. Repeated with the same run: the same answer.

    A worker names the lease of its job, and is refused with 409 `lease_lost` once another one may have it.
    """
    same_id(run_id, run.id)
    call.owns(run.tenant_id)

    def change(unit: SchedulerSession) -> Run | None:
        check_held(call, unit, lease)
        before = unit.runs.get(call.tenant, run_id)
        if not unit.runs.update(run, expected_state=expected_state):
            return None
        return run if run == before else recorded(call, unit, run)

    stored = call.transact(change)
    if stored is None:
        raise absent("run", run_id)
    return CanonicalResponse(stored)


@router.get("/runs/{run_id}", response_model=Run, summary="Read a run")
def get_run(call: Call, run_id: Id) -> Response:
    """As it was stored last."""
    return CanonicalResponse(call.scheduler.runs.get_required(call.tenant, run_id))


@router.get("/runs", response_model=Listing[Run], summary="List runs, newest first")
def list_runs(
    call: Call,
    *,
    schedule_id: Annotated[str | None, Query(alias="scheduleId")] = None,
    states: Annotated[list[RunState] | None, Query(alias="state")] = None,
    created_after: Annotated[Instant, Query(alias="createdAfter")] = None,
    created_before: Annotated[Instant, Query(alias="createdBefore")] = None,
    ascending: Annotated[bool, Query()] = False,
    limit: Limit = 50,
    page_token: PageToken = None,
) -> Response:
    """Both instants are excluded; `state` may stand several times; at most 200 on a page."""
    options = RunQueryOptions(
        schedule_id=schedule_id,
        states=states,
        created_after=created_after,
        created_before=created_before,
        ascending=ascending,
        limit=limit,
        page_token=page_token,
    )
    return listing(Listing[Run], call.scheduler.runs.list(call.tenant, options))


@router.post("/runs/{run_id}/retry", response_model=Run, status_code=201, summary="Repeat a finished run")
def retry_run(
    call: Call,
    request: Request,
    run_id: Id,
    new_run_id: Annotated[str | None, Query(alias="newRunId")] = None,
) -> Response:
    """As a new run. With `newRunId` a repetition of the call is refused instead of making another one."""

    def retry(unit: SchedulerSession) -> Run:
        run = unit.runs.retry(call.tenant, run_id, call.actor, call.now, new_run_id=new_run_id)
        return recorded(call, unit, run)

    run = call.transact(retry)
    return created(CanonicalResponse(run), request, run.id)


@router.get(
    "/runs/{run_id}/impact-sets", response_model=Listing[ImpactSet], summary="List the impact sets of a run"
)
def list_run_impact_sets(call: Call, run_id: Id, limit: Limit = 50, page_token: PageToken = None) -> Response:
    """Newest first, at most 200 on a page."""
    page = call.scheduler.impact_snapshots.list_by_run(
        call.tenant, run_id, limit=limit, page_token=page_token
    )
    return listing(Listing[ImpactSet], page)
