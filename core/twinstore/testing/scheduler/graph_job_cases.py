"""What graph jobs add to the cases of the kit: calls for any tenant, and the lists of one type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from twinstore.access.paging import Page
from twinstore.errors import DuplicateError, NotFoundError
from twinstore.scheduler.catalog import GRAPH_JOBS
from twinstore.scheduler.enums import GraphJobStatus
from twinstore.testing.examples import TIES
from twinstore.testing.instants import at
from twinstore.testing.listings import Listing
from twinstore.testing.scheduler.calls import called
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.graph_jobs import (
    graph_job_event,
    graph_moved,
    make_graph_build_job,
    make_graph_overlay_job,
)

if TYPE_CHECKING:
    from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphOverlayJob
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.calls import StoredExamples
    from twinstore.testing.workspace import AnyStorage

__all__ = ["GRAPH_JOB_CALLS", "GRAPH_JOB_LISTINGS"]

QUEUED: Final = GraphJobStatus.QUEUED
RUNNING: Final = GraphJobStatus.RUNNING


def job_of(one_of_each: StoredExamples, tenant: str) -> GraphBuildJob:
    """Return the stored job as if it were another tenant's."""
    return cast("GraphBuildJob", one_of_each[GRAPH_JOBS]).evolve(tenant_id=tenant)


def twin_of(one_of_each: StoredExamples, tenant: str) -> GraphOverlayJob:
    """Return an overlay job with the digits of the stored job."""
    return make_graph_overlay_job(tenant, "twin", id=f"goj_{one_of_each[GRAPH_JOBS].uuid}")


GRAPH_JOB_CALLS: Final = (
    called("graph_jobs.insert", lambda s, t, h: s.graph_jobs.insert(job_of(h, t)), DuplicateError),
    called("graph_jobs.insert", lambda s, t, h: s.graph_jobs.insert(twin_of(h, t)), DuplicateError),
    called(
        "graph_jobs.try_replace",
        lambda s, t, h: s.graph_jobs.try_replace(graph_moved(job_of(h, t), RUNNING), QUEUED),
        answer=False,
    ),
    called(
        "graph_jobs.try_replace_overlay",
        lambda s, t, h: s.graph_jobs.try_replace_overlay(graph_moved(twin_of(h, t), RUNNING), QUEUED),
        answer=False,
    ),
    called("graph_jobs.get_build_job", lambda s, t, h: s.graph_jobs.get_build_job(t, h[GRAPH_JOBS].id), None),
    called(
        "graph_jobs.get_build_job_required",
        lambda s, t, h: s.graph_jobs.get_build_job_required(t, h[GRAPH_JOBS].id),
        NotFoundError,
    ),
    called(
        "graph_jobs.get_overlay_job", lambda s, t, h: s.graph_jobs.get_overlay_job(t, twin_of(h, t).id), None
    ),
    called(
        "graph_jobs.get_overlay_job_required",
        lambda s, t, h: s.graph_jobs.get_overlay_job_required(t, twin_of(h, t).id),
        NotFoundError,
    ),
    called(
        "graph_jobs.list_build_jobs", lambda s, t, _: tuple(s.graph_jobs.list_build_jobs(t, QUEUED, 9)), ()
    ),
    called(
        "graph_jobs.list_overlay_jobs",
        lambda s, t, _: tuple(s.graph_jobs.list_overlay_jobs(t, None, 9)),
        (),
    ),
    called(
        "graph_jobs.append_event",
        lambda s, t, h: s.graph_jobs.append_event(graph_job_event(job_of(h, t), "of another tenant")),
        NotFoundError,
    ),
    called("graph_jobs.count_by_status", lambda s, t, _: s.graph_jobs.count_by_status(t), {}),
    called("graph_jobs.delete", lambda s, t, h: s.graph_jobs.delete(t, h[GRAPH_JOBS].id), answer=False),
    called("graph_job_store.add", lambda s, t, h: s.graph_job_store.add(job_of(h, t)), DuplicateError),
    called(
        "graph_job_store.update",
        lambda s, t, h: s.graph_job_store.update(graph_moved(job_of(h, t), RUNNING), QUEUED),
        answer=False,
    ),
    called("graph_job_store.get", lambda s, t, h: s.graph_job_store.get(t, h[GRAPH_JOBS].id), None),
    called("graph_job_store.list", lambda s, t, _: tuple(s.graph_job_store.list(t)), ()),
)


def built(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the queued build jobs."""
    jobs = cast("SchedulerStorage", storage).graph_jobs
    return jobs.list_build_jobs(tenant, QUEUED, limit, page_token=token)


def laid(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the overlay jobs, whatever they do."""
    jobs = cast("SchedulerStorage", storage).graph_jobs
    return jobs.list_overlay_jobs(tenant, None, limit, page_token=token)


def shown(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask the store of hosts for its jobs."""
    store = cast("SchedulerStorage", storage).graph_job_store
    page = store.list(tenant, status=QUEUED, limit=limit, page_token=token)
    return Page(tuple(item.payload for item in page), page.next_page_token)


def listed_build_job(tenant: str, key: str, number: int) -> GraphBuildJob:
    """Return a build job of a list; some tie."""
    return make_graph_build_job(tenant, key, created_at=at(number // TIES / 1000))


def listed_overlay_job(tenant: str, key: str, number: int) -> GraphOverlayJob:
    """Return an overlay job of a list; some tie."""
    return make_graph_overlay_job(tenant, key, created_at=at(number // TIES / 1000))


JOBS: Final = SCHEDULER_EXAMPLES.of(GRAPH_JOBS)
GRAPH_JOB_LISTINGS: Final = (
    Listing(
        name="graph_jobs.list_build_jobs",
        example=JOBS,
        order="-createdAt uuid",
        ask=built,
        vary=listed_build_job,
    ),
    Listing(
        name="graph_jobs.list_overlay_jobs",
        example=JOBS,
        order="-createdAt uuid",
        ask=laid,
        vary=listed_overlay_job,
    ),
    Listing(name="graph_job_store.list", example=JOBS, order="-createdAt uuid", ask=shown),
)
