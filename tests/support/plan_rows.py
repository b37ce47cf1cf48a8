"""Rows of every entity as a service has them after half a year: many tenants of uneven size.

The same number gives the same row. Statuses are as uneven as in life: most work is done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from twinstore.catalog.row import Row
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.modules import module_spec
from twinstore.scheduler.enums import (
    GraphJobStatus,
    LogLevel,
    PolicyRunJobStatus,
    PolicyRunPriority,
    RunState,
)
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.scheduler.locks import LockInfo
from twinstore.scheduler.workers import Worker, WorkerStatus
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import (
    as_dispatched,
    as_ended,
    as_submitted,
    make_audit_record,
    make_impact_set,
    make_policy_job,
    make_run,
    make_run_summary,
    make_schedule,
    make_trigger,
)
from twinstore.testing.scheduler.graph_jobs import (
    graph_job_event,
    make_graph_build_job,
    make_graph_overlay_job,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.catalog.entity import Entity, Module
    from twinstore.scheduler.graph_jobs import GraphJob

from typing import TYPE_CHECKING

from twinstore.ledger.models import (
    ConflictLine,
    CopyJob,
    CopyRange,
    CopyWorker,
    JobState,
    QuarantineLine,
    RangeState,
)
from twinstore.taskrunner import enums
from twinstore.taskrunner.pack_run_logs import PackRunLogEntry
from twinstore.testing.taskrunner.builders import make_approval, make_artifact, make_pack_run
from twinstore.tracking import (
    MachineStatus,
    SessionStatus,
    TaskStatus,
    TrackingMachine,
    TrackingSession,
    TrackingTask,
)

TENANTS: Final = 50
# Of each entity. With fewer rows than in the short form a server would rather read whole tables.
ROWS: Final = 6_000
LONG_ROWS: Final = 100_000
# A tenant with a quarter of all rows, and one with less than one in a hundred.
MANY, FEW = "tenant-00", "tenant-40"
PERIOD: Final = timedelta(days=180)
# This many rows share one instant, which lists then order by their keys.
TIES: Final = 3
CATEGORIES: Final = ("schedule", "run", "policy", "graph")
FATES: Final = (RunState.COMPLETED,) * 92 + tuple(RunState) + (RunState.ERROR,) * 2
JOB_FATES: Final = (PolicyRunJobStatus.COMPLETED,) * 20 + tuple(PolicyRunJobStatus)
GRAPH_FATES: Final = (GraphJobStatus.COMPLETED,) * 20 + tuple(GraphJobStatus)
WORKERS: Final = (WorkerStatus.STOPPED,) * 4 + tuple(WorkerStatus)


class Numbers:
    """What the number of a row decides.

    Attributes:
        number: its number.
        count: of all rows.
        seed: bytes that follow from the number alone.
    """

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self.seed = blake2b(str(number).encode(), digest_size=16).digest()

    @property
    def tenant(self) -> str:
        """The owner: the first tenant has a quarter of all rows, the last ones less than a hundredth."""
        share = int.from_bytes(self.seed[:4]) / 2**32
        return f"tenant-{int(TENANTS * share**3):02}"

    @property
    def instant(self) -> datetime:
        """When it came to be."""
        return instant(self.number, self.count)

    @property
    def name(self) -> str:
        """A name; names of the same time do not sort next to each other."""
        return self.seed.hex()

    def pick(self, place: int, most: int) -> int:
        """Return a number below a bound."""
        return self.seed[4 + place] * 256 % most if most > 256 else self.seed[4 + place] % most  # a byte


def instant(number: int, count: int) -> datetime:
    """Return the instant of a row, in whole milliseconds."""
    share = number // TIES * TIES / count
    return START - PERIOD + timedelta(milliseconds=int(PERIOD.total_seconds() * 1000 * share))


def schedule(n: Numbers) -> Row:
    """One in twenty is deleted, one in five is disabled."""
    deleted, enabled = n.number % 20 == 0, n.number % 5 > 0
    changes = {"enabled": enabled, "created_at": n.instant, "when_cron": f"{n.number % 60} * * * *"}
    model = make_schedule(n.tenant, f"s-{n.name}", name=f"name {n.name}", **changes)
    return Row(model, {"deletedAt": n.instant, "deletedBy": "ada"} if deleted else {})


def trigger(n: Numbers) -> Row:
    """One for each schedule; none is due where it is disabled."""
    enabled = n.number % 5 > 0
    values = {
        "enabled": enabled,
        "next_fire_at": n.instant + PERIOD if enabled else None,
        "created_at": n.instant,
    }
    return Row(make_trigger(n.tenant, f"s-{n.name}", **values, updated_at=n.instant))


def run(n: Numbers) -> Row:
    """A few are open, and most are completed."""
    state = FATES[n.pick(0, len(FATES))]
    model = make_run(
        n.tenant, f"r-{n.name}", state=state, created_at=n.instant, schedule_id=f"schedule-{n.pick(1, 40)}"
    )
    return Row(model)


def execution_log(n: Numbers) -> Row:
    """Logs of forty entries, in the order of the runs that have some."""
    owner = Numbers(n.number // 40, n.count)
    values = {"tenant_id": owner.tenant, "run_id": f"r-{owner.name}", "sequence": n.number % 40 + 1}
    model = ExecutionLogEntry(logged_at=n.instant, level=LogLevel.INFO, message="step done", **values)  # type: ignore[arg-type]  # the model checks the values
    return Row(model)


def snapshot(n: Numbers) -> Row:
    """Of thirty selectors and many runs."""
    markers = {
        "snapshotId": f"i-{n.name}",
        "tenantId": n.tenant,
        "runId": f"r-{n.pick(0, 200)}",
        "selectorDigest": f"digest-{n.pick(1, 30)}",
    }
    return Row(make_impact_set(snapshot_id=f"i-{n.name}", generated_at=n.instant), markers)


def audit(n: Numbers) -> Row:
    """Some are about a schedule, some about a run, some about both."""
    values = {
        "category": CATEGORIES[n.pick(0, len(CATEGORIES))],
        "schedule_id": f"schedule-{n.pick(1, 40)}" if n.number % 3 else None,
        "run_id": f"r-{n.pick(2, 200)}" if n.number % 2 else None,
    }
    return Row(make_audit_record(n.tenant, f"a-{n.name}", occurred_at=n.instant, **values))


def summary(n: Numbers) -> Row:
    """One for each schedule."""
    return Row(make_run_summary(n.tenant, f"s-{n.name}", updated_at=n.instant))


def worker(n: Numbers) -> Row:
    """Most have stopped; of the others many are silent."""
    values = {
        "id": f"host/{n.name}",
        "tenant_id": n.tenant if n.number % 3 else None,
        "status": WORKERS[n.pick(0, len(WORKERS))],
    }
    model = Worker(hostname="host", last_heartbeat_at=n.instant, registered_at=n.instant, **values)  # type: ignore[arg-type]  # the model checks the values
    return Row(model)


def lock(n: Numbers) -> Row:
    """All but the latest are free."""
    later = n.instant + timedelta(minutes=1)
    model = LockInfo(
        lock_key=f"lock-{n.name}",
        tenant_id=n.tenant,
        holder_id="host/1",
        acquired_at=n.instant,
        expires_at=later,
        fence=1,
    )
    return Row(model)


def graph_job_model(n: Numbers) -> GraphJob:
    """Builds and overlays in turns; most are completed."""
    status = GRAPH_FATES[n.pick(0, len(GRAPH_FATES))]
    make = make_graph_overlay_job if n.number % 2 else make_graph_build_job
    started = status not in {GraphJobStatus.PENDING, GraphJobStatus.QUEUED}
    return make(
        n.tenant,
        n.name,
        status=status,
        created_at=n.instant,
        attempts=int(started),
        started_at=n.instant if started else None,
        completed_at=n.instant if status.terminal else None,
        error="boom" if status is GraphJobStatus.FAILED else None,
        **({} if n.number % 2 else {"graph_snapshot_id": "graph-1"}),
    )


def graph_job(n: Numbers) -> Row:
    """The job of a number."""
    return Row(graph_job_model(n), {"updatedAt": n.instant})


def graph_job_event_row(n: Numbers) -> Row:
    """Forty events of each job that has some."""
    job = graph_job_model(Numbers(n.number // 40, n.count))
    event = graph_job_event(job, n.name, ts=n.instant)
    return Row(event, {"seq": n.number + 1})


def policy_job(n: Numbers) -> Row:
    """A few wait or are leased, and most are completed."""
    status = JOB_FATES[n.pick(0, len(JOB_FATES))]
    job = make_policy_job(
        n.tenant,
        f"j-{n.name}",
        policy_id=f"policy-{n.pick(1, 20)}",
        priority=list(PolicyRunPriority)[n.pick(2, len(PolicyRunPriority))],
        created_at=n.instant,
        updated_at=n.instant,
        available_at=n.instant,
    )
    if status is not PolicyRunJobStatus.PENDING:
        job = as_dispatched(job, n.instant)
    if status not in {PolicyRunJobStatus.PENDING, PolicyRunJobStatus.DISPATCHING}:
        job = as_submitted(job, n.instant)
    return Row(job if status is job.status else as_ended(job, status, n.instant))


MAKERS: Final[dict[str, Callable[[Numbers], Row]]] = {
    "schedules": schedule,
    "triggers": trigger,
    "runs": run,
    "execution_logs": execution_log,
    "impact_snapshots": snapshot,
    "audit": audit,
    "run_summaries": summary,
    "workers": worker,
    "locks": lock,
    "graph_jobs": graph_job,
    "graph_job_events": graph_job_event_row,
    "policy_jobs": policy_job,
}
# Of each job that has some; enough that the row in the middle of all is in the middle of its job.
RANGES: Final = 2_400
COPY_WORKERS: Final = 4
# Of each range that has some.
LINES: Final = 10
ENTITIES: Final = [entity.name for entity in module_spec("scheduler").catalog.entities]
# Of ten ranges of an entity, most are copied.
RANGE_FATES: Final = (RangeState.LIVE,) * 7 + (RangeState.FAILED, RangeState.COPYING, RangeState.PENDING)


def job_of(n: Numbers, share: int) -> str:
    """Return the id of the job to which a row belongs, one of this many."""
    return f"job-{Numbers(n.number // share, n.count).name}"


def job(n: Numbers) -> Row:
    """All but the latest are complete."""
    state = JobState.COMPLETE if n.number < n.count - 1 else JobState.RUNNING
    model = CopyJob(id=f"job-{n.name}", state=state, as_of=n.instant, started_at=n.instant, planned=RANGES)
    return Row(model)


def copy_worker(n: Numbers) -> Row:
    """A few for each job."""
    later = n.instant + timedelta(minutes=1)
    return Row(
        CopyWorker(job_id=job_of(n, COPY_WORKERS), worker=f"host/{n.number % COPY_WORKERS}", expires_at=later)
    )


def copy_range(n: Numbers) -> Row:
    """The ranges of one entity after those of the one before."""
    number = n.number % RANGES
    model = CopyRange(
        job_id=job_of(n, RANGES),
        number=number + 1,
        entity=ENTITIES[number * len(ENTITIES) // RANGES],
        state=RANGE_FATES[n.pick(0, len(RANGE_FATES))],
        worker="host/1",
        fence=1,
    )
    return Row(model)


def place(n: Numbers) -> dict[str, object]:
    """Return the place of a line: its job, its range and its number in there."""
    number, line = divmod(n.number % RANGES, LINES)
    values = {"number": number + 1, "line": line + 1, "key": f'["{n.name}"]'}
    return {"job_id": job_of(n, RANGES), "entity": "runs", "tenant": n.tenant, **values}


def quarantined(n: Numbers) -> Row:
    """Several of one range."""
    return Row(QuarantineLine.model_validate({**place(n), "reason": "it has no state", "raw": "{}"}))


def conflict(n: Numbers) -> Row:
    """Several of one range."""
    return Row(ConflictLine.model_validate(place(n)))


LEDGER_ROWS: Final[dict[str, Callable[[Numbers], Row]]] = {
    "jobs": job,
    "workers": copy_worker,
    "ranges": copy_range,
    "quarantine": quarantined,
    "conflicts": conflict,
}
ENTRIES: Final = 40  # of each run that has a log
BELOW: Final = 4  # artifacts, and approvals, of each run that has some
SESSION_FATES: Final = (SessionStatus.COMPLETED,) * 40 + tuple(SessionStatus)
TASK_FATES: Final = (TaskStatus.COMPLETED,) * 40 + tuple(TaskStatus)
# Half of them are full, so that the list of those with a free slot passes over many.
SLOTS: Final = (0, 1, 2, 3)


def project_of(n: Numbers) -> str:
    """Return a project: the first one has a quarter of all rows."""
    return n.tenant.replace("tenant", "project")


def session(n: Numbers) -> Row:
    """Most are completed; a session runs on one of many machines."""
    status = SESSION_FATES[n.pick(0, len(SESSION_FATES))]
    model = TrackingSession.new(
        session_id=f"session-{n.name}",
        project_id=project_of(n),
        machine_id=f"machine-{n.pick(1, 200)}",
        now=n.instant,
    )
    ended = n.instant + timedelta(minutes=9) if status.ended else None
    return Row(model.evolve(status=status, completed_at=ended))


def task(n: Numbers) -> Row:
    """A few for each session; most are completed."""
    status = TASK_FATES[n.pick(0, len(TASK_FATES))]
    owner = Numbers(n.number // 3, n.count)
    model = TrackingTask.new(
        task_id=f"task-{n.name}",
        session_id=f"session-{owner.name}",
        project_id=project_of(owner),
        task_name="Investigate",
        now=n.instant,
    )
    return Row(model.evolve(status=status, completed_at=n.instant if status.ended else None))


def machine(n: Numbers) -> Row:
    """Most are online, and one in ten is silent."""
    status = list(MachineStatus)[n.pick(0, 12) // 10]
    model = TrackingMachine.new(
        machine_id=f"machine-{n.name}", hostname="host", docker_slots=SLOTS, now=n.instant
    )
    return Row(model.evolve(status=status))


def owner_of(n: Numbers) -> str | None:
    """Return the tenant of a pack run; one in five has none."""
    return n.tenant if n.number % 5 else None


def pack_run(n: Numbers) -> Row:
    """One in five has no tenant."""
    return Row(make_pack_run(owner_of(n), f"pack-{n.name}", created_at=n.instant, updated_at=n.instant))


def log_entry(n: Numbers) -> Row:
    """Logs of forty entries, in the order of the runs that have some."""
    owner = Numbers(n.number // ENTRIES, n.count)
    model = PackRunLogEntry(
        run_id=f"pack-{owner.name}",
        sequence=n.number % ENTRIES + 1,
        timestamp=n.instant,
        level=enums.LogLevel.INFO,
        event_type="step.progress",
        message="step done",
    )
    return Row(model)


def artifact(n: Numbers) -> Row:
    """A few for each run that has some."""
    owner = Numbers(n.number // BELOW, n.count)
    return Row(make_artifact(f"pack-{owner.name}", f"output-{n.number % BELOW}"))


def approval(n: Numbers) -> Row:
    """A few for each run that has some; most are already decided."""
    owner = Numbers(n.number // BELOW, n.count)
    model = make_approval(owner_of(owner), f"pack-{owner.name}", f"gate-{n.number % BELOW}")
    if n.pick(0, 10) == 0:
        return Row(model)
    status = enums.PackApprovalStatus.APPROVED
    return Row(model.evolve(status=status, actor_id="ops", completed_at=model.requested_at))


MODULE_ROWS: Final[dict[str, Callable[[Numbers], Row]]] = {
    "sessions": session,
    "tasks": task,
    "machines": machine,
    "pack_runs": pack_run,
    "pack_run_logs": log_entry,
    "pack_artifacts": artifact,
    "pack_run_approvals": approval,
}
SPECS: Final = (*map(module_spec, ("scheduler", "tracking", "taskrunner")), LEDGER_MODULE)


def rows_of(entity: Entity, count: int) -> Iterator[Row]:
    """Yield this many rows of an entity; those that belong to another row come after it."""
    make = (LEDGER_ROWS if entity.module == LEDGER_MODULE.name else MAKERS | MODULE_ROWS)[entity.name]
    return (make(Numbers(number, count)) for number in range(count))


def tenants_of(module: Module) -> tuple[str, ...]:
    """Return whose rows are asked for: where a module has no tenants, any name will do."""
    owned = any(entity.tenant_field is not None for entity in module.entities)
    return (MANY, FEW) if owned else (MANY,)
