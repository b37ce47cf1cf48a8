"""Graph jobs in the differential machine: both types under few digits, so that they meet each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.scheduler.enums import GraphJobStatus, GraphJobType
from twinstore.testing.scheduler.graph_jobs import (
    graph_job_event,
    graph_moved,
    make_graph_build_job,
    make_graph_overlay_job,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.differential.generators import ValueGenerator
    from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphJobEvent, GraphOverlayJob
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

NAMES: Final = ("a", "a", "b", "c")
Call = tuple[str, tuple[object, ...], dict[str, object]]


@dataclass(frozen=True)
class MoveGraphJob:
    """Move a stored job as a host does: read it, and write what it becomes."""

    tenant: str
    job_id: str
    status: GraphJobStatus
    expected: GraphJobStatus | None
    with_event: bool

    def __call__(self, session: SchedulerSession | SchedulerStorage) -> object:
        """Read, move and write."""
        stored = session.graph_job_store.get(self.tenant, self.job_id)
        if stored is None:
            return "no such job"
        moved, expected = graph_moved(stored, self.status, 60), self.expected or stored.status
        if self.with_event:
            return session.graph_job_store.update(moved, expected)
        if moved.type is GraphJobType.BUILD:
            return session.graph_jobs.try_replace(moved, expected)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as its type says
        return session.graph_jobs.try_replace_overlay(moved, expected)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as its type says


@dataclass(frozen=True)
class EventsOf:
    """Read the events of a job; ids and instants of those that a store wrote differ on each side."""

    tenant: str
    job_id: str

    def __call__(self, session: SchedulerSession | SchedulerStorage) -> object:
        """Return what they report, in their order."""
        events = session.graph_jobs.list_events(self.tenant, self.job_id)
        return [(event.kind, event.payload.status, event.payload.job.attempts) for event in events]


def a_build(generator: ValueGenerator) -> GraphBuildJob:
    """Return a build job; one of few."""
    created = generator.a_moment()
    return make_graph_build_job(generator.a_tenant(), generator.choice(NAMES), created_at=created)


def an_overlay(generator: ValueGenerator) -> GraphOverlayJob:
    """Return an overlay job with the digits of a build job."""
    created = generator.a_moment()
    return make_graph_overlay_job(generator.a_tenant(), generator.choice(NAMES), created_at=created)


def a_job(generator: ValueGenerator) -> GraphBuildJob | GraphOverlayJob:
    """Return a job of either type, somewhere in its life."""
    job = generator.choice((a_build, a_build, an_overlay))(generator)
    status = generator.choice(list(GraphJobStatus))
    return graph_moved(job, status, 60) if generator.randrange(4) == 0 else job


def a_status(generator: ValueGenerator) -> GraphJobStatus:
    """Return the states that a job may be in."""
    return generator.choice(list(GraphJobStatus))


def job_id(generator: ValueGenerator) -> object:
    """Return the id of a job, or an invalid one."""
    good = generator.choice((a_build, a_build, an_overlay))(generator).id
    return generator.mostly((good, good, f" {good} "), (good.upper(), "gbj_1", "", None, 7))


def an_event(generator: ValueGenerator) -> GraphJobEvent:
    """Return an event of a job; few share an id with another one."""
    job = generator.choice((a_build, an_overlay))(generator)
    return graph_job_event(job, generator.choice("xyz"), generator.choice((0, 0, 0.001)))


def filters(generator: ValueGenerator) -> dict[str, object]:
    """Return the options of a list of both types."""
    types = generator.mostly((None, *GraphJobType), ("no type",))
    return {
        "job_type": types,
        "status": generator.mostly((None, GraphJobStatus.QUEUED, GraphJobStatus.RUNNING), ("no status",)),
        "limit": generator.limit(),
        "page_token": generator.token(),
    }


def one(path: str) -> Callable[[ValueGenerator], Call]:
    """Return calls about one job."""
    return lambda generator: (path, (generator.tenant(), job_id(generator)), {})


def written(path: str, model: Callable[[ValueGenerator], object]) -> Callable[[ValueGenerator], Call]:
    """Return writes of a model, or of an object that is not a model."""
    return lambda generator: (path, (generator.mostly((model(generator),), (None, "x")),), {})


def replaced(path: str, model: Callable[[ValueGenerator], object]) -> Callable[[ValueGenerator], Call]:
    """Return replacements by a job that was not read before."""
    return lambda generator: (
        path,
        (model(generator), generator.mostly(list(GraphJobStatus), ("no status",))),
        {},
    )


def listed(path: str) -> Callable[[ValueGenerator], Call]:
    """Return lists of one type."""

    def call_list(generator: ValueGenerator) -> Call:
        status = generator.mostly((None, *GraphJobStatus), ("no status",))
        args = (generator.tenant(), status, generator.limit())
        return path, args, {"page_token": generator.token()}

    return call_list


def move(generator: ValueGenerator) -> MoveGraphJob:
    """Return a move of a stored job."""
    job = generator.choice((a_build, a_build, an_overlay))(generator)
    expected = generator.rarely(lambda: a_status(generator))
    return MoveGraphJob(job.tenant_id, job.id, a_status(generator), expected, generator.random() < 0.5)


def events(generator: ValueGenerator) -> EventsOf:
    """Return a read of the events of a job."""
    job = generator.choice((a_build, a_build, an_overlay))(generator)
    return EventsOf(job.tenant_id, job.id)


# Each with its weight.
GRAPH_CALLS: Final[dict[str, tuple[int, Callable[[ValueGenerator], Call | MoveGraphJob | EventsOf]]]] = {
    "insert_graph_job": (3, written("graph_jobs.insert", a_job)),
    "add_graph_job": (3, written("graph_job_store.add", a_job)),
    "replace_build_job": (1, replaced("graph_jobs.try_replace", a_build)),
    "replace_overlay_job": (1, replaced("graph_jobs.try_replace_overlay", an_overlay)),
    "replace_any_job": (1, replaced("graph_job_store.update", a_job)),
    "move_graph_job": (5, move),
    "get_graph_job": (1, one("graph_jobs.get")),
    "get_graph_job_required": (1, one("graph_jobs.get_required")),
    "get_build_job": (1, one("graph_jobs.get_build_job")),
    "get_overlay_job_required": (1, one("graph_jobs.get_overlay_job_required")),
    "get_shown_job": (1, one("graph_job_store.get")),
    "delete_graph_job": (1, one("graph_jobs.delete")),
    "list_build_jobs": (1, listed("graph_jobs.list_build_jobs")),
    "list_overlay_jobs": (1, listed("graph_jobs.list_overlay_jobs")),
    "list_graph_jobs": (
        2,
        lambda generator: ("graph_jobs.list_jobs", (generator.tenant(),), filters(generator)),
    ),
    "list_shown_jobs": (
        1,
        lambda generator: ("graph_job_store.list", (generator.tenant(),), filters(generator)),
    ),
    "count_graph_jobs": (
        1,
        lambda generator: (
            "graph_jobs.count_by_status",
            (generator.tenant(),),
            {"job_type": generator.mostly((None, *GraphJobType), ("no type",))},
        ),
    ),
    "append_event": (3, written("graph_jobs.append_event", an_event)),
    "events_of": (3, events),
}
