"""Deterministic data of the demo: the same seed gives the same documents."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twinstore.errors import ConfigurationError
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.scheduler import (
    AuditActor,
    AuditEvent,
    AuditRecord,
    DeltaSummary,
    ExecutionLogEntry,
    GraphBuildJob,
    GraphBuildTrigger,
    GraphJobStatus,
    GraphOverlayJob,
    GraphOverlayKind,
    GraphOverlayTrigger,
    ImpactImage,
    ImpactSet,
    LogLevel,
    PolicyRunInputs,
    PolicyRunMode,
    PolicyRunPriority,
    PolicyRunRequest,
    Run,
    RunReason,
    RunState,
    RunStats,
    RunTrigger,
    Schedule,
    ScheduleLimits,
    ScheduleNotify,
    Selector,
    SelectorScope,
    SeverityRank,
    TopFinding,
)
from twinstore.scheduler.run_summaries import WINDOW
from twinstore.tracking import TrackingMachine, TrackingSession, TrackingTask
from twinstore_backfill.demo.packs import read_packs, write_packs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import JsonValue

    from twinstore.models.canonical import CanonicalModel
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.tracking.storage import TrackingStorage

TENANTS: Final = ("aurora-labs", "borealis", "Çelik-Werke", "delta.zürich")
EPOCH: Final = datetime(2025, 9, 1, tzinfo=UTC)
CRONS: Final = ("*/15 * * * *", "0 * * * *", "30 1 * * *", "0 3 * * mon", "15 6 1 * *", "45 22 * * mon-fri")
ZONES: Final = ("UTC", "Europe/Zurich", "America/New_York", "Asia/Kathmandu")
NAMESPACES: Final = ("checkout", "payments", "search", "väst")


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The states of one run in order, from its creation to its present state."""

    steps: tuple[Run, ...]

    @property
    def last(self) -> Run:
        """The run in its present state."""
        return self.steps[-1]

    @property
    def instant(self) -> datetime:
        """When the last step happened."""
        return self.last.finished_at or self.last.started_at or self.last.created_at


def image_digest(random: Random) -> str:
    """Return the digest of an invented image."""
    return f"sha256:{sha256(random.randbytes(8)).hexdigest()}"


def schedules_of(tenant: str, count: int) -> Iterator[Schedule]:
    """Return the schedules of a tenant."""
    random = Random(f"{tenant}/schedules")  # noqa: S311  # repeatable data, no secret
    for number in range(count):
        created = EPOCH + timedelta(minutes=random.randrange(10_000))
        yield Schedule(
            id=f"{tenant}/schedule-{number:03}",
            tenant_id=tenant,
            name=f"{random.choice(NAMESPACES)} scan {number:03} · 夜間",
            enabled=random.random() < 0.9,  # noqa: PLR2004  # one in ten is switched off
            when_cron=random.choice(CRONS),
            timezone=random.choice(ZONES),
            selection=Selector(
                scope=SelectorScope.BY_NAMESPACE, namespaces=tuple(random.sample(NAMESPACES, 2))
            ),
            notify=ScheduleNotify(min_severity=random.choice(list(SeverityRank))),
            limits=ScheduleLimits(max_jobs=random.randrange(1, 500), parallelism=random.randrange(1, 9)),
            subscribers=("#alerts", f"team-{random.randrange(5)}"),
            created_at=created,
            created_by="demo",
        )


def runs_of(schedule: Schedule, count: int) -> Iterator[RunHistory]:
    """Return the runs of a schedule; every other one has come to an end."""
    random = Random(f"{schedule.id}/runs")  # noqa: S311  # repeatable data, no secret
    for number in range(count):
        created = schedule.created_at + timedelta(hours=number, milliseconds=random.randrange(1000))
        yield RunHistory(tuple(_steps(_new_run(schedule, number, created), random)))


def _new_run(schedule: Schedule, number: int, created: datetime) -> Run:
    return Run(
        id=f"run:{schedule.id}:{number:05}",
        tenant_id=schedule.tenant_id,
        schedule_id=schedule.id,
        trigger=RunTrigger.CRON,
        state=RunState.QUEUED,
        stats=RunStats(candidates=40, deduped=number % 7, queued=30),
        reason=RunReason(cursor=f"c:{number:08}", impact_window_from=created - timedelta(hours=1)),
        created_at=created,
    )


