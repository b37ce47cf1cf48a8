"""What sessions of the scheduler are made to do: refused steps, calls that meet broken rows, many writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from twinstore.errors import (
    ConflictError,
    InvalidTransitionError,
    NotFoundError,
    TwinstoreError,
    ValidationError,
)
from twinstore.scheduler.catalog import (
    AUDIT,
    EXECUTION_LOGS,
    IMPACT_SNAPSHOTS,
    POLICY_JOBS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import PolicyRunJobStatus, RunState
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.scheduler.storage import SchedulerSession
from twinstore.testing.calls import Touch
from twinstore.testing.examples import NAME
from twinstore.testing.instants import at
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.scheduler.builders import (
    make_audit_event,
    make_selector,
    moved,
    rich_audit_record,
    rich_impact_set,
    rich_run_summary,
    rich_schedule,
)
from twinstore.testing.scheduler.calls import StoredExamples
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.workspace import SchedulerWorkspace

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.scheduler.runs import Run
    from twinstore.testing.examples import OneOfEach

__all__ = [
    "FATAL",
    "HARMLESS",
    "TOUCHES",
    "SchedulerStep",
    "finished",
    "populate",
    "write_and_read",
    "write_everywhere",
]

SchedulerStep: TypeAlias = Callable[[SchedulerSession, SchedulerWorkspace, StoredExamples], object]
ALL: Final = ScheduleQueryOptions(include_deleted=True)

# Errors that a rule or an argument decides; the store has not failed, so the unit goes on.
HARMLESS: Final[dict[str, tuple[type[TwinstoreError], SchedulerStep]]] = {
    "absent": (NotFoundError, lambda u, b, _: u.runs.get_required(b.tenant, "no-run")),
    "argument": (ValidationError, lambda u, b, _: u.runs.get(b.tenant, " ")),
    "move": (InvalidTransitionError, lambda u, _, h: u.runs.update(moved(h.run, RunState.QUEUED))),
    "state": (ConflictError, lambda u, _, h: u.runs.update(h.run, expected_state=RunState.QUEUED)),
    "begin": (ValidationError, lambda u, b, _: u.runs.create(b.run("c", state=RunState.RUNNING))),
    "instant": (ConflictError, lambda u, _, h: u.schedules.upsert(h.schedule, expected_updated_at=at(77))),
    "deleted": (ConflictError, lambda u, _, h: u.schedules.upsert(h.gone)),
    "early": (ValidationError, lambda u, b, h: u.schedules.soft_delete(b.tenant, h.schedule.id, "x", at(-9))),
    "summary": (ConflictError, lambda u, _, h: u.run_summaries.upsert(h.summary, expected_updated_at=at(9))),
    "retry": (NotFoundError, lambda u, b, _: u.runs.retry(b.tenant, "no-run", "x", at())),
}
# Errors of the store: whoever catches them must not commit what came before.
FATAL: Final[dict[str, SchedulerStep]] = {
    "run": lambda u, b, h: u.runs.create(b.run("x").evolve(id=h.run.id)),
    "name": lambda u, b, h: u.schedules.upsert(b.schedule("x", name=h.schedule.name)),
    "restored name": lambda u, b, h: (
        u.schedules.upsert(b.schedule("x", name=h.gone.name)),
        u.schedules.restore(b.tenant, h.gone.id, "x", at(9)),
    ),
    "record": lambda u, _, h: u.audit.append(h.record.evolve(message="other")),
    "event": lambda u, b, h: u.audit_service.write(make_audit_event(b.tenant, id=h.record.id)),
    "retry": lambda u, b, h: u.runs.retry(b.tenant, h.run.id, "x", at(), new_run_id=h.run.id),
    "foreign schedule": lambda u, b, _: u.schedules.upsert(b.schedule("x").evolve(id=b.elsewhere.id(NAME))),
    "foreign run": lambda u, b, _: u.runs.create(b.run("x").evolve(id=b.elsewhere.id(NAME))),
    "foreign record": lambda u, b, _: u.audit.append(b.record("x").evolve(id=b.elsewhere.id(NAME))),
    "foreign snapshot": lambda u, b, _: u.impact_snapshots.upsert(
        b.tenant, b.snapshot(snapshot_id=b.elsewhere.id(NAME))
    ),
}


def touching(
    method: str,
    entity: Entity,
    call: Callable[[SchedulerSession, str, StoredExamples], object],
    *,
    repeatable: bool = False,
) -> Touch:
    """Return a call in the types of the scheduler."""
    return Touch(method, entity, cast("Callable[[object, str, OneOfEach], object]", call), repeatable)


def update_run(session: SchedulerSession, tenant: str, one_of_each: StoredExamples) -> None:
    """Write the stored run again."""
    del tenant
    assert session.runs.update(moved(one_of_each.run, one_of_each.run.state)) is True


def update_schedule(session: SchedulerSession, tenant: str, one_of_each: StoredExamples) -> None:
    """Write the stored schedule again, if it is still the one that was read."""
    del tenant
    stored = one_of_each.schedule
    session.schedules.upsert(stored, expected_updated_at=stored.updated_at)


TOUCHES: Final = (
    touching("list deleted", SCHEDULES, lambda s, t, _: s.schedules.list(t, ALL), repeatable=True),
    touching("upsert as expected", SCHEDULES, update_schedule, repeatable=True),
    touching("restore", SCHEDULES, lambda s, t, h: s.schedules.restore(t, h.schedule.id, "x", at(9))),
    touching("recalculate", SCHEDULES, lambda s, t, h: s.triggers.recalculate(t, h.schedule.id, at())),
    touching("fire", SCHEDULES, lambda s, t, h: s.triggers.fire(t, h.schedule.id, at(99_999))),
    touching("fire", TRIGGERS, lambda s, t, h: s.triggers.fire(t, h.schedule.id, at(99_999))),
    touching("update", RUNS, update_run, repeatable=True),
    touching(
        "list", EXECUTION_LOGS, lambda s, t, h: s.execution_logs.list(t, h.entry.run_id), repeatable=True
    ),
    touching("append", EXECUTION_LOGS, lambda s, _, h: s.execution_logs.append([h.entry]), repeatable=True),
    touching(
        "get_by_run",
        POLICY_JOBS,
        lambda s, t, h: s.policy_jobs.get_by_run(t, h.job.run_id or ""),
        repeatable=True,
    ),
    touching(
        "try_replace",
        POLICY_JOBS,
        lambda s, _, h: s.policy_jobs.try_replace(h.job, PolicyRunJobStatus.PENDING),
        repeatable=True,
    ),
    touching("modify", POLICY_JOBS, lambda s, t, h: s.policy_jobs.modify(t, h.job.id, lambda old: old)),
    touching(
        "request_cancellation",
        POLICY_JOBS,
        lambda s, t, h: s.policy_run_service.request_cancellation(t, h.job.run_id or "", None),
    ),
    touching("retry", RUNS, lambda s, t, h: s.runs.retry(t, h.run.id, "x", at())),
    touching("rebuild", RUNS, lambda s, t, h: s.run_summary_service.rebuild(t, h.schedule.id)),
    touching(
        "get_latest_by_selector",
        IMPACT_SNAPSHOTS,
        lambda s, t, _: s.impact_snapshots.get_latest_by_selector(t, make_selector()),
    ),
    touching("project", RUN_SUMMARIES, lambda s, _, h: s.run_summary_service.project(h.run)),
    touching("rebuild", RUN_SUMMARIES, lambda s, t, h: s.run_summary_service.rebuild(t, h.schedule.id)),
    touching(
        "modify", RUN_SUMMARIES, lambda s, t, h: s.run_summaries.modify(t, h.schedule.id, lambda old: old)
    ),
)


def write_everywhere(unit: SchedulerSession, workspace: SchedulerWorkspace) -> None:
    """Write one row of each entity, through the services where there is one."""
    schedule = unit.schedules.upsert(workspace.schedule())
    run = unit.runs.create(workspace.run(schedule_id=schedule.id))
    summary = unit.run_summary_service.project(run, now=at())
    assert summary is not None
    record = unit.audit_service.write(make_audit_event(workspace.tenant))
    written: dict[Entity, CanonicalModel] = {
        SCHEDULES: schedule,
        TRIGGERS: unit.triggers.get_required(workspace.tenant, schedule.id),
        RUNS: run,
        RUN_SUMMARIES: summary,
        AUDIT: record,
    }
    SCHEDULER_EXAMPLES.store_each(unit, workspace.tenant, workspace.id("a"), written, bound=True)


def write_and_read(session: SchedulerSession, workspace: SchedulerWorkspace, number: int) -> None:
    """Write through each repository and service, and assert that the session reads what it wrote."""
    schedule = session.schedules.upsert(workspace.schedule(str(number)))
    assert session.schedules.get(workspace.tenant, schedule.id) == schedule
    assert session.triggers.get(workspace.tenant, schedule.id) is not None
    assert len(session.schedules.list(workspace.tenant)) == number + 1
    run = session.runs.create(workspace.run(str(number), schedule_id=schedule.id))
    assert session.runs.update(moved(run, RunState.QUEUED))
    assert session.runs.get_required(workspace.tenant, run.id).state is RunState.QUEUED
    summary = session.run_summary_service.project(run, now=at())
    assert session.run_summaries.get(workspace.tenant, schedule.id) == summary
    record = session.audit_service.write(make_audit_event(workspace.tenant))
    assert session.audit.get(workspace.tenant, record.id) == record
    key = session.impact_snapshots.upsert(workspace.tenant, workspace.snapshot(str(number)))
    assert session.impact_snapshots.get(workspace.tenant, key) is not None


def finished(workspace: SchedulerWorkspace, name: str, seconds: float) -> Run:
    """Store a run that was cancelled at an instant."""
    run = workspace.storage.runs.create(workspace.run(name, created_at=at(-1000)))
    run = moved(run, RunState.CANCELLED, finished_at=at(seconds))
    assert workspace.storage.runs.update(run) is True
    return run


# What `populate` stores in more forms than an example has.
STORED_BY_HAND: Final = frozenset({SCHEDULES, TRIGGERS, RUNS, IMPACT_SNAPSHOTS, AUDIT, RUN_SUMMARIES})


def populate(workspace: SchedulerWorkspace) -> None:
    """Store rows of every entity, ids in awkward order, soft-deleted and derived ones among them."""
    storage, tenant = workspace.storage, workspace.tenant
    for number, text in enumerate(EDGE_TEXTS):
        schedule = rich_schedule(tenant, workspace.id(text), name=f"{text}{number}")
        storage.schedules.upsert(schedule)
        storage.audit.append(rich_audit_record(tenant, workspace.id(text), occurred_at=at(-number)))
    storage.schedules.soft_delete(tenant, workspace.id(EDGE_TEXTS[0]), "eve", at(99))
    storage.runs.create(workspace.run("planned", schedule_id="s"))
    finished(workspace, "finished", 5)
    storage.impact_snapshots.upsert(tenant, rich_impact_set(tenant))
    storage.impact_snapshots.upsert(
        tenant, rich_impact_set(tenant, snapshot_id=workspace.id("own")), run_id="r"
    )
    storage.run_summaries.upsert(rich_run_summary(tenant, workspace.id("s")))
    storage.run_summaries.upsert(workspace.summary("t"))
    for item in SCHEDULER_EXAMPLES.examples:
        if item.entity not in STORED_BY_HAND:
            for text in EDGE_TEXTS:
                item.store(storage.unbound, tenant, item.rich(tenant, workspace.id(text)))
