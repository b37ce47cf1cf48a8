"""The fixed set of lists of the scheduler that both sides must answer alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access.paging import Page, encode_token
from twinstore.catalog.conditions import Equals, IsNull, IsPresent
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import TwinstoreError
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.models.json_text import format_timestamp
from twinstore.plugins.checks import (
    Cutoffs,
    ListedRow,
    ListQuery,
    ModuleChecks,
    NeededRows,
    StoredList,
    paged,
    single_page,
)
from twinstore.scheduler import graph_job_queries, queries
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.catalog import (
    AUDIT,
    EXECUTION_LOGS,
    GRAPH_JOB_EVENTS,
    GRAPH_JOBS,
    IMPACT_SNAPSHOTS,
    POLICY_JOBS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import PolicyRunJobStatus, RunState
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.scheduler.storage import SchedulerStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.execution_logs import ExecutionLogEntry
    from twinstore.scheduler.graph_jobs import GraphJob, GraphJobEvent
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.triggers import Trigger
T = TypeVar("T")
TRIGGERS_OF_SCHEDULES: Final = NeededRows(
    kind="no_trigger",
    entity=SCHEDULES,
    where=(Equals("enabled", value=True), IsNull("deletedAt")),
    other=TRIGGERS,
    field="scheduleId",
    consequence="would never fire",
    remedy="call triggers.recalculate on the target for each of them after the switch",
)
SchedulerList = ListQuery[SchedulerStorage]
# The default limit of both lists, which is what a service asks for.
NEXT: Final = 100
# Two ids show that a filter filters; more would only repeat the question.
FILTER_IDS: Final = 2
FIRST_INSTANT: Final = datetime(1, 1, 1, tzinfo=UTC)
LAST_INSTANT: Final = datetime(9999, 12, 31, tzinfo=UTC)
OPEN_JOBS: Final = (
    PolicyRunJobStatus.PENDING,
    PolicyRunJobStatus.DISPATCHING,
    PolicyRunJobStatus.SUBMITTED,
)
OPEN_STATES: Final = (RunState.PLANNING, RunState.QUEUED, RunState.RUNNING)


class SchedulerLists(ModuleChecks[SchedulerStorage]):
    """Builds the queries for one tenant, and those over all tenants."""

    def __init__(self, cutoffs: Cutoffs, page: int) -> None:
        """Take, by entity, the instant up to which rows are expired, and the rows per page."""
        self._cutoffs = cutoffs
        self._page = page

    @override
    def of_tenant(self, tenant: str, source: SchedulerStorage) -> Iterator[SchedulerList]:
        """Return the lists of a tenant; some filter by ids that the source shows first."""
        yield from self._definitions(tenant)
        yield from self._runs(tenant)
        yield from self._runs_of(tenant, _first_schedules(source, tenant))
        yield from self._records(tenant)
        yield from self._jobs(tenant)
        yield self._graph_jobs(tenant)
        yield from (self._events_of(tenant, job) for job in _first_graph_jobs(source, tenant))
        runs = _first_runs(source, tenant)
        yield from self._snapshots_of(tenant, runs)
        yield from (self._log_of(tenant, run) for run in runs)
        yield self._next_fires(tenant)

    @override
    def over_all(self) -> Iterator[SchedulerList]:
        yield from map(self._in_state, RunState)
        yield ListQuery(
            "due schedules, all tenants",
            # At the end of time every enabled schedule is due, so the order is compared and not the clock.
            lambda side, _: single_page(
                side.schedules.get_due_schedules(LAST_INSTANT, limit=NEXT), schedule_row
            ),
            ("schedules", "triggers"),
        )

    def _in_state(self, state: RunState) -> SchedulerList:
        return ListQuery(
            f"runs in state {state}, all tenants",
            lambda side, token: self._run_rows(
                side.runs.list_by_state(state, limit=self._page, page_token=token)
            ),
            ("runs",),
            stored=StoredList(RUNS, queries.runs_by_state(state, self._page, None), self._run_row),
        )

    def _next_fires(self, tenant: str) -> SchedulerList:
        """Return the list of the first triggers of a tenant that have a next instant."""
        # Triggers without a next instant come first, so the list starts after them, by a separate token.
        every = queries.triggers(Tenant(tenant), NEXT, None)
        start = encode_token("triggers", every.fingerprint, (FIRST_INSTANT, ""))
        return ListQuery(
            f"next fires of {tenant}",
            lambda side, _: single_page(
                side.triggers.list(tenant, limit=NEXT, page_token=start), trigger_row
            ),
            ("triggers",),
            due=True,
            stored=StoredList(TRIGGERS, replace(every, where=(IsPresent("nextFireAt"),)), trigger_row),
        )

    def _definitions(self, tenant: str) -> Iterator[SchedulerList]:
        for name, options in SCHEDULE_FILTERS.items():
            yield _schedule_list(f"{name} of {tenant}", tenant, replace(options, limit=self._page))
        yield ListQuery(
            f"triggers of {tenant}",
            lambda side, token: paged(
                side.triggers.list(tenant, limit=self._page, page_token=token), trigger_row
            ),
            ("triggers",),
            stored=StoredList(TRIGGERS, queries.triggers(Tenant(tenant), self._page, None), trigger_row),
        )

    def _runs(self, tenant: str) -> Iterator[SchedulerList]:
        yield self._run_list(f"runs of {tenant}, newest first", tenant, RunQueryOptions())
        yield self._run_list(f"runs of {tenant}, oldest first", tenant, RunQueryOptions(ascending=True))
        yield self._run_list(f"open runs of {tenant}", tenant, RunQueryOptions(states=OPEN_STATES))
        yield ListQuery(
            f"pending runs of {tenant}",
            lambda side, token: self._run_rows(
                side.runs.get_pending_runs(tenant, limit=self._page, page_token=token)
            ),
            ("runs",),
            stored=StoredList(RUNS, queries.pending_runs(Tenant(tenant), self._page, None), self._run_row),
        )

    def _runs_of(self, tenant: str, schedules: Iterable[str]) -> Iterator[SchedulerList]:
        for schedule in schedules:
            options = RunQueryOptions(schedule_id=schedule)
            yield self._run_list(f"runs of schedule {schedule} of {tenant}", tenant, options)

    def _run_list(self, name: str, tenant: str, options: RunQueryOptions) -> SchedulerList:
        def fetch(side: SchedulerStorage, token: str | None) -> Page[ListedRow | None]:
            return self._run_rows(
                side.runs.list(tenant, replace(options, limit=self._page, page_token=token))
            )

        return ListQuery(
            name,
            fetch,
            ("runs",),
            stored=StoredList(RUNS, queries.runs(Tenant(tenant), options), self._run_row),
        )

    def _records(self, tenant: str) -> Iterator[SchedulerList]:
        yield ListQuery(
            f"audit of {tenant}",
            lambda side, token: paged(
                side.audit.list(tenant, AuditQueryOptions(limit=self._page, page_token=token)), audit_row
            ),
            ("audit",),
            stored=StoredList(AUDIT, queries.audit(Tenant(tenant), None), audit_row),
        )
        yield ListQuery(
            f"run summaries of {tenant}",
            lambda side, token: paged(
                side.run_summaries.list(tenant, limit=self._page, page_token=token), summary_row
            ),
            ("run_summaries",),
            stored=StoredList(
                RUN_SUMMARIES, queries.run_summaries(Tenant(tenant), self._page, None), summary_row
            ),
        )
        yield ListQuery(
            f"impact snapshots of {tenant}",
            lambda side, token: self._snapshot_rows(
                side.impact_snapshots.list(tenant, limit=self._page, page_token=token)
            ),
            ("impact_snapshots",),
            stored=self._stored_snapshots(tenant),
        )

    def _jobs(self, tenant: str) -> Iterator[SchedulerList]:
        for statuses in (None, OPEN_JOBS):
            name = "policy jobs" if statuses is None else "open policy jobs"
            yield self._job_list(f"{name} of {tenant}", tenant, PolicyJobQueryOptions(statuses=statuses))

    def _job_list(self, name: str, tenant: str, options: PolicyJobQueryOptions) -> SchedulerList:
        def fetch(side: SchedulerStorage, token: str | None) -> Page[ListedRow | None]:
            asked = replace(options, limit=self._page, page_token=token)
            return paged(side.policy_jobs.list(tenant, asked), policy_job_row)

        return ListQuery(
            name,
            fetch,
            ("policy_jobs",),
            stored=StoredList(POLICY_JOBS, queries.policy_jobs(Tenant(tenant), options), policy_job_row),
        )

    def _graph_jobs(self, tenant: str) -> SchedulerList:
        def fetch(side: SchedulerStorage, token: str | None) -> Page[ListedRow | None]:
            return paged(side.graph_jobs.list_jobs(tenant, limit=self._page, page_token=token), graph_job_row)

        query = graph_job_queries.graph_jobs(Tenant(tenant), None, None, self._page, None)
        stored = StoredList(GRAPH_JOBS, query, graph_job_row)
        return ListQuery(f"graph jobs of {tenant}", fetch, ("graph_jobs",), stored=stored)

    def _events_of(self, tenant: str, job: GraphJob) -> SchedulerList:
        def fetch(side: SchedulerStorage, token: str | None) -> Page[ListedRow | None]:
            return paged(
                side.graph_jobs.list_events(tenant, job.id, limit=self._page, page_token=token), event_row
            )

        query = graph_job_queries.graph_job_events(Tenant(tenant), job.uuid, self._page, None)
        stored = StoredList(GRAPH_JOB_EVENTS, query, event_row)
        return ListQuery(
            f"events of graph job {job.id} of {tenant}", fetch, ("graph_job_events",), stored=stored
        )

    def _snapshots_of(self, tenant: str, runs: Iterable[str]) -> Iterator[SchedulerList]:
        for run in runs:
            yield self._snapshots_of_run(tenant, run)

    def _snapshots_of_run(self, tenant: str, run: str) -> SchedulerList:
        return ListQuery(
            f"impact snapshots of run {run} of {tenant}",
            lambda side, token: self._snapshot_rows(
                side.impact_snapshots.list_by_run(tenant, run, limit=self._page, page_token=token)
            ),
            ("impact_snapshots",),
            stored=self._stored_snapshots(tenant, run),
        )

    def _stored_snapshots(self, tenant: str, run: str | None = None) -> StoredList[ImpactSet]:
        query = queries.snapshots(Tenant(tenant), self._page, None, run)
        return StoredList(IMPACT_SNAPSHOTS, query, self._snapshot_row)

    def _log_of(self, tenant: str, run: str) -> SchedulerList:
        def fetch(side: SchedulerStorage, token: str | None) -> Page[ListedRow | None]:
            after = int(token or 0)
            found = side.execution_logs.list(tenant, run, after_sequence=after, limit=self._page)
            last = found[-1].sequence if len(found) == self._page else None
            return paged(Page(found, None if last is None else str(last)), self._entry_row)

        query = queries.execution_log(Tenant(tenant), run, 0, self._page)
        return ListQuery(
            f"log of run {run} of {tenant}",
            fetch,
            ("execution_logs",),
            stored=StoredList(EXECUTION_LOGS, query, self._entry_row),
        )

    def _entry_row(self, entry: ExecutionLogEntry) -> ListedRow | None:
        limit = self._cutoffs.get("execution_logs")
        expired = limit is not None and entry.logged_at <= limit
        return None if expired else (entry.run_id, str(entry.sequence))

    def _run_rows(self, page: Page[Run]) -> Page[ListedRow | None]:
        return paged(page, self._run_row)

    def _run_row(self, run: Run) -> ListedRow | None:
        limit = self._cutoffs.get("runs")
        # Retention may have removed it on one side already, which does not count as a difference.
        expired = limit is not None and run.finished_at is not None and run.finished_at <= limit
        return None if expired else (run.id,)

    def _snapshot_rows(self, page: Page[ImpactSet]) -> Page[ListedRow | None]:
        return paged(page, self._snapshot_row)

    def _snapshot_row(self, snapshot: ImpactSet) -> ListedRow | None:
        limit = self._cutoffs.get("impact_snapshots")
        expired = limit is not None and snapshot.generated_at <= limit
        return None if expired else (snapshot.snapshot_id or CanonicalJsonSerializer.digest(snapshot),)


SCHEDULE_FILTERS: Final[Mapping[str, ScheduleQueryOptions]] = {
    "enabled schedules": ScheduleQueryOptions(include_disabled=False),
    "schedules": ScheduleQueryOptions(),
    "schedules with deleted ones": ScheduleQueryOptions(include_deleted=True),
}


def _schedule_list(name: str, tenant: str, options: ScheduleQueryOptions) -> SchedulerList:
    def fetch(side: SchedulerStorage, token: str | None) -> Page[ListedRow | None]:
        return paged(side.schedules.list(tenant, replace(options, page_token=token)), schedule_row)

    query = queries.schedules(Tenant(tenant), options)
    return ListQuery(name, fetch, ("schedules",), stored=StoredList(SCHEDULES, query, schedule_row))


def schedule_row(schedule: Schedule) -> ListedRow:
    """Identify a schedule."""
    return (schedule.id,)


def trigger_row(trigger: Trigger) -> ListedRow:
    """Identify a trigger and its instant."""
    instant = format_timestamp(trigger.next_fire_at) if trigger.next_fire_at else "never"
    return (trigger.id, instant)


def audit_row(record: AuditRecord) -> ListedRow:
    """Identify an audit record."""
    return (record.id,)


def summary_row(summary: RunSummary) -> ListedRow:
    """Identify a run summary."""
    return (summary.schedule_id,)


def policy_job_row(job: PolicyRunJob) -> ListedRow:
    """Identify a policy job and its status."""
    return (job.id, job.status.value)


def graph_job_row(job: GraphJob) -> ListedRow:
    """Identify a graph job and its status."""
    return (job.id, job.status.value)


def event_row(event: GraphJobEvent) -> ListedRow:
    """Identify an event of a graph job."""
    return (event.event_id,)


def _first_schedules(source: SchedulerStorage, tenant: str) -> tuple[str, ...]:
    options = ScheduleQueryOptions(limit=FILTER_IDS)
    return tuple(item.id for item in _or_none(lambda: source.schedules.list(tenant, options)))


def _first_runs(source: SchedulerStorage, tenant: str) -> tuple[str, ...]:
    options = RunQueryOptions(limit=FILTER_IDS)
    return tuple(item.id for item in _or_none(lambda: source.runs.list(tenant, options)))


def _first_graph_jobs(source: SchedulerStorage, tenant: str) -> Sequence[GraphJob]:
    return _or_none(lambda: source.graph_jobs.list_jobs(tenant, limit=FILTER_IDS))


def _or_none(fetch: Callable[[], Sequence[T]]) -> Sequence[T]:
    try:
        return fetch()
    except TwinstoreError:
        # The list itself is among the queries and is judged there.
        return ()