def _steps(run: Run, random: Random) -> Iterator[Run]:
    yield run
    fate = random.random()
    if fate < 0.5:  # noqa: PLR2004  # half of them still wait
        return
    if fate < 0.8:  # noqa: PLR2004  # three in ten were cancelled
        yield run.evolve(state=RunState.CANCELLED, finished_at=run.created_at + timedelta(minutes=3))
        return
    running = run.evolve(state=RunState.RUNNING, started_at=run.created_at + timedelta(seconds=2))
    yield running
    yield _ended(running, random)


def _ended(running: Run, random: Random) -> Run:
    finished = running.created_at + timedelta(minutes=5, milliseconds=random.randrange(60_000))
    if random.random() < 0.2:  # noqa: PLR2004  # one in five failed
        return running.evolve(
            state=RunState.ERROR, error="registry answered 503, später", finished_at=finished
        )
    deltas = tuple(_delta(random, finished) for _ in range(random.randrange(3)))
    stats = running.stats.evolve(
        completed=30, deltas=len(deltas), new_high=sum(delta.new_high for delta in deltas)
    )
    return running.evolve(state=RunState.COMPLETED, stats=stats, deltas=deltas, finished_at=finished)


def _delta(random: Random, instant: datetime) -> DeltaSummary:
    high = random.randrange(4)
    finding = TopFinding(
        purl=f"pkg:pypi/example@{random.randrange(9)}.0",
        vulnerability_id=f"CVE-2025-{random.randrange(9999):04}",
        severity=SeverityRank.HIGH,
    )
    return DeltaSummary(
        image_digest=image_digest(random),
        new_findings=high + random.randrange(5),
        new_high=high,
        kev_hits=("CVE-2025-0001",) if high else (),
        top_findings=(finding,),
        detected_at=instant,
    )


def snapshot_of(run: Run) -> ImpactSet:
    """Return the impact snapshot that belongs to a run."""
    random = Random(f"{run.id}/snapshot")  # noqa: S311  # repeatable data, no secret
    images = tuple(
        ImpactImage(
            image_digest=image_digest(random),
            registry="registry.example",
            repository=f"apps/{random.choice(NAMESPACES)}",
            namespaces=(random.choice(NAMESPACES),),
            tags=("prod", f"v{random.randrange(20)}"),
            used_by_entrypoint=random.random() < 0.5,  # noqa: PLR2004  # every other one
            labels={"tier": "gold", "Team": "core"},
        )
        for _ in range(random.randrange(1, 6))
    )
    selector = Selector(scope=SelectorScope.BY_NAMESPACE, namespaces=("checkout",))
    return ImpactSet(selector=selector, images=images, generated_at=run.created_at)


def log_of(history: RunHistory) -> tuple[ExecutionLogEntry, ...]:
    """Return the log of a run: one entry for each of its states, numbered by the store."""
    return tuple(
        ExecutionLogEntry(
            tenant_id=step.tenant_id,
            run_id=step.id,
            logged_at=step.finished_at or step.started_at or step.created_at,
            level=LogLevel.ERROR if step.state is RunState.ERROR else LogLevel.INFO,
            logger="planner",
            message=step.error or f"the run is {step.state} · 状態",
            data={"stats": {"queued": step.stats.queued, "share": step.stats.deduped / 8}, "tags": ["demo"]},
        )
        for step in history.steps
    )


def graph_jobs_of(run: Run) -> tuple[GraphBuildJob, GraphOverlayJob]:
    """Return a job that builds the graph of a run, and one that lays a policy over it."""
    digits = sha256(run.id.encode()).hexdigest()
    build = GraphBuildJob(
        id=f"gbj_{digits[:32]}",
        tenant_id=run.tenant_id,
        sbom_id=f"sbom:{run.id}",
        sbom_version_id="1",
        sbom_digest=f"sha256:{digits}",
        trigger=GraphBuildTrigger.SBOM_VERSION,
        created_at=run.created_at,
        metadata={"origin": "demo"},
    )
    overlay = GraphOverlayJob(
        id=f"goj_{digits[32:]}",
        tenant_id=run.tenant_id,
        graph_snapshot_id=f"graph:{run.id}",
        build_job_id=build.id,
        overlay_kind=GraphOverlayKind.POLICY,
        overlay_key="policy-1@3",
        trigger=GraphOverlayTrigger.POLICY,
        created_at=run.created_at,
    )
    return build, overlay


