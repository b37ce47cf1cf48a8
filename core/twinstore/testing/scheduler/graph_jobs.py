"""Graph jobs and events of them for any test."""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from twinstore.scheduler.catalog import GRAPH_JOB_EVENTS, GRAPH_JOBS
from twinstore.scheduler.enums import GraphJobEventKind, GraphJobStatus, GraphJobType
from twinstore.scheduler.graph_jobs import (
    GraphBuildJob,
    GraphJob,
    GraphJobEvent,
    GraphJobEventPayload,
    GraphJobRepository,
    GraphOverlayJob,
)
from twinstore.testing.drawing import models
from twinstore.testing.examples import TIES, Example, example
from twinstore.testing.instants import at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

    from twinstore.scheduler.storage import SchedulerSession

__all__ = [
    "EXAMPLES",
    "digits_of",
    "graph_job_event",
    "graph_moved",
    "listed_graph_job",
    "listed_graph_job_event",
    "make_graph_build_job",
    "make_graph_overlay_job",
    "rich_graph_build_job",
    "rich_graph_job_event",
    "rich_graph_overlay_job",
]

J = TypeVar("J", bound=GraphJob)
DIGEST: Final = f"sha256:{'5b' * 32}"
# All events of a list are of the job of this name.
LISTED_JOB: Final = "listed"


def digits_of(name: str) -> str:
    """Return the digits that represent a name, for ids and events that consist of digits only."""
    return md5(name.encode(), usedforsecurity=False).hexdigest()


def make_graph_build_job(tenant_id: str, name: str, **changes: object) -> GraphBuildJob:
    """Return a queued build job."""
    values = {
        "id": f"gbj_{digits_of(name)}",
        "tenant_id": tenant_id,
        "sbom_id": "sbom-1",
        "sbom_version_id": "sbom-1@7",
        "sbom_digest": DIGEST,
        "trigger": "sbom-version",
        "created_at": at(),
    }
    return GraphBuildJob.model_validate({**values, **changes})


def make_graph_overlay_job(tenant_id: str, name: str, **changes: object) -> GraphOverlayJob:
    """Return a queued overlay job."""
    values = {
        "id": f"goj_{digits_of(name)}",
        "tenant_id": tenant_id,
        "graph_snapshot_id": "graph-1",
        "overlay_kind": "policy",
        "overlay_key": "policy@3",
        "trigger": "policy",
        "created_at": at(),
    }
    return GraphOverlayJob.model_validate({**values, **changes})


def rich_graph_build_job(tenant_id: str, name: str) -> GraphBuildJob:
    """Return a build job with a value in every field, under the same id as the small one."""
    return make_graph_build_job(
        tenant_id,
        name,
        graph_snapshot_id="graph-2",
        status="canceled",
        attempts=1,
        cartographer_job_id="carto-1",
        correlation_id="trace-1",
        started_at=at(0.5),
        completed_at=at(1),
        error="no longer wanted",
        metadata={"zone": "eu-1", "Cause": "\u00e9"},
    )


def rich_graph_overlay_job(tenant_id: str, name: str) -> GraphOverlayJob:
    """Return an overlay job with a value in every field, under the digits of that name."""
    return make_graph_overlay_job(
        tenant_id,
        name,
        build_job_id=f"gbj_{digits_of('built')}",
        subjects=("artifact-2", "artifact-1", "\u00e9tude"),
        status="failed",
        attempts=2,
        correlation_id="trace-\U0001f600",
        started_at=at(0.001),
        completed_at=at(2.5),
        error="the graph is gone",
        metadata={"Source": "kit", "\u00e9": "\U0001f600"},
    )


def graph_moved(job: J, status: GraphJobStatus, seconds: float = 1, **changes: object) -> J:
    """Return a job after a move of the state machine."""
    moved: dict[str, object] = {"status": status}
    if status is GraphJobStatus.RUNNING:
        moved |= {"attempts": job.attempts + 1, "started_at": job.started_at or at(seconds)}
    moved["completed_at"] = at(seconds) if status.terminal else None
    moved["error"] = "it failed" if status is GraphJobStatus.FAILED else None
    return job.evolve(**{**moved, **changes})


