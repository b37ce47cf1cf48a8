"""The examples of the scheduler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.models.fields import PositiveInt, date_object
from twinstore.scheduler.audit import AuditRecord, AuditRepository
from twinstore.scheduler.catalog import (
    AUDIT,
    EXECUTION_LOGS,
    IMPACT_SNAPSHOTS,
    LOCKS,
    POLICY_JOBS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULES,
    TRIGGERS,
    WORKERS,
)
from twinstore.scheduler.enums import LogLevel, RunState
from twinstore.scheduler.execution_logs import ExecutionLogEntry, ExecutionLogRepository
from twinstore.scheduler.impact_snapshots import ImpactSet, ImpactSnapshotRepository, derived_snapshot_id
from twinstore.scheduler.locks import DistributedLock, LockInfo
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.policy_jobs import PolicyJobRepository, PolicyRunJob
from twinstore.scheduler.repositories.locks import Locks
from twinstore.scheduler.run_summaries import RunSummary, RunSummaryRepository
from twinstore.scheduler.runs import Run, RunRepository, RunStats
from twinstore.scheduler.schedules import Schedule, ScheduleRepository
from twinstore.scheduler.selectors import selector_digest
from twinstore.scheduler.storage import SchedulerSession
from twinstore.scheduler.triggers import Trigger, TriggerRepository
from twinstore.scheduler.workers import Worker, WorkerRepository, WorkerStatus
from twinstore.testing.drawing import rows, values
from twinstore.testing.examples import TIES, Example, ModuleExamples, example
from twinstore.testing.instants import at
from twinstore.testing.scheduler import graph_jobs, strategies
from twinstore.testing.scheduler.builders import (
    make_audit_record,
    make_impact_set,
    make_policy_job,
    make_run,
    make_run_summary,
    make_schedule,
    make_trigger,
    moved,
    rich_audit_record,
    rich_impact_set,
    rich_policy_job,
    rich_run,
    rich_run_summary,
    rich_schedule,
    store_policy_job,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

    from twinstore.models.json_text import JsonObject


__all__ = ["SCHEDULER_EXAMPLES", "SNAPSHOT_RUN", "make_lock", "make_log_entry", "make_worker"]

Session = SchedulerSession
# The run to which every snapshot of the kit belongs, and with it every row of the lists by run.
SNAPSHOT_RUN: Final = "r-1"
LISTED_SCHEDULE: Final = "s-1"
NEXT_HOUR: Final = datetime(2025, 10, 26, 15, 0, tzinfo=UTC)
# When the triggers of a list fire next, and by which rule: never, in 25 minutes, at the next hour.
NEXT_FIRES: Final = (
    ("0 0 * * *", None),
    ("0 * * * *", NEXT_HOUR),
    ("30 * * * *", NEXT_HOUR - timedelta(minutes=30)),
)
BEGINNINGS: Final = frozenset({RunState.PLANNING, RunState.QUEUED})
# The states between planning and the wanted one, where the direct move is not allowed.
BETWEEN: Final = {
    RunState.RUNNING: (RunState.QUEUED,),
    RunState.COMPLETED: (RunState.QUEUED, RunState.RUNNING),
}


def delete_schedule(session: Session, tenant: str, schedule: Schedule) -> bool:
    """Take a schedule out of the lists."""
    return session.schedules.soft_delete(tenant, schedule.id, "eve", at(100))


def small_trigger(tenant: str, name: str) -> Trigger:
    """Return the trigger that the small schedule of the same name gets."""
    return make_trigger(tenant, name, next_fire_at=NEXT_HOUR)


def listed_trigger(tenant: str, key: str, number: int) -> Trigger:
    """Return a trigger of a list; every third one has no next instant."""
    cron, next_fire_at = NEXT_FIRES[number % TIES]
    return make_trigger(
        tenant, key, enabled=next_fire_at is not None, when_cron=cron, next_fire_at=next_fire_at
    )


def store_trigger(session: Session, tenant: str, trigger: Trigger) -> Trigger:
    """Store a trigger by the only way there is: with its schedule."""
    schedule = make_schedule(
        tenant,
        trigger.schedule_id,
        when_cron=trigger.when_cron,
        timezone=trigger.timezone,
        enabled=trigger.enabled,
        created_at=trigger.created_at,
    )
    session.schedules.upsert(schedule)
    return session.triggers.get_required(tenant, schedule.id)


def small_run(tenant: str, name: str) -> Run:
    """Return a cancelled run of the schedule of the same name."""
    return make_run(tenant, name, state=RunState.CANCELLED, schedule_id=name)


def listed_run(tenant: str, key: str, number: int) -> Run:
    """Return a run that is in every list of runs."""
    created_at = at(number // TIES / 1000)
    return make_run(tenant, key, state=RunState.QUEUED, created_at=created_at, schedule_id=LISTED_SCHEDULE)


def store_run(session: Session, tenant: str, run: Run) -> Run:
    """Create a run and take it through the allowed states."""
    del tenant
    if run.state in BEGINNINGS:
        return session.runs.create(run)
    planned = moved(run, RunState.PLANNING, stats=RunStats(), deltas=(), reason=None)
    session.runs.create(planned)
    for state in BETWEEN.get(run.state, ()):
        started_at = {"started_at": run.started_at} if state is RunState.RUNNING else {}
        assert session.runs.update(moved(planned, state, **started_at))
    assert session.runs.update(run)
    return run


def purge_run(session: Session, tenant: str, run: Run) -> int:
    """Finish a run and purge it."""
    session.runs.update(moved(run, RunState.CANCELLED))
    return session.runs.purge_finished(at(10_000), tenant_id=tenant)


def make_log_entry(tenant_id: str, run_id: str, **changes: object) -> ExecutionLogEntry:
    """Return the first entry of the log of a run."""
    values = {"sequence": 1, "logged_at": at(), "message": "planned"}
    return ExecutionLogEntry.model_validate({"tenant_id": tenant_id, "run_id": run_id, **values, **changes})


def rich_log_entry(tenant_id: str, run_id: str) -> ExecutionLogEntry:
    """Return an entry with a value in every field."""
    data: JsonObject = {
        "z": [1.0, 0.1, -1e-7, True, None, {"b.c": [], "$a": {}}],
        "\N{BUG}": {"": 2**63 - 1},
        "A": "\t",
        "at": [date_object(at(0.001)), {"$date": "no date"}],
    }
    texts = {"logger": "planner", "message": " line one\nline two \N{COLLISION SYMBOL} "}
    return make_log_entry(tenant_id, run_id, logged_at=at(0.001), level=LogLevel.ERROR, data=data, **texts)


def store_log_entry(session: Session, tenant: str, entry: ExecutionLogEntry) -> ExecutionLogEntry:
    """Append an entry to the log of its run, which is created where it is absent."""
    if session.runs.get(tenant, entry.run_id) is None:
        session.runs.create(make_run(tenant, entry.run_id))
    (stored,) = session.execution_logs.append([entry])
    return stored


def find_log_entry(session: Session, tenant: str, entry: ExecutionLogEntry) -> ExecutionLogEntry | None:
    """Return the entry that the log of a run has under the number of this one."""
    before = (entry.sequence or 1) - 1
    for found in session.execution_logs.list(tenant, entry.run_id, after_sequence=before, limit=1):
        return found if found.sequence == entry.sequence else None
    return None


def numbered_log_entries(tenant: str, key: str) -> SearchStrategy[ExecutionLogEntry]:
    """Return entries that have their number already."""
    return rows(EXECUTION_LOGS, tenant, key, sequence=values(PositiveInt))


def small_snapshot(tenant: str, name: str) -> ImpactSet:
    """Return a snapshot of one image; its tenant is stored next to it."""
    del tenant
    return make_impact_set(snapshot_id=name)


def rich_snapshot(tenant: str, name: str) -> ImpactSet:
    """Return a snapshot with a value in every field."""
    return rich_impact_set(tenant, snapshot_id=name)


def drawn_snapshots(tenant: str, key: str) -> SearchStrategy[ImpactSet]:
    """Return snapshots with an own id."""
    return strategies.impact_sets(tenant).map(lambda snapshot: snapshot.evolve(snapshot_id=key))


def store_snapshot(session: Session, tenant: str, snapshot: ImpactSet) -> ImpactSet:
    """Store a snapshot of the one run."""
    key = session.impact_snapshots.upsert(tenant, snapshot, run_id=SNAPSHOT_RUN)
    return session.impact_snapshots.get_required(tenant, key)


def snapshot_markers(tenant: str, snapshot: ImpactSet) -> Mapping[str, object]:
    """Return the markers of a stored snapshot."""
    key = snapshot.snapshot_id or derived_snapshot_id(tenant, snapshot, SNAPSHOT_RUN)
    digest = selector_digest(snapshot.selector, tenant)
    return {"snapshotId": key, "tenantId": tenant, "runId": SNAPSHOT_RUN, "selectorDigest": digest}


def small_record(tenant: str, name: str) -> AuditRecord:
    """Return a record about the schedule of the same name."""
    return make_audit_record(tenant, name, schedule_id=name)


def listed_record(tenant: str, key: str, number: int) -> AuditRecord:
    """Return a record that passes every filter of the list."""
    return make_audit_record(
        tenant,
        key,
        occurred_at=at(number // TIES / 1000),
        category="run",
        schedule_id=LISTED_SCHEDULE,
        run_id=SNAPSHOT_RUN,
    )


def small_summary(tenant: str, name: str) -> RunSummary:
    """Return the summary of the small run of the same name."""
    return make_run_summary(tenant, name, [small_run(tenant, name)])


def make_worker(tenant_id: str | None, worker_id: str, **changes: object) -> Worker:
    """Return an active worker that was alive at the start."""
    alive = {"hostname": "node-1", "last_heartbeat_at": at(), "registered_at": at()}
    return Worker.model_validate({"id": worker_id, "tenant_id": tenant_id, **alive, **changes})


def rich_worker(tenant_id: str, worker_id: str) -> Worker:
    """Return a worker with a value in every field."""
    limits = {"process_id": 4711, "max_concurrent_jobs": 2_147_483_647, "current_jobs": 3}
    texts = {"job_types": ("scan", "Zebra", "\u00e9tude"), "metadata": {"\u00e9": "\U0001f600"}}
    return make_worker(tenant_id, worker_id, **limits, **texts)


def active_workers(tenant: str, key: str) -> SearchStrategy[Worker]:
    """Return workers as they are registered."""
    return rows(WORKERS, tenant, key).map(lambda worker: worker.evolve(status=WorkerStatus.ACTIVE))


def pending_jobs(tenant: str, key: str) -> SearchStrategy[PolicyRunJob]:
    """Return policy jobs as they may be created."""
    return strategies.policy_jobs(tenant, key)


def make_lock(tenant_id: str, lock_key: str, **changes: object) -> LockInfo:
    """Return a lock that was released long ago."""
    ended = {"holder_id": "node-1/1/a", "acquired_at": at(), "expires_at": at(), "fence": 1}
    return LockInfo.model_validate({"lock_key": lock_key, "tenant_id": tenant_id, **ended, **changes})


def rich_lock(tenant_id: str, lock_key: str) -> LockInfo:
    """Return a lock with a value in every field."""
    texts = {"holder_id": "\u00e9/$ref", "metadata": {"\u00e9": "\U0001f600", "$set": "$fence"}}
    return make_lock(tenant_id, lock_key, renewed_at=at(1), fence=2**63 - 1, **texts)


def store_lock(session: Session, tenant: str, lock: LockInfo) -> LockInfo:
    """Store a lock as it is given, which no service can: leases use the server clock."""
    del tenant
    return cast("Locks", session.locks).access.put(LOCKS, ALL_TENANTS, Row(lock)).model


def beginning_runs(tenant: str, key: str) -> SearchStrategy[Run]:
    """Return runs as they may be created."""
    return strategies.runs(tenant, key, tuple(BEGINNINGS))


EXAMPLES: Final[tuple[Example, ...]] = (
    example(
        entity=SCHEDULES,
        protocol=ScheduleRepository,
        small=make_schedule,
        rich=rich_schedule,
        store="upsert",
        orders={"list": "name id"},
        remove=delete_schedule,
        drawn=strategies.schedules,
    ),
    example(
        entity=TRIGGERS,
        protocol=TriggerRepository,
        small=small_trigger,
        rich=small_trigger,
        store=store_trigger,
        orders={"list": "nextFireAt id"},
        vary=listed_trigger,
        drawn=None,
    ),
    example(
        entity=RUNS,
        protocol=RunRepository,
        small=small_run,
        rich=rich_run,
        store=store_run,
        orders={
            "list": "-createdAt id",
            "get_pending_runs": "createdAt id",
            "get_runs_by_schedule": "-createdAt id",
            "list_by_state": "createdAt id",
        },
        vary=listed_run,
        remove=purge_run,
        drawn=beginning_runs,
    ),
    example(
        entity=EXECUTION_LOGS,
        protocol=ExecutionLogRepository,
        small=make_log_entry,
        rich=rich_log_entry,
        store=store_log_entry,
        drawn=numbered_log_entries,
        find=find_log_entry,
    ),
    example(
        entity=IMPACT_SNAPSHOTS,
        protocol=ImpactSnapshotRepository,
        small=small_snapshot,
        rich=rich_snapshot,
        store=store_snapshot,
        orders={"list": "-generatedAt snapshotId", "list_by_run": "-generatedAt snapshotId"},
        remove="delete",
        markers=snapshot_markers,
        drawn=drawn_snapshots,
    ),
    example(
        entity=AUDIT,
        protocol=AuditRepository,
        small=small_record,
        rich=rich_audit_record,
        store="append",
        orders={"list": "-occurredAt id"},
        vary=listed_record,
    ),
    example(
        entity=RUN_SUMMARIES,
        protocol=RunSummaryRepository,
        small=small_summary,
        rich=rich_run_summary,
        store="upsert",
        orders={"list": "scheduleId"},
        drawn=strategies.run_summaries,
    ),
    example(
        entity=WORKERS,
        protocol=WorkerRepository,
        small=make_worker,
        rich=rich_worker,
        store="register",
        orders={"list": "lastHeartbeatAt id"},
        remove="remove",
        drawn=active_workers,
    ),
    example(
        entity=POLICY_JOBS,
        protocol=PolicyJobRepository,
        small=make_policy_job,
        rich=rich_policy_job,
        store=store_policy_job,
        orders={"list": "-createdAt id"},
        remove="delete",
        drawn=pending_jobs,
    ),
    example(
        entity=LOCKS,
        protocol=DistributedLock,
        small=make_lock,
        rich=rich_lock,
        store=store_lock,
        unbound=("acquire", "try_acquire"),
    ),
    *graph_jobs.EXAMPLES,
)
SCHEDULER_EXAMPLES: Final = ModuleExamples(MODULE, EXAMPLES, chosen=RUNS)
