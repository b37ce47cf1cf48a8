"""The audit trail: written with every change here, and by hosts that did something themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from scheduler_service.bodies import Listing
from scheduler_service.calls import Call, Id, Instant, Limit, PageToken, created
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from twinstore.scheduler import AuditEvent, AuditQueryOptions, AuditRecord

router = APIRouter(route_class=CanonicalRoute, tags=["audit"])


@router.post("/audit", response_model=AuditRecord, status_code=201, summary="Write an audit record")
def post_audit(call: Call, request: Request, event: AuditEvent) -> Response:
    """Id and instant are stamped where they are absent. With an id a repetition is harmless."""
    call.owns(event.tenant_id)
    record = call.scheduler.audit_service.write(call.service.stamp(event))
    return created(CanonicalResponse(record), request, record.id)


@router.get("/audit/{audit_id}", response_model=AuditRecord, summary="Read an audit record")
def get_audit(call: Call, audit_id: Id) -> Response:
    """It never changes."""
    return CanonicalResponse(call.scheduler.audit.get_required(call.tenant, audit_id))


@router.get("/audit", response_model=Listing[AuditRecord], summary="List audit records, newest first")
def list_audit(
    call: Call,
    *,
    category: Annotated[str | None, Query()] = None,
    schedule_id: Annotated[str | None, Query(alias="scheduleId")] = None,
    run_id: Annotated[str | None, Query(alias="runId")] = None,
    occurred_after: Annotated[Instant, Query(alias="occurredAfter")] = None,
    occurred_before: Annotated[Instant, Query(alias="occurredBefore")] = None,
    limit: Limit = 100,
    page_token: PageToken = None,
) -> Response:
    """Both instants are excluded; at most 500 on a page."""
    options = AuditQueryOptions(
        category=category,
        schedule_id=schedule_id,
        run_id=run_id,
        occurred_after=occurred_after,
        occurred_before=occurred_before,
        limit=limit,
        page_token=page_token,
    )
    return listing(Listing[AuditRecord], call.scheduler.audit.list(call.tenant, options))
