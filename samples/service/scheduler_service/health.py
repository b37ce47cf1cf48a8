"""What an orchestrator asks: whether the process lives, and whether it can serve."""

from __future__ import annotations

from functools import partial
from typing import Final

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response

from scheduler_service.bodies import Health
from scheduler_service.calls import Service
from scheduler_service.canonical import CanonicalResponse, CanonicalRoute
from scheduler_service.problems import answer
from twinstore import TwinstoreError

# An orchestrator waits for a second as a rule, and takes no answer for a process that is dead.
READY_MS: Final = 800

router = APIRouter(route_class=CanonicalRoute, tags=["health"])


@router.get("/healthz", response_model=Health, summary="Whether the process lives")
async def healthz() -> Response:
    """Asks no store: restarting a process because its database is down helps no one."""
    return CanonicalResponse(Health())


@router.get("/readyz", response_model=Health, summary="Whether the store answers and its schema fits")
async def readyz(request: Request) -> Response:
    """Answers 503 until it does, whatever the reason."""
    service: Service = request.app.state.service
    try:
        # A separate thread: those of the calls may all wait for the very store that is asked here.
        ready = partial(service.storage.scheduler.check_ready, timeout_ms=READY_MS)
        await to_thread.run_sync(ready, limiter=CapacityLimiter(1))
    except TwinstoreError as error:
        return answer(error, 503)
    return CanonicalResponse(Health())
