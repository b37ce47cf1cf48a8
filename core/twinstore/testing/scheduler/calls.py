"""What repositories and services of the scheduler do beside look-ups and lists, as calls for any tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from twinstore.errors import DuplicateError, NotFoundError
from twinstore.scheduler.catalog import (
    AUDIT,
    EXECUTION_LOGS,
    IMPACT_SNAPSHOTS,
    POLICY_JOBS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULES,
)
from twinstore.scheduler.enums import PolicyRunJobStatus, RunState
from twinstore.testing.calls import TenantCall
from twinstore.testing.examples import OneOfEach
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_event, make_run_summary, make_selector, moved
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.policy_builders import as_dispatched, make_policy_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.execution_logs import ExecutionLogEntry
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace
    from twinstore.testing.workspace import Workspace

__all__ = ["SYSTEM_CALLS", "TENANT_CALLS", "StoredExamples", "store_one_of_each"]

NAME: Final = "living"
PENDING: Final = PolicyRunJobStatus.PENDING
FIRST: Final = at().replace(year=2)


@dataclass(frozen=True, slots=True)
class StoredExamples(OneOfEach):
    """One row of each entity of one tenant, and a soft-deleted schedule. The run is terminal."""

    gone: Schedule

    @property
    def schedule(self) -> Schedule:
        """The schedule that is alive."""
        return self[SCHEDULES]

    @property
    def run(self) -> Run:
        """The run."""
        return self[RUNS]

    @property
    def entry(self) -> ExecutionLogEntry:
        """The one entry in the log of the run."""
        return self[EXECUTION_LOGS]

    @property
    def snapshot(self) -> ImpactSet:
        """The snapshot, which has an own id."""
        return self[IMPACT_SNAPSHOTS]

    @property
    def record(self) -> AuditRecord:
        """The audit record."""
        return self[AUDIT]

    @property
    def job(self) -> PolicyRunJob:
        """The policy job, which is pending."""
        return self[POLICY_JOBS]

    @property
    def summary(self) -> RunSummary:
        """The summary of the schedule."""
        return self[RUN_SUMMARIES]


def store_one_of_each(workspace: Workspace) -> StoredExamples:
    """Store one row of each entity for the tenant of the workspace."""
    here = cast("SchedulerWorkspace", workspace)
    schedules = here.storage.schedules
    gone = schedules.upsert(here.schedule("gone"))
    assert schedules.soft_delete(here.tenant, gone.id, "eve", at(5))
    rows = SCHEDULER_EXAMPLES.store_each(here.storage.unbound, here.tenant, here.id(NAME))
    keys: tuple[tuple[Entity, Key], ...] = (*rows.keys, (SCHEDULES, (gone.id,)))
    return StoredExamples(rows.module, rows.tenant, rows.rows, keys, gone)


def called(
    name: str, invoke: Callable[[SchedulerSession, str, StoredExamples], object], answer: object
) -> TenantCall:
    """Return a call in the types of the scheduler."""
    return TenantCall(name, cast("Callable[[object, str, OneOfEach], object]", invoke), answer)


def planned(run: Run) -> Run:
    """Return the run as it was planned."""
    return moved(run, RunState.PLANNING)


def count_of(summary: RunSummary | None) -> int:
    """Return the number of runs in a window."""
    return 0 if summary is None else summary.counters.total


JOB_CALLS: Final = (
    called(
        "policy_jobs.create", lambda s, t, h: s.policy_jobs.create(h.job.evolve(tenant_id=t)), DuplicateError
    ),
    called("policy_jobs.get_by_run", lambda s, t, h: s.policy_jobs.get_by_run(t, h.job.run_id or ""), None),
    called(
        "policy_jobs.try_replace",
        lambda s, t, h: s.policy_jobs.try_replace(as_dispatched(h.job.evolve(tenant_id=t)), PENDING),
        answer=False,
    ),
    called("policy_jobs.modify", lambda s, t, h: s.policy_jobs.modify(t, h.job.id, as_dispatched), None),
    called(
        "policy_jobs.lease_next", lambda s, t, _: s.policy_jobs.lease_next("w", at(9999), tenant_id=t), None
    ),
    called(
        "policy_jobs.lease_many", lambda s, t, _: s.policy_jobs.lease_many("w", at(9999), tenant_id=t), ()
    ),
    called(
        "policy_jobs.complete_many",
        lambda s, t, h: s.policy_jobs.complete_many(
            [as_dispatched(h.job.evolve(tenant_id=t))], PENDING, lease_owner=None, now=at(9)
        ),
        (False,),
    ),
    called("policy_jobs.count_by_status", lambda s, t, _: s.policy_jobs.count_by_status(t), {}),
    called("policy_jobs.delete", lambda s, t, h: s.policy_jobs.delete(t, h.job.id), answer=False),
    called(
        "policy_run_service.enqueue",
        lambda s, t, h: (
            s.policy_run_service.enqueue(make_policy_request(t, h.job.run_id), now=at()).tenant_id == t
        ),
        answer=True,
    ),
    called("policy_run_service.get", lambda s, t, h: s.policy_run_service.get(t, h.job.run_id or ""), None),
    called("policy_run_service.list", lambda s, t, _: tuple(s.policy_run_service.list(t)), ()),
    called(
        "policy_run_service.request_cancellation",
        lambda s, t, h: s.policy_run_service.request_cancellation(t, h.job.run_id or "", None),
        NotFoundError,
    ),
    called(
        "policy_run_service.retry",
        lambda s, t, h: s.policy_run_service.retry(t, h.job.run_id or ""),
        NotFoundError,
    ),
)
TENANT_CALLS: Final = (
    *JOB_CALLS,
    called("schedules.get", lambda s, t, h: s.schedules.get(t, h.gone.id, include_deleted=True), None),
    called("schedules.get_deletion", lambda s, t, h: s.schedules.get_deletion(t, h.gone.id), None),
    called(
        "schedules.upsert", lambda s, t, h: s.schedules.upsert(h.schedule.evolve(tenant_id=t)), DuplicateError
    ),
    called(
        "schedules.upsert", lambda s, t, h: s.schedules.upsert(h.gone.evolve(tenant_id=t)), DuplicateError
    ),
    called(
        "schedules.soft_delete",
        lambda s, t, h: s.schedules.soft_delete(t, h.schedule.id, "x", at(9)),
        answer=False,
    ),
    called("schedules.restore", lambda s, t, h: s.schedules.restore(t, h.gone.id, "x", at(9)), answer=False),
    called(
        "triggers.recalculate", lambda s, t, h: s.triggers.recalculate(t, h.schedule.id, at()), NotFoundError
    ),
    called("triggers.fire", lambda s, t, h: s.triggers.fire(t, h.schedule.id, at(99_999)), None),
    called("runs.create", lambda s, t, h: s.runs.create(planned(h.run.evolve(tenant_id=t))), DuplicateError),
    called("runs.update", lambda s, t, h: s.runs.update(h.run.evolve(tenant_id=t)), answer=False),
    called("runs.retry", lambda s, t, h: s.runs.retry(t, h.run.id, "x", at()), NotFoundError),
    called("runs.purge_finished", lambda s, t, _: s.runs.purge_finished(at(9999), tenant_id=t), 0),
    called(
        "execution_logs.append",
        lambda s, t, h: s.execution_logs.append([h.entry.evolve(tenant_id=t)]),
        NotFoundError,
    ),
    called("execution_logs.list", lambda s, t, h: s.execution_logs.list(t, h.run.id), ()),
    called("execution_logs.purge", lambda s, t, _: s.execution_logs.purge(at(9999), tenant_id=t), 0),
    called(
        "impact_snapshots.upsert", lambda s, t, h: s.impact_snapshots.upsert(t, h.snapshot), DuplicateError
    ),
    called(
        "impact_snapshots.get_latest_by_selector",
        lambda s, t, _: s.impact_snapshots.get_latest_by_selector(t, make_selector()),
        None,
    ),
    called(
        "impact_snapshots.delete",
        lambda s, t, h: s.impact_snapshots.delete(t, h.snapshot.snapshot_id or ""),
        answer=False,
    ),
    called(
        "impact_snapshots.purge_generated",
        lambda s, t, _: s.impact_snapshots.purge_generated(at(9999), tenant_id=t),
        0,
    ),
    called("audit.append", lambda s, t, h: s.audit.append(h.record.evolve(tenant_id=t)), DuplicateError),
    called(
        "run_summaries.upsert",
        lambda s, t, h: s.run_summaries.upsert(make_run_summary(t, h.schedule.id)).recent,
        (),
    ),
    called(
        "run_summaries.modify",
        lambda s, t, h: s.run_summaries.modify(t, h.schedule.id, lambda old: old),
        None,
    ),
    called(
        "run_summary_service.project",
        lambda s, t, h: count_of(
            s.run_summary_service.project(planned(h.run.evolve(tenant_id=t, id="mine")))
        ),
        1,
    ),
    called("run_summary_service.get", lambda s, t, h: s.run_summary_service.get(t, h.schedule.id), None),
    called("run_summary_service.list", lambda s, t, _: tuple(s.run_summary_service.list(t)), ()),
    called(
        "run_summary_service.rebuild", lambda s, t, h: s.run_summary_service.rebuild(t, h.schedule.id), None
    ),
    called(
        "audit_service.write",
        lambda s, t, h: s.audit_service.write(make_audit_event(t, id=h.record.id)),
        DuplicateError,
    ),
)
# What sees all tenants; nobody is asked for what it answers.
SYSTEM_CALLS: Final = (
    called("schedules.get_due_schedules", lambda s, _, __: s.schedules.get_due_schedules(at(-9999)), ()),
    called("policy_jobs.lease_next", lambda s, _, __: s.policy_jobs.lease_next("w", FIRST), None),
    called("policy_jobs.lease_many", lambda s, _, __: s.policy_jobs.lease_many("w", FIRST), ()),
    called("policy_jobs.release_expired", lambda s, _, __: s.policy_jobs.release_expired(FIRST), 0),
    called("runs.purge_finished", lambda s, _, __: s.runs.purge_finished(at().replace(year=2)), 0),
    called("execution_logs.purge", lambda s, _, __: s.execution_logs.purge(at().replace(year=2)), 0),
    called(
        "impact_snapshots.purge_generated",
        lambda s, _, __: s.impact_snapshots.purge_generated(at().replace(year=2)),
        0,
    ),
)
