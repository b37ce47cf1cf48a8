"""Loads the samples and the generated data through the repositories and services, as a host would."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.canonical import CanonicalJsonSerializer
from twinstore.errors import ConfigurationError
from twinstore.scheduler import (
    AuditActor,
    AuditEvent,
    AuditRecord,
    ExecutionLogEntry,
    GraphJobStatus,
    ImpactSet,
    Run,
    RunState,
    Schedule,
)
from twinstore.scheduler.run_summaries import WINDOW
from twinstore_backfill.demo.data import (
    TENANTS,
    graph_jobs_of,
    log_of,
    request_of,
    runs_of,
    schedules_of,
    snapshot_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.canonical import CanonicalModel
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore_backfill.demo.data import RunHistory

__all__ = ["load_everything", "load_samples", "shipped_folder"]

M = TypeVar("M", bound="CanonicalModel")
T = TypeVar("T")

ACTOR: Final = AuditActor(actor_id="demo", display_name="Demo service", kind="service")
UNIT_SIZE: Final = 25
SNAPSHOT_EVERY: Final = 20


def shipped_folder(name: str) -> Path:
    """Return a folder of samples: beside this module in a wheel, at the top of a checkout.

    Raises:
        ConfigurationError: it is in neither place.
    """
    for folder in (Path(__file__).parent / "samples", Path(__file__).parents[4] / "samples"):
        if (folder / name).is_dir():
            return folder / name
    raise ConfigurationError(
        "The samples are missing; install twinstore again or run the demo in a checkout."
    )


def load_samples(scheduler: SchedulerStorage) -> int:
    """Store the samples; return how many there are."""
    schedule, minimal = (_sample(f"schedule{suffix}.json", Schedule) for suffix in ("", "-minimal"))
    scheduler.schedules.upsert(schedule)
    scheduler.schedules.upsert(minimal)
    scheduler.audit.append(_sample("audit.json", AuditRecord))
    scheduler.impact_snapshots.upsert(schedule.tenant_id, _sample("impact-set.json", ImpactSet))
    _store_run(scheduler, _sample("run-no-deltas.json", Run))
    _live_through(scheduler, _sample("run.json", Run))
    scheduler.execution_logs.append([_sample("execution-log.json", ExecutionLogEntry)])
    return 7


def _sample(name: str, model: type[M]) -> M:
    return CanonicalJsonSerializer.deserialize(
        model, (shipped_folder("api") / "scheduler" / name).read_bytes()
    )


def _store_run(scheduler: SchedulerStorage, run: Run) -> None:
    scheduler.runs.create(run)
    scheduler.run_summary_service.project(run, now=run.created_at)


def _live_through(scheduler: SchedulerStorage, finished: Run) -> None:
    """Take the finished sample run through its states, because a new run cannot start finished."""
    queued = finished.evolve(state=RunState.QUEUED, started_at=None, finished_at=None, deltas=())
    _store_run(scheduler, queued)
    scheduler.runs.update(queued.evolve(state=RunState.RUNNING, started_at=finished.started_at))
    scheduler.runs.update(finished)
    scheduler.run_summary_service.project(finished, now=finished.finished_at)


def load_everything(scheduler: SchedulerStorage, runs: int, schedules_per_tenant: int) -> None:
    """Store the generated data of all tenants, two tenants at a time."""
    per_schedule = -(-runs // (len(TENANTS) * schedules_per_tenant))

    stopped = Event()

    def load(tenant: str) -> None:
        for schedule in schedules_of(tenant, schedules_per_tenant):
            if stopped.is_set():
                return
            _load_schedule(scheduler, schedule)
            histories = list(runs_of(schedule, per_schedule))
            for unit in chunks(histories, UNIT_SIZE):
                scheduler.transact(partial(_load_runs, unit), tenant_id=tenant)
            _summarise(scheduler, histories[-WINDOW:])
            # As a planner does that is alone for each schedule; its fence goes along with a copy.
            with scheduler.locks.acquire(f"plan:{schedule.id}", timedelta(seconds=10), tenant_id=tenant):
                pass

    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            list(pool.map(load, TENANTS))
        except BaseException:
            # Whoever presses Ctrl-C does not wait for the rest.
            stopped.set()
            raise


def _summarise(scheduler: SchedulerStorage, histories: list[RunHistory]) -> None:
    """Project the latest runs of a schedule; older ones would leave the window again."""
    for history in histories:
        scheduler.run_summary_service.project(history.last, now=history.instant)


def chunks(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Return the items in tuples of at most ``size``."""
    iterator = iter(items)
    while chunk := tuple(islice(iterator, size)):
        yield chunk


def _load_schedule(scheduler: SchedulerStorage, schedule: Schedule) -> None:
    with scheduler.transaction(schedule.tenant_id) as unit:
        unit.schedules.upsert(schedule)
        unit.audit_service.write(
            AuditEvent(
                id=f"audit:{schedule.id}:created",
                tenant_id=schedule.tenant_id,
                category="schedule",
                action="schedule.created",
                occurred_at=schedule.created_at,
                actor=ACTOR,
                schedule_id=schedule.id,
            )
        )


def _load_runs(histories: tuple[RunHistory, ...], unit: SchedulerSession) -> None:
    for history in histories:
        created, *later = history.steps
        unit.runs.create(created)
        for step in later:
            unit.runs.update(step)
        if later:
            unit.audit_service.write(_audit_of(history))
        if int(created.id[-5:]) % SNAPSHOT_EVERY == 0:
            unit.impact_snapshots.upsert(created.tenant_id, snapshot_of(created), run_id=created.id)
            unit.execution_logs.append(log_of(history))
            unit.policy_run_service.enqueue(request_of(created), now=created.created_at)
            _load_graph_jobs(created, unit)


def _load_graph_jobs(run: Run, unit: SchedulerSession) -> None:
    """Build the graph of a run, and queue the job that lays a policy over it; each step leaves an event."""
    build, overlay = graph_jobs_of(run)
    queued = unit.graph_job_store.add(build)
    started = queued.evolve(status=GraphJobStatus.RUNNING, attempts=1, started_at=run.created_at)
    ended = started.evolve(
        status=GraphJobStatus.COMPLETED,
        graph_snapshot_id=overlay.graph_snapshot_id,
        completed_at=run.created_at + timedelta(seconds=40),
    )
    unit.graph_job_store.update(started, GraphJobStatus.QUEUED)
    unit.graph_job_store.update(ended, GraphJobStatus.RUNNING)
    unit.graph_job_store.add(overlay)


def _audit_of(history: RunHistory) -> AuditEvent:
    run = history.last
    return AuditEvent(
        id=f"audit:{run.id}",
        tenant_id=run.tenant_id,
        category="run",
        action=f"run.{run.state}",
        occurred_at=history.instant,
        actor=ACTOR,
        schedule_id=run.schedule_id,
        run_id=run.id,
        metadata={"Steps": str(len(history.steps))},
    )
