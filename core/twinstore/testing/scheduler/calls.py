"""Calls of repositories and services of the scheduler other than look-ups and lists, for any tenant.

Then the lists that are asked through filters, or whose rows no example makes; and what sessions are made to
do: refused steps, calls that meet broken rows, many writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from twinstore.access.paging import Page
from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    TwinstoreError,
    ValidationError,
)
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.catalog import (
    AUDIT,
    EXECUTION_LOGS,
    GRAPH_JOBS,
    IMPACT_SNAPSHOTS,
    POLICY_JOBS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import GraphJobStatus, PolicyRunJobStatus, RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.scheduler.storage import SchedulerSession
from twinstore.testing.calls import Listing, TenantCall, Touch
from twinstore.testing.examples import NAME, TIES, OneOfEach
from twinstore.testing.instants import at
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.scheduler.builders import (
    as_dispatched,
    make_audit_event,
    make_policy_request,
    make_run_summary,
    make_schedule,
    make_selector,
    moved,
    rich_audit_record,
    rich_impact_set,
    rich_run_summary,
    rich_schedule,
)
from twinstore.testing.scheduler.examples import LISTED_SCHEDULE, SCHEDULER_EXAMPLES, SNAPSHOT_RUN
from twinstore.testing.scheduler.graph_jobs import (
    graph_job_event,
    graph_moved,
    make_graph_build_job,
    make_graph_overlay_job,
)
from twinstore.testing.scheduler.workspace import SchedulerWorkspace

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.models.canonical import CanonicalModel
    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.execution_logs import ExecutionLogEntry
    from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphOverlayJob
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.workspace import AnyStorage, Workspace

__all__ = [
    "FATAL",
    "FILTERED_LISTINGS",
    "GRAPH_JOB_CALLS",
    "GRAPH_JOB_LISTINGS",
    "HARMLESS",
    "SYSTEM_CALLS",
    "TENANT_CALLS",
    "TOUCHES",
    "SchedulerStep",
    "StoredExamples",
    "finished",
    "populate",
    "store_one_of_each",
    "write_and_read",
    "write_everywhere",
]

LIVING: Final = "living"
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
    rows = SCHEDULER_EXAMPLES.store_each(here.storage.unbound, here.tenant, here.id(LIVING))
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
    called("runs.start", lambda s, t, h: s.runs.start(t, h.run.id, at(9)), NotFoundError),
    called("runs.complete", lambda s, t, h: s.runs.complete(t, h.run.id, at(9)), NotFoundError),
    called("runs.fail", lambda s, t, h: s.runs.fail(t, h.run.id, at(9), "x"), NotFoundError),
    called("runs.cancel", lambda s, t, h: s.runs.cancel(t, h.run.id, at(9)), NotFoundError),
    called("runs.retry", lambda s, t, h: s.runs.retry(t, h.run.id, "x", at()), NotFoundError),
    called("runs.delete", lambda s, t, h: s.runs.delete(t, h.run.id), answer=False),
    called("run_summaries.delete", lambda s, t, h: s.run_summaries.delete(t, h.schedule.id), answer=False),
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
# Calls that see all tenants; their answers are not checked.
SYSTEM_CALLS: Final = (
    called("schedules.get_due_schedules", lambda s, _, __: s.schedules.get_due_schedules(at(-9999)), ()),
    called("schedules.claim_due", lambda s, _, __: s.schedules.claim_due("w", at(-9999)), ()),
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


def scheduler(storage: AnyStorage) -> SchedulerStorage:
    """Return the storage as what it is in this kit."""
    return cast("SchedulerStorage", storage)


def deleted_page(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[Schedule]:
    """Ask for all schedules."""
    options = ScheduleQueryOptions(include_deleted=True, limit=limit, page_token=token)
    return scheduler(storage).schedules.list(tenant, options)


def store_deleted(session: object, tenant: str, model: CanonicalModel) -> CanonicalModel:
    """Store a schedule and soft-delete it at once."""
    schedules = cast("SchedulerSession", session).schedules
    schedule = schedules.upsert(cast("Schedule", model))
    assert schedules.soft_delete(tenant, schedule.id, "eve", at(100))
    return schedule


def deleted_schedule(tenant: str, key: str, number: int) -> Schedule:
    """Return a schedule that shares its name with others, which only deleted ones may."""
    return make_schedule(tenant, key, name=EDGE_TEXTS[number // TIES])


def filtered_runs(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the oldest runs through every filter."""
    options = RunQueryOptions(
        schedule_id=LISTED_SCHEDULE,
        states=(RunState.QUEUED, RunState.ERROR),
        created_after=at(-0.001),
        created_before=at(0.005),
        ascending=True,
        limit=limit,
        page_token=token,
    )
    return scheduler(storage).runs.list(tenant, options)


