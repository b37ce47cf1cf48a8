"""Every method of every repository and service as a call for any tenant, so that no method is forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from twinstore.errors import DuplicateError, NotFoundError
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.triggers import trigger_id
from twinstore.testing.builders import at, make_audit_event, make_run_summary, make_selector, moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.bulk import Key
    from twinstore.catalog import Entity
    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore.testing.bench import Bench
    from twinstore.testing.probe import StoredRow

__all__ = ["SYSTEM_CALLS", "TENANT_CALLS", "Call", "Household", "furnish"]


class Household(NamedTuple):
    """One row of each entity, owned by one tenant. The schedule is alive, the run terminal."""

    schedule: Schedule
    gone: Schedule
    run: Run
    snapshot: ImpactSet
    record: AuditRecord
    summary: RunSummary

    @property
    def keys(self) -> tuple[tuple[Entity, Key], ...]:
        """Where the rows are stored."""
        return (
            (SCHEDULES, (self.schedule.id,)),
            (SCHEDULES, (self.gone.id,)),
            (TRIGGERS, (trigger_id(self.schedule.tenant_id, self.schedule.id),)),
            (RUNS, (self.run.id,)),
            (IMPACT_SNAPSHOTS, (self.snapshot.snapshot_id or "",)),
            (AUDIT, (self.record.id,)),
            (RUN_SUMMARIES, (self.summary.tenant_id, self.summary.schedule_id)),
        )

    def stored(self, bench: Bench) -> list[StoredRow | None]:
        """Return what is really stored."""
        return [bench.probe.read(entity, key) for entity, key in self.keys]


def furnish(bench: Bench) -> Household:
    """Store one row of each entity for the tenant of the bench."""
    storage = bench.storage
    gone = storage.schedules.upsert(bench.schedule("gone"))
    assert storage.schedules.soft_delete(bench.tenant, gone.id, "eve", at(5))
    schedule = storage.schedules.upsert(bench.schedule("living"))
    run = storage.runs.create(bench.run("run", schedule_id=schedule.id))
    finished = moved(run, RunState.CANCELLED)
    assert storage.runs.update(finished)
    snapshot = bench.snapshot("snapshot")
    storage.impact_snapshots.upsert(bench.tenant, snapshot, run_id=run.id)
    record = storage.audit.append(bench.record("record", schedule_id=schedule.id))
    summary = storage.run_summaries.upsert(make_run_summary(bench.tenant, schedule.id, [finished]))
    return Household(schedule, gone, finished, snapshot, record, summary)


@dataclass(frozen=True, slots=True)
class Call:
    """One method called by a tenant about the rows of another.

    Attributes:
        name: repository and method.
        invoke: gets repositories, the calling tenant and the household of the other one.
        answer: what the caller gets, or the error, when the rows belong to another tenant.
    """

    name: str
    invoke: Callable[[SchedulerSession, str, Household], object]
    answer: object


TENANT_CALLS: Final = (
    Call("schedules.get", lambda s, t, h: s.schedules.get(t, h.schedule.id), None),
    Call("schedules.get", lambda s, t, h: s.schedules.get(t, h.gone.id, include_deleted=True), None),
    Call("schedules.get_required", lambda s, t, h: s.schedules.get_required(t, h.schedule.id), NotFoundError),
    Call("schedules.get_deletion", lambda s, t, h: s.schedules.get_deletion(t, h.gone.id), None),
    Call("schedules.list", lambda s, t, _: tuple(s.schedules.list(t)), ()),
    Call(
        "schedules.upsert", lambda s, t, h: s.schedules.upsert(h.schedule.evolve(tenant_id=t)), DuplicateError
    ),
    Call("schedules.upsert", lambda s, t, h: s.schedules.upsert(h.gone.evolve(tenant_id=t)), DuplicateError),
    Call(
        "schedules.soft_delete",
        lambda s, t, h: s.schedules.soft_delete(t, h.schedule.id, "x", at(9)),
        answer=False,
    ),
    Call("schedules.restore", lambda s, t, h: s.schedules.restore(t, h.gone.id, "x", at(9)), answer=False),
    Call("triggers.get", lambda s, t, h: s.triggers.get(t, h.schedule.id), None),
    Call("triggers.get_required", lambda s, t, h: s.triggers.get_required(t, h.schedule.id), NotFoundError),
    Call("triggers.list", lambda s, t, _: tuple(s.triggers.list(t)), ()),
    Call(
        "triggers.recalculate", lambda s, t, h: s.triggers.recalculate(t, h.schedule.id, at()), NotFoundError
    ),
    Call("runs.get", lambda s, t, h: s.runs.get(t, h.run.id), None),
    Call("runs.get_required", lambda s, t, h: s.runs.get_required(t, h.run.id), NotFoundError),
    Call("runs.list", lambda s, t, _: tuple(s.runs.list(t)), ()),
    Call("runs.create", lambda s, t, h: s.runs.create(planned(h.run.evolve(tenant_id=t))), DuplicateError),
    Call("runs.update", lambda s, t, h: s.runs.update(h.run.evolve(tenant_id=t)), answer=False),
    Call("runs.get_pending_runs", lambda s, t, _: tuple(s.runs.get_pending_runs(t)), ()),
    Call(
        "runs.get_runs_by_schedule",
        lambda s, t, h: tuple(s.runs.get_runs_by_schedule(t, h.schedule.id, 10)),
        (),
    ),
    Call("runs.retry", lambda s, t, h: s.runs.retry(t, h.run.id, "x", at()), NotFoundError),
    Call("runs.purge_finished", lambda s, t, _: s.runs.purge_finished(at(9999), tenant_id=t), 0),
    Call("impact_snapshots.upsert", lambda s, t, h: s.impact_snapshots.upsert(t, h.snapshot), DuplicateError),
    Call(
        "impact_snapshots.get", lambda s, t, h: s.impact_snapshots.get(t, h.snapshot.snapshot_id or ""), None
    ),
    Call(
        "impact_snapshots.get_required",
        lambda s, t, h: s.impact_snapshots.get_required(t, h.snapshot.snapshot_id or ""),
        NotFoundError,
    ),
    Call(
        "impact_snapshots.get_latest_by_selector",
        lambda s, t, _: s.impact_snapshots.get_latest_by_selector(t, make_selector()),
        None,
    ),
    Call(
        "impact_snapshots.list_by_run",
        lambda s, t, h: tuple(s.impact_snapshots.list_by_run(t, h.run.id)),
        (),
    ),
    Call("impact_snapshots.list", lambda s, t, _: tuple(s.impact_snapshots.list(t)), ()),
    Call(
        "impact_snapshots.delete",
        lambda s, t, h: s.impact_snapshots.delete(t, h.snapshot.snapshot_id or ""),
        answer=False,
    ),
    Call(
        "impact_snapshots.purge_generated",
        lambda s, t, _: s.impact_snapshots.purge_generated(at(9999), tenant_id=t),
        0,
    ),
    Call("audit.append", lambda s, t, h: s.audit.append(h.record.evolve(tenant_id=t)), DuplicateError),
    Call("audit.get", lambda s, t, h: s.audit.get(t, h.record.id), None),
    Call("audit.get_required", lambda s, t, h: s.audit.get_required(t, h.record.id), NotFoundError),
    Call("audit.list", lambda s, t, _: tuple(s.audit.list(t)), ()),
    Call("run_summaries.get", lambda s, t, h: s.run_summaries.get(t, h.schedule.id), None),
    Call(
        "run_summaries.get_required",
        lambda s, t, h: s.run_summaries.get_required(t, h.schedule.id),
        NotFoundError,
    ),
    Call("run_summaries.list", lambda s, t, _: tuple(s.run_summaries.list(t)), ()),
    Call(
        "run_summaries.upsert",
        lambda s, t, h: s.run_summaries.upsert(make_run_summary(t, h.schedule.id)).recent,
        (),
    ),
    Call(
        "run_summaries.modify",
        lambda s, t, h: s.run_summaries.modify(t, h.schedule.id, lambda old: old),
        None,
    ),
    Call(
        "run_summary_service.project",
        lambda s, t, h: count_of(
            s.run_summary_service.project(planned(h.run.evolve(tenant_id=t, id="mine")))
        ),
        1,
    ),
    Call("run_summary_service.get", lambda s, t, h: s.run_summary_service.get(t, h.schedule.id), None),
    Call("run_summary_service.list", lambda s, t, _: tuple(s.run_summary_service.list(t)), ()),
    Call(
        "run_summary_service.rebuild", lambda s, t, h: s.run_summary_service.rebuild(t, h.schedule.id), None
    ),
    Call(
        "audit_service.write",
        lambda s, t, h: s.audit_service.write(make_audit_event(t, id=h.record.id)),
        DuplicateError,
    ),
)
# What sees all tenants; the household is not looked at.
SYSTEM_CALLS: Final = (
    Call("schedules.get_due_schedules", lambda s, _, __: s.schedules.get_due_schedules(at(-9999)), ()),
    Call("runs.list_by_state", lambda s, _, __: len(s.runs.list_by_state(RunState.RUNNING, limit=1)), None),
    Call("runs.purge_finished", lambda s, _, __: s.runs.purge_finished(at().replace(year=2)), 0),
    Call(
        "impact_snapshots.purge_generated",
        lambda s, _, __: s.impact_snapshots.purge_generated(at().replace(year=2)),
        0,
    ),
)


def planned(run: Run) -> Run:
    """Return the run as it was planned."""
    return moved(run, RunState.PLANNING)


def count_of(summary: RunSummary | None) -> int:
    """Return the number of runs in a window."""
    return 0 if summary is None else summary.counters.total
