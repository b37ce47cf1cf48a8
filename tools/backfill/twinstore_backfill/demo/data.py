"""Deterministic data of the demo: the same seed gives the same documents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Final

from twinstore.scheduler import (
    DeltaSummary,
    ExecutionLogEntry,
    GraphBuildJob,
    GraphBuildTrigger,
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import JsonValue

__all__ = [
    "TENANTS",
    "RunHistory",
    "graph_jobs_of",
    "log_of",
    "request_of",
    "runs_of",
    "schedules_of",
    "snapshot_of",
]

TENANTS: Final = ("aurora-labs", "borealis", "Çelik-Werke", "delta.zürich")
EPOCH: Final = datetime(2025, 9, 1, tzinfo=UTC)
CRONS: Final = ("*/15 * * * *", "0 * * * *", "30 1 * * *", "0 3 * * mon", "15 6 1 * *", "45 22 * * mon-fri")
ZONES: Final = ("UTC", "Europe/Zurich", "America/New_York", "Asia/Kathmandu")
NAMESPACES: Final = ("checkout", "payments", "search", "väst")


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The states of one run in order, from its creation to where it stands now."""

    steps: tuple[Run, ...]

    @property
    def last(self) -> Run:
        """The run as it stands now."""
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