def filtered_records(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for audit records through every filter."""
    options = AuditQueryOptions(
        category="run",
        schedule_id=LISTED_SCHEDULE,
        run_id=SNAPSHOT_RUN,
        occurred_after=at(-0.001),
        occurred_before=at(0.005),
        limit=limit,
        page_token=token,
    )
    return scheduler(storage).audit.list(tenant, options)


FILTERED_LISTINGS: Final = (
    Listing(
        name="schedules.list deleted",
        example=SCHEDULER_EXAMPLES.of(SCHEDULES),
        order="name id",
        fetch_page=deleted_page,
        store=store_deleted,
        vary=deleted_schedule,
    ),
    Listing(
        name="runs.list filtered",
        example=SCHEDULER_EXAMPLES.of(RUNS),
        order="createdAt id",
        fetch_page=filtered_runs,
    ),
    Listing(
        name="audit.list filtered",
        example=SCHEDULER_EXAMPLES.of(AUDIT),
        order="-occurredAt id",
        fetch_page=filtered_records,
    ),
)


QUEUED: Final = GraphJobStatus.QUEUED
RUNNING: Final = GraphJobStatus.RUNNING


def job_of(one_of_each: StoredExamples, tenant: str) -> GraphBuildJob:
    """Return the stored job as if it were another tenant's."""
    return cast("GraphBuildJob", one_of_each[GRAPH_JOBS]).evolve(tenant_id=tenant)


def twin_of(one_of_each: StoredExamples, tenant: str) -> GraphOverlayJob:
    """Return an overlay job with the digits of the stored job."""
    return make_graph_overlay_job(tenant, "twin", id=f"goj_{one_of_each[GRAPH_JOBS].uuid}")


GRAPH_JOB_CALLS: Final = (
    called("graph_jobs.insert", lambda s, t, h: s.graph_jobs.insert(job_of(h, t)), DuplicateError),
    called("graph_jobs.insert", lambda s, t, h: s.graph_jobs.insert(twin_of(h, t)), DuplicateError),
    called(
        "graph_jobs.try_replace",
        lambda s, t, h: s.graph_jobs.try_replace(graph_moved(job_of(h, t), RUNNING), QUEUED),
        answer=False,
    ),
    called(
        "graph_jobs.try_replace_overlay",
        lambda s, t, h: s.graph_jobs.try_replace_overlay(graph_moved(twin_of(h, t), RUNNING), QUEUED),
        answer=False,
    ),
    called("graph_jobs.get_build_job", lambda s, t, h: s.graph_jobs.get_build_job(t, h[GRAPH_JOBS].id), None),
    called(
        "graph_jobs.get_build_job_required",
        lambda s, t, h: s.graph_jobs.get_build_job_required(t, h[GRAPH_JOBS].id),
        NotFoundError,
    ),
    called(
        "graph_jobs.get_overlay_job", lambda s, t, h: s.graph_jobs.get_overlay_job(t, twin_of(h, t).id), None
    ),
    called(
        "graph_jobs.get_overlay_job_required",
        lambda s, t, h: s.graph_jobs.get_overlay_job_required(t, twin_of(h, t).id),
        NotFoundError,
    ),
    called(
        "graph_jobs.list_build_jobs", lambda s, t, _: tuple(s.graph_jobs.list_build_jobs(t, QUEUED, 9)), ()
    ),
    called(
        "graph_jobs.list_overlay_jobs",
        lambda s, t, _: tuple(s.graph_jobs.list_overlay_jobs(t, None, 9)),
        (),
    ),
    called(
        "graph_jobs.append_event",
        lambda s, t, h: s.graph_jobs.append_event(graph_job_event(job_of(h, t), "of another tenant")),
        NotFoundError,
    ),
    called("graph_jobs.count_by_status", lambda s, t, _: s.graph_jobs.count_by_status(t), {}),
    called("graph_job_store.add", lambda s, t, h: s.graph_job_store.add(job_of(h, t)), DuplicateError),
    called(
        "graph_job_store.update",
        lambda s, t, h: s.graph_job_store.update(graph_moved(job_of(h, t), RUNNING), QUEUED),
        answer=False,
    ),
    called("graph_job_store.get", lambda s, t, h: s.graph_job_store.get(t, h[GRAPH_JOBS].id), None),
    called("graph_job_store.list", lambda s, t, _: tuple(s.graph_job_store.list(t)), ()),
)


def built(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the queued build jobs."""
    jobs = cast("SchedulerStorage", storage).graph_jobs
    return jobs.list_build_jobs(tenant, QUEUED, limit, page_token=token)


def laid(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the overlay jobs, whatever they do."""
    jobs = cast("SchedulerStorage", storage).graph_jobs
    return jobs.list_overlay_jobs(tenant, None, limit, page_token=token)


def shown(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask the store of hosts for its jobs."""
    store = cast("SchedulerStorage", storage).graph_job_store
    page = store.list(tenant, status=QUEUED, limit=limit, page_token=token)
    return Page(tuple(item.payload for item in page), page.next_page_token)


def listed_build_job(tenant: str, key: str, number: int) -> GraphBuildJob:
    """Return a build job of a list; some tie."""
    return make_graph_build_job(tenant, key, created_at=at(number // TIES / 1000))


def listed_overlay_job(tenant: str, key: str, number: int) -> GraphOverlayJob:
    """Return an overlay job of a list; some tie."""
    return make_graph_overlay_job(tenant, key, created_at=at(number // TIES / 1000))


JOBS: Final = SCHEDULER_EXAMPLES.of(GRAPH_JOBS)
GRAPH_JOB_LISTINGS: Final = (
    Listing(
        name="graph_jobs.list_build_jobs",
        example=JOBS,
        order="-createdAt uuid",
        fetch_page=built,
        vary=listed_build_job,
    ),
    Listing(
        name="graph_jobs.list_overlay_jobs",
        example=JOBS,
        order="-createdAt uuid",
        fetch_page=laid,
        vary=listed_overlay_job,
    ),
    Listing(name="graph_job_store.list", example=JOBS, order="-createdAt uuid", fetch_page=shown),
)


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
# Errors of the store: a caller that catches them must not commit the work before them.
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
    touching("cancel", RUNS, lambda s, t, h: s.runs.cancel(t, h.run.id, at(9))),
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