def graph_job_event(job: GraphJob, name: str, seconds: float = 0, **changes: object) -> GraphJobEvent:
    """Return the event of that name about a job."""
    payload = {"job_type": job.type, "job": job, "status": job.status, "occurred_at": at(seconds)}
    values = {
        "event_id": str(UUID(digits_of(f"event of {name}"))),
        "kind": GraphJobEventKind.COMPLETED if job.status.terminal else GraphJobEventKind.UPDATED,
        "tenant": job.tenant_id,
        "ts": at(seconds),
        "payload": payload,
    }
    return GraphJobEvent.model_validate({**values, **changes})


def small_graph_job_event(tenant: str, name: str) -> GraphJobEvent:
    """Return an event of the build job of the same name."""
    return graph_job_event(make_graph_build_job(tenant, name), name)


def rich_graph_job_event(tenant: str, name: str) -> GraphJobEvent:
    """Return the same event with a value in every field."""
    payload = GraphJobEventPayload(
        job_type=GraphJobType.BUILD,
        job=rich_graph_build_job(tenant, name),
        status=GraphJobStatus.CANCELED,
        occurred_at=at(0.25),
        result_uri="cas://graphs/2",
    )
    return small_graph_job_event(tenant, name).evolve(
        kind=GraphJobEventKind.COMPLETED, payload=payload, attributes={"Reason": "\u00e9", "source": "kit"}
    )


def listed_graph_job(tenant: str, key: str, number: int) -> GraphJob:
    """Return a job of a list: builds and overlays in turns, some of one instant."""
    make = make_graph_overlay_job if number % 2 else make_graph_build_job
    return make(tenant, key, created_at=at(number // TIES / 1000))


def listed_graph_job_event(tenant: str, key: str, number: int) -> GraphJobEvent:
    """Return an event of a list; those of one instant come in the order in which they are stored."""
    return graph_job_event(make_graph_build_job(tenant, f"{LISTED_JOB}@{tenant}"), key, number / 1000)


def store_graph_job(session: SchedulerSession, tenant: str, job: GraphJob) -> GraphJob:
    """Insert a job."""
    session.graph_jobs.insert(job)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a base is always one of the two
    return session.graph_jobs.get_required(tenant, job.id)


def store_graph_job_event(session: SchedulerSession, tenant: str, event: GraphJobEvent) -> GraphJobEvent:
    """Append an event; that of a list after its job."""
    job = event.payload.job
    if session.graph_jobs.get(tenant, job.id) is None:
        store_graph_job(session, tenant, job)
    session.graph_jobs.append_event(event)
    return session.graph_jobs.get_event_required(tenant, event.event_id)


def job_markers(tenant: str, job: GraphJob) -> Mapping[str, object]:
    """Return the markers of an inserted job."""
    del tenant
    return {"updatedAt": job.created_at}


def event_markers(tenant: str, event: GraphJobEvent) -> Mapping[str, object]:
    """Return the marker of an event, which only the store knows; the lists hold no two of one instant."""
    del tenant, event
    return {"seq": 1}


def drawn_events(tenant: str, key: str) -> SearchStrategy[GraphJobEvent]:
    """Return events of jobs of either model, under a key."""
    return drawn_jobs(tenant, key).map(lambda job: graph_job_event(job, key))


def drawn_jobs(tenant: str, key: str) -> SearchStrategy[GraphJob]:
    """Return jobs of either model under the digits of a key."""
    return models(GraphJob).map(lambda job: job.evolve(id=f"{job.id[:4]}{digits_of(key)}", tenant_id=tenant))


EXAMPLES: Final[tuple[Example, ...]] = (
    example(
        entity=GRAPH_JOBS,
        protocol=GraphJobRepository,
        small=make_graph_build_job,
        rich=rich_graph_build_job,
        store=store_graph_job,
        orders={"list_jobs": "-createdAt uuid"},
        vary=listed_graph_job,
        remove="delete",
        markers=job_markers,
        drawn=drawn_jobs,
        parameter_values={"job_id": lambda job: job.id},
    ),
    example(
        entity=GRAPH_JOB_EVENTS,
        protocol=GraphJobRepository,
        repository="graph_jobs",
        small=small_graph_job_event,
        rich=rich_graph_job_event,
        store=store_graph_job_event,
        orders={"list_events": "-ts -seq"},
        vary=listed_graph_job_event,
        markers=event_markers,
        drawn=drawn_events,
        parameter_values={"job_id": lambda event: event.payload.job.id},
    ),
)
