"""Every method of every repository and service as a call for any tenant, so that no method is forgotten.

Look-ups and lists are derived from the Protocols; what else a repository does is written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from twinstore.errors import DocumentDecodeError, DuplicateError, NotFoundError
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.builders import (
    at,
    make_audit_event,
    make_run_summary,
    make_selector,
    moved,
)
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.signatures import fields_of, methods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.catalog import Entity, Key
    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore.testing.examples import Example, OneOfEach
    from twinstore.testing.probe import StoredRow
    from twinstore.testing.signatures import ListMethod, Lookup, Method, Value
    from twinstore.testing.workspace import Workspace

__all__ = ["SYSTEM_CALLS", "TENANT_CALLS", "StoredExamples", "TenantCall", "store_one_of_each"]

NAME: Final = "living"


@dataclass(frozen=True, slots=True)
class StoredExamples:
    """One row of each entity of one tenant, and a soft-deleted schedule. The run is terminal."""

    rows: OneOfEach
    gone: Schedule

    @property
    def schedule(self) -> Schedule:
        """The schedule that is alive."""
        return self.rows[SCHEDULES]

    @property
    def run(self) -> Run:
        """The run."""
        return self.rows[RUNS]

    @property
    def snapshot(self) -> ImpactSet:
        """The snapshot, which has an own id."""
        return self.rows[IMPACT_SNAPSHOTS]

    @property
    def record(self) -> AuditRecord:
        """The audit record."""
        return self.rows[AUDIT]

    @property
    def summary(self) -> RunSummary:
        """The summary of the schedule."""
        return self.rows[RUN_SUMMARIES]

    @property
    def keys(self) -> tuple[tuple[Entity, Key], ...]:
        """Where the rows are stored, one of each entity first."""
        return (*self.rows.keys, (SCHEDULES, (self.gone.id,)))

    def stored(self, workspace: Workspace) -> list[StoredRow | None]:
        """Return what is really stored."""
        return [workspace.probe.read(entity, key) for entity, key in self.keys]

    def value(self, entity: Entity) -> Value:
        """Return what answers for the fields of the row of an entity."""
        return SCHEDULER_EXAMPLES.of(entity).value(self.rows.tenant, self.rows.rows[entity])


def store_one_of_each(workspace: Workspace) -> StoredExamples:
    """Store one row of each entity for the tenant of the workspace."""
    storage = workspace.storage
    gone = storage.schedules.upsert(workspace.schedule("gone"))
    assert storage.schedules.soft_delete(workspace.tenant, gone.id, "eve", at(5))
    return StoredExamples(
        SCHEDULER_EXAMPLES.store_each(storage.unbound, workspace.tenant, workspace.id(NAME)), gone
    )


@dataclass(frozen=True, slots=True)
class TenantCall:
    """One method called by a tenant about the rows of another.

    Attributes:
        name: repository and method.
        invoke: gets repositories, the calling tenant and the one_of_each of the other one.
        answer: what the caller gets, or the error, when the rows belong to another tenant.
    """

    name: str
    invoke: Callable[[SchedulerSession, str, StoredExamples], object]
    answer: object


def derived_calls(*, of_one_tenant: bool) -> Iterator[TenantCall]:
    """Yield the look-ups and lists of every repository; those without a tenant see all of them."""
    for item in SCHEDULER_EXAMPLES.examples:
        for lookup in item.lookups:
            if lookup.method.names_tenant is of_one_tenant:
                yield lookup_call(item, lookup)
        for listed in item.lists:
            if listed.method.names_tenant is of_one_tenant:
                yield list_call(item, listed)


def lookup_call(item: Example[SchedulerSession], lookup: Lookup) -> TenantCall:
    """Return a look-up of the row of the one_of_each."""
    return TenantCall(
        f"{item.repository}.{lookup.method.name}",
        lambda s, t, h: lookup(getattr(s, item.repository), t, h.value(item.entity)),
        NotFoundError if lookup.required else None,
    )


def list_call(item: Example[SchedulerSession], listed: ListMethod) -> TenantCall:
    """Return a list that would show the row of the one_of_each to its owner."""

    def invoke(session: SchedulerSession, tenant: str, one_of_each: StoredExamples) -> object:
        try:
            return tuple(listed(getattr(session, item.repository), tenant, one_of_each.value(item.entity)))
        except DocumentDecodeError:
            # A list over all tenants meets the rows that other tests have broken.
            return DocumentDecodeError

    return TenantCall(f"{item.repository}.{listed.method.name}", invoke, ())


def calls_of_the_system() -> Iterator[TenantCall]:
    """Yield what else the repositories do that only system scope reaches."""
    for item in SCHEDULER_EXAMPLES.of_the_system:
        derived = {call.method.name for call in item.lookups} | {call.method.name for call in item.lists}
        for method in methods_of(item.protocol):
            if method.name not in derived:
                yield TenantCall(f"{item.repository}.{method.name}", partial(call_aside, item, method), None)


def call_aside(
    item: Example[SchedulerSession],
    method: Method,
    session: SchedulerSession,
    tenant: str,
    one_of_each: StoredExamples,
) -> object:
    """Call a method about a row that no one_of_each has, and an instant before all of them."""
    del one_of_each
    model = item.small(tenant, f"aside@{tenant}")
    fixed: dict[str, object] = {"datetime": at().replace(year=2), type(model).__name__: model}
    value = item.value(tenant, model)
    names = dict(zip(method.positional, fields_of(item.entity, method), strict=True))
    arguments = [
        fixed[kind] if kind in fixed else value(names[name])
        for name, kind in zip(method.positional, method.kinds, strict=True)
    ]
    return method.call(getattr(session, item.repository), tenant, arguments)


TENANT_CALLS: Final = (
    *derived_calls(of_one_tenant=True),
    TenantCall("schedules.get", lambda s, t, h: s.schedules.get(t, h.gone.id, include_deleted=True), None),
    TenantCall("schedules.get_deletion", lambda s, t, h: s.schedules.get_deletion(t, h.gone.id), None),
    TenantCall(
        "schedules.upsert", lambda s, t, h: s.schedules.upsert(h.schedule.evolve(tenant_id=t)), DuplicateError
    ),
    TenantCall(
        "schedules.upsert", lambda s, t, h: s.schedules.upsert(h.gone.evolve(tenant_id=t)), DuplicateError
    ),
    TenantCall(
        "schedules.soft_delete",
        lambda s, t, h: s.schedules.soft_delete(t, h.schedule.id, "x", at(9)),
        answer=False,
    ),
    TenantCall(
        "schedules.restore", lambda s, t, h: s.schedules.restore(t, h.gone.id, "x", at(9)), answer=False
    ),
    TenantCall(
        "triggers.recalculate", lambda s, t, h: s.triggers.recalculate(t, h.schedule.id, at()), NotFoundError
    ),
    TenantCall(
        "runs.create", lambda s, t, h: s.runs.create(planned(h.run.evolve(tenant_id=t))), DuplicateError
    ),
    TenantCall("runs.update", lambda s, t, h: s.runs.update(h.run.evolve(tenant_id=t)), answer=False),
    TenantCall("runs.retry", lambda s, t, h: s.runs.retry(t, h.run.id, "x", at()), NotFoundError),
    TenantCall("runs.purge_finished", lambda s, t, _: s.runs.purge_finished(at(9999), tenant_id=t), 0),
    TenantCall(
        "impact_snapshots.upsert", lambda s, t, h: s.impact_snapshots.upsert(t, h.snapshot), DuplicateError
    ),
    TenantCall(
        "impact_snapshots.get_latest_by_selector",
        lambda s, t, _: s.impact_snapshots.get_latest_by_selector(t, make_selector()),
        None,
    ),
    TenantCall(
        "impact_snapshots.delete",
        lambda s, t, h: s.impact_snapshots.delete(t, h.snapshot.snapshot_id or ""),
        answer=False,
    ),
    TenantCall(
        "impact_snapshots.purge_generated",
        lambda s, t, _: s.impact_snapshots.purge_generated(at(9999), tenant_id=t),
        0,
    ),
    TenantCall("audit.append", lambda s, t, h: s.audit.append(h.record.evolve(tenant_id=t)), DuplicateError),
    TenantCall(
        "run_summaries.upsert",
        lambda s, t, h: s.run_summaries.upsert(make_run_summary(t, h.schedule.id)).recent,
        (),
    ),
    TenantCall(
        "run_summaries.modify",
        lambda s, t, h: s.run_summaries.modify(t, h.schedule.id, lambda old: old),
        None,
    ),
    TenantCall(
        "run_summary_service.project",
        lambda s, t, h: count_of(
            s.run_summary_service.project(planned(h.run.evolve(tenant_id=t, id="mine")))
        ),
        1,
    ),
    TenantCall("run_summary_service.get", lambda s, t, h: s.run_summary_service.get(t, h.schedule.id), None),
    TenantCall("run_summary_service.list", lambda s, t, _: tuple(s.run_summary_service.list(t)), ()),
    TenantCall(
        "run_summary_service.rebuild", lambda s, t, h: s.run_summary_service.rebuild(t, h.schedule.id), None
    ),
    TenantCall(
        "audit_service.write",
        lambda s, t, h: s.audit_service.write(make_audit_event(t, id=h.record.id)),
        DuplicateError,
    ),
)
# What sees all tenants; nobody is asked for what it answers.
SYSTEM_CALLS: Final = (
    *derived_calls(of_one_tenant=False),
    TenantCall("schedules.get_due_schedules", lambda s, _, __: s.schedules.get_due_schedules(at(-9999)), ()),
    TenantCall("runs.purge_finished", lambda s, _, __: s.runs.purge_finished(at().replace(year=2)), 0),
    TenantCall(
        "impact_snapshots.purge_generated",
        lambda s, _, __: s.impact_snapshots.purge_generated(at().replace(year=2)),
        0,
    ),
    *calls_of_the_system(),
)


def planned(run: Run) -> Run:
    """Return the run as it was planned."""
    return moved(run, RunState.PLANNING)


def count_of(summary: RunSummary | None) -> int:
    """Return the number of runs in a window."""
    return 0 if summary is None else summary.counters.total
