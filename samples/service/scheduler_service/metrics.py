"""What Prometheus asks this process: how its calls to the store ended, and how long they took."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from twinstore.observing import Counters
from twinstore.observing.prometheus import CountersCollector

__all__ = ["registry_of", "router"]

router = APIRouter(tags=["health"])


def registry_of(counters: Counters) -> CollectorRegistry:
    """Return a registry of an application's own: two in one process must not show each other's numbers."""
    registry = CollectorRegistry()
    registry.register(CountersCollector(counters))
    return registry


# Not in the OpenAPI page: it is text for one kind of reader, and no generated client has a use for it.
@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Asks no store, and takes no thread from the calls, which may all wait for one."""
    registry: CollectorRegistry = request.app.state.metrics
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
