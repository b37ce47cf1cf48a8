"""Impact sets: which images a selector chose. Their tenant stands in the path, because the set has none."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from scheduler_service.bodies import Listing
from scheduler_service.calls import NO_CONTENT, Call, Id, Limit, PageToken, absent, created, same_id
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from twinstore.scheduler import ImpactSet, Selector

router = APIRouter(route_class=CanonicalRoute, tags=["impact sets"])

OfRun = Annotated[str | None, Query(alias="runId", description="The run that it was made for")]


@router.put(
    "/impact-sets/{snapshot_id}", response_model=ImpactSet, summary="Store an impact set under its id"
)
def put_impact_set(call: Call, snapshot_id: Id, impact_set: ImpactSet, run_id: OfRun = None) -> Response:
    """Replaces the one that is there."""
    same_id(snapshot_id, impact_set.snapshot_id)
    stored_id = call.scheduler.impact_snapshots.upsert(call.tenant, impact_set, run_id=run_id)
    return CanonicalResponse(call.scheduler.impact_snapshots.get_required(call.tenant, stored_id))


@router.post("/impact-sets", response_model=ImpactSet, status_code=201, summary="Store an impact set")
def post_impact_set(call: Call, request: Request, impact_set: ImpactSet, run_id: OfRun = None) -> Response:
    """Without an id it gets one that follows from its content, in `Location`."""
    stored_id = call.scheduler.impact_snapshots.upsert(call.tenant, impact_set, run_id=run_id)
    stored = call.scheduler.impact_snapshots.get_required(call.tenant, stored_id)
    return created(CanonicalResponse(stored), request, stored_id)


@router.get("/impact-sets/{snapshot_id}", response_model=ImpactSet, summary="Read an impact set")
def get_impact_set(call: Call, snapshot_id: Id) -> Response:
    """By its own id or the one it got."""
    return CanonicalResponse(call.scheduler.impact_snapshots.get_required(call.tenant, snapshot_id))


@router.get("/impact-sets", response_model=Listing[ImpactSet], summary="List impact sets, newest first")
def list_impact_sets(call: Call, limit: Limit = 50, page_token: PageToken = None) -> Response:
    """At most 200 on a page."""
    page = call.scheduler.impact_snapshots.list(call.tenant, limit=limit, page_token=page_token)
    return listing(Listing[ImpactSet], page)


@router.post(
    "/latest-impact-set", response_model=ImpactSet, summary="Read the newest impact set of a selector"
)
def get_latest_impact_set(call: Call, selector: Selector) -> Response:
    """A selector is too large for a query, so it is the body; nothing is stored."""
    found = call.scheduler.impact_snapshots.get_latest_by_selector(call.tenant, selector)
    if found is None:
        raise absent("impact set of this", "selector")
    return CanonicalResponse(found)


@router.delete("/impact-sets/{snapshot_id}", status_code=NO_CONTENT, summary="Remove an impact set")
def delete_impact_set(call: Call, snapshot_id: Id) -> Response:
    """For good. Repeated: 404."""
    if not call.scheduler.impact_snapshots.delete(call.tenant, snapshot_id):
        raise absent("impact set", snapshot_id)
    return Response(status_code=NO_CONTENT)
