"""The application: what is opened when it starts, closed when it stops, and which routes it has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from anyio import to_thread
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from scheduler_service import (
    audit,
    execution_logs,
    graph_jobs,
    health,
    impact_sets,
    locks,
    metrics,
    policy_jobs,
    policy_runs,
    runs,
    schedules,
    workers,
)
from scheduler_service.calls import Service
from scheduler_service.canonical import RawPaths
from scheduler_service.problems import PROBLEMS, add_handlers, problems
from twinstore import Clock, SystemClock, open_storage
from twinstore.config import ConfigSource
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
) -> FastAPI:
    """Return the application; nothing is opened before it starts.

    Args:
        config: as for ``open_storage``; the environment is read in any case.
        clock: of all instants that the service sets; default: that of the system.
        stamp: gives an audit event its id; by default the library draws one.
        threads: calls that are executed at once.
    """
    clock = clock or SystemClock()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        to_thread.current_default_thread_limiter().total_tokens = threads
        counters = Counters()
        app.state.metrics = metrics.registry_of(counters)
        # Opened here and not at import: each process of a server that forks has its own pool.
        with open_storage(config, clock=clock, observers=[counters]) as storage:
            await to_thread.run_sync(storage.scheduler.initializer.ensure_migrations)
            app.state.service = Service(storage, clock, stamp)
            yield
        # Requests that were being answered have been, before this point: the server waits for them.

    app = FastAPI(
        title="Scheduler",
        summary="Schedules, runs and jobs, on MongoDB or PostgreSQL.",
        lifespan=lifespan,
        generate_unique_id_function=operation_id,
        # It would name the host that the caller says, and answer with no error that has a name.
        redirect_slashes=False,
        # What is sent has the form of what is answered: one schema for both.
        separate_input_output_schemas=False,
    )
    app.add_middleware(RawPaths)
    add_handlers(app)
    app.include_router(health.router, responses=problems(503))
    app.include_router(metrics.router)
    app.include_router(of_tenants(), responses=PROBLEMS)
    return app


def of_tenants() -> APIRouter:
    """Return all routes below a tenant."""
    router = APIRouter(prefix="/tenants/{tenant_id}")
    for resource in RESOURCES:
        router.include_router(resource.router)
    return router


def operation_id(route: APIRoute) -> str:
    """Return the name of the handler, which generated clients call their functions by."""
    return route.name
