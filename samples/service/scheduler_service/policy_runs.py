"""Policy runs: what callers ask for and follow. Behind each stands a policy job, which workers claim."""

from __future__ import annotations

from fastapi import APIRouter, Response

from scheduler_service.bodies import Cancellation, Listing
from scheduler_service.calls import Call, Id, absent
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute, listing
from scheduler_service.queries import JobQuery
from twinstore.scheduler import PolicyRunRequest, PolicyRunStatus

router = APIRouter(route_class=CanonicalRoute, tags=["policy runs"])


@router.post("/policy-runs", response_model=PolicyRunStatus, summary="Ask for a policy run")
def post_policy_run(call: Call, request: PolicyRunRequest) -> Response:
    """With a `runId` a repetition answers where that run stands, and other content under it is refused."""
    call.owns(request.tenant_id)
    return CanonicalResponse(call.scheduler.policy_run_service.enqueue(request, now=call.now))


@router.get("/policy-runs/{run_id}", response_model=PolicyRunStatus, summary="Read where a policy run stands")
def get_policy_run(call: Call, run_id: Id) -> Response:
    """Derived from its job."""
    status = call.scheduler.policy_run_service.get(call.tenant, run_id)
    if status is None:
        raise absent("policy run", run_id)
    return CanonicalResponse(status)


@router.get("/policy-runs", response_model=Listing[PolicyRunStatus], summary="List policy runs, newest first")
def list_policy_runs(call: Call, options: JobQuery) -> Response:
    """`status` is that of the job and may stand several times; at most 200 on a page."""
    return listing(Listing[PolicyRunStatus], call.scheduler.policy_run_service.list(call.tenant, options))


@router.post("/policy-runs/{run_id}/cancel", response_model=PolicyRunStatus, summary="Cancel a policy run")
def cancel_policy_run(call: Call, run_id: Id, cancellation: Cancellation) -> Response:
    """At once where no worker has it; otherwise its worker learns of it. Repeated: nothing changes."""
    service = call.scheduler.policy_run_service
    return CanonicalResponse(
        service.request_cancellation(call.tenant, run_id, cancellation.reason, now=call.now)
    )


@router.post(
    "/policy-runs/{run_id}/retry", response_model=PolicyRunStatus, summary="Retry a failed policy run"
)
def retry_policy_run(call: Call, run_id: Id) -> Response:
    """Its attempts are counted on."""
    return CanonicalResponse(call.scheduler.policy_run_service.retry(call.tenant, run_id, now=call.now))
