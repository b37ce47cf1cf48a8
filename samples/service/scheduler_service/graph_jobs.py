"""Graph jobs: building graphs and laying overlays over them. Each change leaves an event."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from scheduler_service.bodies import Counts, Listing
from scheduler_service.calls import NO_CONTENT, Call, Id, Limit, PageToken, absent, created, same_id
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from twinstore import ConflictError
from twinstore.scheduler import (
    GraphBuildJob,
    GraphJobEvent,
    GraphJobResponse,
    GraphJobStatus,
    GraphJobType,
    GraphOverlayJob,
)

router = APIRouter(route_class=CanonicalRoute, tags=["graph jobs"])

AnyJob = GraphBuildJob | GraphOverlayJob
JobType = Annotated[GraphJobType | None, Query(alias="type")]


@router.post("/graph-jobs", response_model=AnyJob, status_code=201, summary="Add a graph job")
def post_graph_job(call: Call, request: Request, job: AnyJob) -> Response:
    """Of either type, which its id shows."""
    call.owns(job.tenant_id)
    stored = call.scheduler.graph_job_store.add(job)
    return created(CanonicalResponse(stored), request, stored.id)


@router.put("/graph-jobs/{job_id}", response_model=AnyJob, summary="Change a graph job")
def put_graph_job(
    call: Call, job_id: Id, job: AnyJob, expected: Annotated[GraphJobStatus, Query()]
) -> Response:
    """Where it is still in the status `expected`; otherwise 409. An equal job changes nothing."""
    same_id(job_id, job.id)
    call.owns(job.tenant_id)
    if not call.scheduler.graph_job_store.update(job, expected):
        found = call.scheduler.graph_job_store.get(call.tenant, job_id)
        if found is None:
            raise absent("graph job", job_id)
        raise ConflictError(f"The graph job is {found.status}, not {expected}; read it again.", key=job.id)
    return CanonicalResponse(job)


@router.get("/graph-jobs/{job_id}", response_model=AnyJob, summary="Read a graph job")
def get_graph_job(call: Call, job_id: Id) -> Response:
    """Of either type."""
    job = call.scheduler.graph_job_store.get(call.tenant, job_id)
    if job is None:
        raise absent("graph job", job_id)
    return CanonicalResponse(job)


@router.get("/graph-jobs", response_model=Listing[GraphJobResponse], summary="List graph jobs, newest first")
def list_graph_jobs(
    call: Call,
    job_type: JobType = None,
    status: Annotated[GraphJobStatus | None, Query()] = None,
    limit: Limit = 50,
    page_token: PageToken = None,
) -> Response:
    """Each in an envelope with type and status."""
    page = call.scheduler.graph_job_store.list(
        call.tenant, job_type=job_type, status=status, limit=limit, page_token=page_token
    )
    return listing(Listing[GraphJobResponse], page)


@router.get("/graph-job-counts", response_model=Counts, summary="Count graph jobs by status")
def count_graph_jobs(call: Call, job_type: JobType = None) -> Response:
    """Of one type or of both."""
    found = call.scheduler.graph_jobs.count_by_status(call.tenant, job_type=job_type)
    return CanonicalResponse(Counts(counts={status.value: found[status] for status in sorted(found)}))


@router.delete("/graph-jobs/{job_id}", status_code=NO_CONTENT, summary="Remove a graph job and its events")
def delete_graph_job(call: Call, job_id: Id) -> Response:
    """For good. Repeated: 404."""
    if not call.scheduler.graph_jobs.delete(call.tenant, job_id):
        raise absent("graph job", job_id)
    return Response(status_code=NO_CONTENT)


@router.post(
    "/graph-jobs/{job_id}/events", response_model=GraphJobEvent, status_code=201, summary="Append an event"
)
def post_graph_job_event(call: Call, job_id: Id, event: GraphJobEvent) -> Response:
    """Of what happened elsewhere; changes of a job here leave their own. Repeated: the same answer."""
    same_id(job_id, event.payload.job.id)
    call.owns(event.tenant)
    call.scheduler.graph_jobs.append_event(event)
    return CanonicalResponse(event, 201)


@router.get(
    "/graph-jobs/{job_id}/events", response_model=Listing[GraphJobEvent], summary="List events, newest first"
)
def list_graph_job_events(
    call: Call, job_id: Id, limit: Limit = 50, page_token: PageToken = None
) -> Response:
    """Of one job."""
    page = call.scheduler.graph_jobs.list_events(call.tenant, job_id, limit=limit, page_token=page_token)
    return listing(Listing[GraphJobEvent], page)