def request_of(run: Run) -> PolicyRunRequest:
    """Return the request to evaluate a policy after a run."""
    number = int(run.id[-5:])
    environment: dict[str, JsonValue] = {"Region": "eu", "Weights": [0.5, 1, {"väst": None}]}
    return PolicyRunRequest(
        tenant_id=run.tenant_id,
        policy_id=f"policy-{number % 3}",
        mode=PolicyRunMode.INCREMENTAL,
        priority=list(PolicyRunPriority)[number // 20 % 3],
        run_id=f"policy:{run.id}",
        inputs=PolicyRunInputs(sbom_set=(f"sbom:{run.id}",), environment=environment),
    )


MACHINES: Final = 5
SESSIONS: Final = 100
SLOTS: Final = 4
# So recent that nothing is due for removal while it is copied.
STARTED_AGO: Final = timedelta(days=3)


def write_work(storage: TrackingStorage) -> None:
    """Let sessions work on tasks, on machines with slots."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - STARTED_AGO
    for number in range(MACHINES):
        storage.machines.create(
            TrackingMachine.new(
                machine_id=f"machine-{number}", hostname=f"host-{number}", docker_slots=range(SLOTS), now=now
            )
        )
    for number in range(SESSIONS):
        _work(storage, number, now + timedelta(minutes=number))


def read_work(storage: TrackingStorage) -> tuple[object, ...]:
    """Return what the service shows of it: the latest sessions, the tasks, the free slots."""
    return (storage.tracking_sessions.list(), storage.tasks.list(), storage.machines.list_available())


def _work(storage: TrackingStorage, number: int, now: datetime) -> None:
    machine = f"machine-{number % MACHINES}"
    session = TrackingSession.new(
        session_id=f"session-{number:04}",
        project_id=f"project-{number % 7}",
        machine_id=machine,
        metadata={"branch": f"topic/{number}", "agent": {"name": "größer"}},
        now=now,
    )
    task = TrackingTask.new(
        task_id=f"task-{number:04}",
        session_id=session.session_id,
        project_id=session.project_id,
        task_name=f"Investigate finding {number}",
        now=now,
    )
    storage.tracking_sessions.create(session)
    storage.tasks.create(task)
    storage.machines.assign_session(machine, session.session_id, docker_slot=number // MACHINES % SLOTS)
    storage.tasks.start(task.task_id, now)
    if number < SESSIONS - MACHINES:
        storage.tasks.complete(task.task_id, now + timedelta(minutes=3))
        storage.tracking_sessions.complete(session.session_id, now + timedelta(minutes=3))


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherModule:
    """A module that the demo moves.

    Attributes:
        name: its name in commands.
        section: its name in the settings.
        source, target: the values of its switch before and after.
        wrote: what the demo says that it writes.
        write: writes through the repositories of a storage.
        read: returns what a host would show, which must be the same after the switch.
    """

    name: str
    section: str
    source: str
    target: str
    wrote: str
    write: Callable[[Any], None]
    read: Callable[[Any], object]


OTHERS: Final = (
    OtherModule(
        name="tracking",
        section="Tracking",
        source="Mongo",
        target="Postgres",
        wrote="sessions, tasks and machines",
        write=write_work,
        read=read_work,
    ),
    OtherModule(
        name="taskrunner",
        section="TaskRunner",
        source="Filesystem",
        target="Postgres",
        wrote="pack runs with logs, artifacts and approvals as files",
        write=write_packs,
        read=read_packs,
    ),
)


def with_files_below(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return settings in which the task runner keeps its files below a folder."""
    return {**settings, "TaskRunner": {"Storage": {"Filesystem": {"Root": str(folder / "task-runner")}}}}


M = TypeVar("M", bound="CanonicalModel")
T = TypeVar("T")

ACTOR: Final = AuditActor(actor_id="demo", display_name="Demo service", kind="service")
UNIT_SIZE: Final = 25
SNAPSHOT_EVERY: Final = 20


def shipped_folder(name: str) -> Path:
    """Return a folder of samples: next to this module in a wheel, at the top of a checkout.

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
            # A user who presses Ctrl-C does not wait for the rest.
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
