"""The application: what is opened when it starts, closed when it stops, and which routes it has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute

from scheduler_service import (
    audit,
    execution_logs,
    graph_jobs,
    impact_sets,
    locks,
    policy_jobs,
    policy_runs,
    runs,
    schedules,
    workers,
)
from scheduler_service.calls import Service
from scheduler_service.canonical import RawPaths
from scheduler_service.limits import Limits
from scheduler_service.metrics import registry_of
from scheduler_service.metrics import router as metrics_router
from twinstore import Clock, SchedulerStorage, SystemClock, open_storage
from twinstore.config import ConfigSource
from twinstore.fastapi import Authenticate, add_error_handlers, probes, problems, refuse
from twinstore.observing import Counters
from twinstore.scheduler import AuditEvent

__all__ = ["create_app"]

# Calls at once: as many as the pool of the process has connections (PoolMax); one more would only wait.
THREADS: Final = 10
RESOURCES: Final = (
    schedules,
    runs,
    execution_logs,
    impact_sets,
    audit,
    policy_runs,
    policy_jobs,
    workers,
    graph_jobs,
    locks,
)


def create_app(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    stamp: Callable[[AuditEvent], AuditEvent] = lambda event: event,
    threads: int = THREADS,
    authenticate: Authenticate = refuse,
    docs: bool = False,
    metrics: bool = False,
) -> FastAPI:
    """Return the application; nothing is opened before it starts.

    Args:
        config: as for ``open_storage``; the environment is read in any case.
        clock: of all instants that the service sets; default: that of the system.
        stamp: gives an audit event its id; by default the library draws one.
        threads: calls that are executed at once.
        authenticate: says whose token it is; by default every token is refused.
        docs: whether to serve ``/openapi.json`` and ``/docs``.
        metrics: whether to serve ``/metrics``.
    """
    clock = clock or SystemClock()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        to_thread.current_default_thread_limiter().total_tokens = threads
        counters = Counters()
        app.state.metrics = registry_of(counters)
        # Opened here and not at import: each process of a server that forks has its own pool.
        with open_storage(config, clock=clock, observers=[counters]) as storage:
            await to_thread.run_sync(storage.scheduler.initializer.ensure_migrations)
            app.state.service = Service(storage, clock, authenticate, stamp)
            yield
        # Requests that were being answered have been, before this point: the server waits for them.

    app = FastAPI(
        title="Scheduler",
        summary="Schedules, runs and jobs, on MongoDB or PostgreSQL.",
        lifespan=lifespan,
        # One that is not given is not served; its page can still be made with ``app.openapi()``.
        openapi_url="/openapi.json" if docs else None,
        generate_unique_id_function=operation_id,
        # It would name the host that the caller says, and answer with no error that has a name.
        redirect_slashes=False,
        # What is sent has the form of what is answered: one schema for both.
        separate_input_output_schemas=False,
    )
    app.add_middleware(RawPaths)
    app.add_middleware(Limits)
    add_error_handlers(app)
    app.include_router(probes(storage_of), responses=problems(503))
    if metrics:
        app.include_router(metrics_router)
    app.include_router(of_tenants(), responses=problems())
    return app


def storage_of(request: Request) -> SchedulerStorage:
    """Return the storage that has to be ready."""
    service: Service = request.app.state.service
    return service.storage.scheduler


def of_tenants() -> APIRouter:
    """Return all routes below a tenant."""
    router = APIRouter(prefix="/tenants/{tenant_id}")
    for resource in RESOURCES:
        router.include_router(resource.router)
    return router


def operation_id(route: APIRoute) -> str:
    """Return the name of the handler, which generated clients call their functions by."""
    return route.name
