"""Schedules, their triggers and the summaries of their runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from scheduler_service.bodies import Listing
from scheduler_service.calls import NO_CONTENT, Call, Id, Instant, Limit, PageToken, absent, same_id
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from scheduler_service.firing import fire
from twinstore import SchedulerSession
from twinstore.scheduler import (
    Run,
    RunSummary,
    Schedule,
    ScheduleQueryOptions,
    SoftDeletion,
    Trigger,
)

router = APIRouter(route_class=CanonicalRoute, tags=["schedules"])


@router.put("/schedules/{schedule_id}", response_model=Schedule, summary="Create or replace a schedule")
def put_schedule(
    call: Call,
    schedule_id: Id,
    schedule: Schedule,
    expected_updated_at: Annotated[Instant, Query(alias="expectedUpdatedAt")] = None,
) -> Response:
    """Its trigger is brought in step. With `expectedUpdatedAt` only where that is the stored one."""
    same_id(schedule_id, schedule.id)
    call.owns(schedule.tenant_id)

    def store(unit: SchedulerSession) -> Schedule:
        stored = unit.schedules.upsert(schedule, expected_updated_at=expected_updated_at)
        call.audit(unit, "schedule", "stored", entity_id=stored.id, schedule_id=stored.id)
        return stored

    return CanonicalResponse(call.transact(store))


@router.get("/schedules/{schedule_id}", response_model=Schedule, summary="Read a schedule")
def get_schedule(
    call: Call, schedule_id: Id, *, include_deleted: Annotated[bool, Query(alias="includeDeleted")] = False
) -> Response:
    """A deleted one is shown only where the caller asks for it."""
    return CanonicalResponse(
        call.scheduler.schedules.get_required(call.tenant, schedule_id, include_deleted=include_deleted)
    )


@router.get("/schedules", response_model=Listing[Schedule], summary="List schedules by name")
def list_schedules(
    call: Call,
    *,
    include_deleted: Annotated[bool, Query(alias="includeDeleted")] = False,
    include_disabled: Annotated[bool, Query(alias="includeDisabled")] = True,
    limit: Limit = 50,
    page_token: PageToken = None,
) -> Response:
    """At most 200 on a page."""
    options = ScheduleQueryOptions(
        include_deleted=include_deleted,
        include_disabled=include_disabled,
        limit=limit,
        page_token=page_token,
    )
    return listing(Listing[Schedule], call.scheduler.schedules.list(call.tenant, options))


@router.delete("/schedules/{schedule_id}", status_code=NO_CONTENT, summary="Delete a schedule softly")
def delete_schedule(call: Call, schedule_id: Id) -> Response:
    """It fires no more and can be restored. Repeated: the same answer, and nothing changes."""

    def delete(unit: SchedulerSession) -> bool:
        changed = unit.schedules.soft_delete(call.tenant, schedule_id, call.actor, call.now)
        if changed:
            call.audit(unit, "schedule", "deleted", entity_id=schedule_id, schedule_id=schedule_id)
        return changed or unit.schedules.get_deletion(call.tenant, schedule_id) is not None

    if not call.transact(delete):
        raise absent("schedule", schedule_id)
    return Response(status_code=NO_CONTENT)


@router.get("/schedules/{schedule_id}/deletion", response_model=SoftDeletion, summary="Read who deleted it")
def get_deletion(call: Call, schedule_id: Id) -> Response:
    """Answers 404 for a schedule that is not deleted."""
    deletion = call.scheduler.schedules.get_deletion(call.tenant, schedule_id)
    if deletion is None:
        raise absent("deletion of schedule", schedule_id)
    return CanonicalResponse(deletion)


@router.post("/schedules/{schedule_id}/restore", response_model=Schedule, summary="Restore a schedule")
def restore_schedule(call: Call, schedule_id: Id, *, enabled: bool = False) -> Response:
    """It fires again only where the caller says `enabled`. Repeated: nothing changes."""

    def restore(unit: SchedulerSession) -> Schedule:
        if unit.schedules.restore(call.tenant, schedule_id, call.actor, call.now, enabled=enabled):
            call.audit(unit, "schedule", "restored", entity_id=schedule_id, schedule_id=schedule_id)
        return unit.schedules.get_required(call.tenant, schedule_id)

    return CanonicalResponse(call.transact(restore))


@router.get("/schedules/{schedule_id}/trigger", response_model=Trigger, summary="Read when it fires next")
def get_trigger(call: Call, schedule_id: Id) -> Response:
    """A trigger is made and changed with its schedule, and by firing; nobody else writes it."""
    return CanonicalResponse(call.scheduler.triggers.get_required(call.tenant, schedule_id))


@router.post(
    "/schedules/{schedule_id}/trigger/recalculate",
    response_model=Trigger,
    summary="Set the next instant again",
)
def recalculate_trigger(call: Call, schedule_id: Id) -> Response:
    """From the stored schedule and the present instant; what was due and did not fire is left out."""
    return CanonicalResponse(call.scheduler.triggers.recalculate(call.tenant, schedule_id, call.now))


@router.post(
    "/schedules/{schedule_id}/trigger/fire",
    response_model=Run,
    responses={NO_CONTENT: {"description": "It is not due"}},
    summary="Fire a schedule that is due",
)
def fire_trigger(call: Call, schedule_id: Id) -> Response:
    """For clients that cannot wait for the firing program. Repeated: nothing until it is due again."""

    def fire_due(unit: SchedulerSession) -> Run | None:
        return fire(unit, unit.schedules.get_required(call.tenant, schedule_id), call.now)

    run = call.transact(fire_due)
    return Response(status_code=NO_CONTENT) if run is None else CanonicalResponse(run)


@router.get("/triggers", response_model=Listing[Trigger], summary="List triggers by their next instant")
def list_triggers(call: Call, limit: Limit = 100, page_token: PageToken = None) -> Response:
    """At most 1,000 on a page; those without a next instant first."""
    return listing(
        Listing[Trigger], call.scheduler.triggers.list(call.tenant, limit=limit, page_token=page_token)
    )


@router.get("/schedules/{schedule_id}/runs", response_model=Listing[Run], summary="List its runs")
def list_schedule_runs(
    call: Call, schedule_id: Id, limit: Limit = 50, page_token: PageToken = None
) -> Response:
    """Newest first, at most 200 on a page."""
    page = call.scheduler.runs.get_runs_by_schedule(call.tenant, schedule_id, limit, page_token=page_token)
    return listing(Listing[Run], page)


@router.get("/schedules/{schedule_id}/summary", response_model=RunSummary, summary="Read its latest runs")
def get_summary(call: Call, schedule_id: Id) -> Response:
    """The 20 newest runs and their counters; each change of a run brings it up to date."""
    return CanonicalResponse(call.scheduler.run_summaries.get_required(call.tenant, schedule_id))


@router.put("/schedules/{schedule_id}/summary", response_model=RunSummary, summary="Replace a summary")
def put_summary(
    call: Call,
    schedule_id: Id,
    summary: RunSummary,
    expected_updated_at: Annotated[Instant, Query(alias="expectedUpdatedAt")] = None,
) -> Response:
    """For a summary that comes from elsewhere, with runs that are not stored here."""
    same_id(schedule_id, summary.schedule_id)
    call.owns(summary.tenant_id)
    return CanonicalResponse(
        call.scheduler.run_summaries.upsert(summary, expected_updated_at=expected_updated_at)
    )


@router.post(
    "/schedules/{schedule_id}/summary/rebuild", response_model=RunSummary, summary="Compute a summary again"
)
def rebuild_summary(call: Call, schedule_id: Id) -> Response:
    """From the stored runs. Answers 404 for a schedule without runs."""
    summary = call.transact(
        lambda unit: unit.run_summary_service.rebuild(call.tenant, schedule_id, now=call.now)
    )
    if summary is None:
        raise absent("summary of schedule", schedule_id)
    return CanonicalResponse(summary)


@router.get("/run-summaries", response_model=Listing[RunSummary], summary="List summaries by schedule")
def list_summaries(call: Call, limit: Limit = 50, page_token: PageToken = None) -> Response:
    """Of all schedules that have one."""
    page = call.scheduler.run_summaries.list(call.tenant, limit=limit, page_token=page_token)
    return listing(Listing[RunSummary], page)
