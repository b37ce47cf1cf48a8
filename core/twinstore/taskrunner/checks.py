"""The fixed set of lists of the task runner that both sides must answer alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.access.paging import Page
from twinstore.catalog.tenancy import ALL_TENANTS, owner_of
from twinstore.errors import TwinstoreError
from twinstore.models.json_text import format_timestamp
from twinstore.plugins.checks import (
    Cutoffs,
    ListedRow,
    ListQuery,
    ModuleChecks,
    StoredList,
    paged,
    single_page,
)
from twinstore.taskrunner import queries
from twinstore.taskrunner.catalog import PACK_ARTIFACTS, PACK_RUN_APPROVALS, PACK_RUN_LOGS, PACK_RUNS
from twinstore.taskrunner.pack_runs import PackRunQueryOptions
from twinstore.taskrunner.storage import TaskRunnerStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.tenancy import AllTenants, Tenants
    from twinstore.taskrunner.pack_artifacts import PackRunArtifact
    from twinstore.taskrunner.pack_run_approvals import PackRunApproval
    from twinstore.taskrunner.pack_run_logs import PackRunLogEntry
    from twinstore.taskrunner.pack_runs import PackRunState

__all__ = ["TaskRunnerLists"]

TaskRunnerList = ListQuery[TaskRunnerStorage]
# Two runs show that what belongs to a run is in order; more would only repeat the question.
CHECKED_RUNS: Final = 2
NEWEST: Final = PackRunQueryOptions(limit=CHECKED_RUNS)
WITHOUT_TENANT: Final = "no tenant"


class TaskRunnerLists(ModuleChecks[TaskRunnerStorage]):
    """Builds the queries for one tenant, and those over all tenants and over no tenant."""

    def __init__(self, cutoffs: Cutoffs, page: int) -> None:
        """Take, by entity, the instant up to which rows are expired, and the rows per page."""
        self._expired = cutoffs.get(PACK_RUN_LOGS.name)
        self._page = page

    @override
    def of_tenant(self, tenant: str, source: TaskRunnerStorage) -> Iterator[TaskRunnerList]:
        """Return the lists of a tenant; some are about the runs that the source shows first."""
        yield self._runs(f"pack runs of {tenant}", tenant, owner_of(tenant))
        for run in _newest(source, tenant):
            yield self._log(run, tenant)
            yield self._window(run, tenant)
            yield self._artifacts(run, tenant)
            yield self._approvals(run, tenant)

    @override
    def over_all(self) -> Iterator[TaskRunnerList]:
        """Return the lists in system scope, and those of the runs without tenant."""
        yield self._runs("pack runs of all tenants", ALL_TENANTS, ALL_TENANTS)
        if_any = StoredList(PACK_RUNS, queries.pack_runs(owner_of(None), self._options(None)), run_row)
        yield ListQuery(
            f"pack runs of {WITHOUT_TENANT}", self._runs_without_tenant, (PACK_RUNS.name,), stored=if_any
        )
        # Each by itself, because a verification may be about one entity, before the others are copied.
        yield self._parts_without_tenant("logs", PACK_RUN_LOGS, self._entries_of)
        yield self._parts_without_tenant("artifacts", PACK_ARTIFACTS, artifacts_of)
        yield self._parts_without_tenant("approvals", PACK_RUN_APPROVALS, approvals_of)

    def _options(self, token: str | None) -> PackRunQueryOptions:
        return PackRunQueryOptions(limit=self._page, page_token=token)

    def _runs(self, name: str, tenant: str | AllTenants, scope: Tenants) -> TaskRunnerList:
        return ListQuery(
            name,
            lambda side, token: paged(side.pack_runs.list(self._options(token), tenant_id=tenant), run_row),
            (PACK_RUNS.name,),
            stored=StoredList(PACK_RUNS, queries.pack_runs(scope, self._options(None)), run_row),
        )

    def _runs_without_tenant(self, side: TaskRunnerStorage, token: str | None) -> Page[ListedRow | None]:
        if not side.admits_no_tenant:
            # If every call must name a tenant, no caller can read them, on either side.
            return Page(())
        return paged(side.pack_runs.list(self._options(token)), run_row)

    def _parts_without_tenant(
        self, noun: str, entity: Entity, parts: Callable[[TaskRunnerStorage, str], Iterable[ListedRow | None]]
    ) -> TaskRunnerList:
        def fetch(side: TaskRunnerStorage, token: str | None) -> Page[ListedRow | None]:
            del token
            newest = side.pack_runs.list(NEWEST) if side.admits_no_tenant else ()
            return Page(tuple(row for run in newest for row in parts(side, run.run_id)))

        return ListQuery(f"{noun} of the newest pack runs of {WITHOUT_TENANT}", fetch, (entity.name,))

    def _entries_of(self, side: TaskRunnerStorage, run: str) -> Iterable[ListedRow | None]:
        return map(self._entry_row, side.pack_run_logs.read(run, limit=self._page))

    def _log(self, run: str, tenant: str) -> TaskRunnerList:
        def fetch(side: TaskRunnerStorage, token: str | None) -> Page[ListedRow | None]:
            after = int(token or 0)
            found = side.pack_run_logs.read(run, after_sequence=after, limit=self._page, tenant_id=tenant)
            last = str(found[-1].sequence) if len(found) == self._page else None
            return paged(Page(found, last), self._entry_row)

        query = queries.log_of_run(owner_of(tenant), run, 0, self._page)
        return ListQuery(
            f"log of pack run {run} of {tenant}",
            fetch,
            (PACK_RUN_LOGS.name,),
            stored=StoredList(PACK_RUN_LOGS, query, self._entry_row),
        )

    def _window(self, run: str, tenant: str) -> TaskRunnerList:
        def fetch(side: TaskRunnerStorage, token: str | None) -> Page[ListedRow | None]:
            del token
            first = side.pack_run_logs.read(run, limit=1, tenant_id=tenant)
            if not first:
                return Page(())
            # From the first entry on; its instant is the same on both sides, or the rows differ.
            start = first[0].timestamp
            found = side.pack_run_logs.read_window(
                run, start, start.replace(year=9999), limit=self._page, tenant_id=tenant
            )
            return single_page(found, self._entry_row)

        return ListQuery(f"log of pack run {run} of {tenant} by time", fetch, (PACK_RUN_LOGS.name,))

    def _artifacts(self, run: str, tenant: str) -> TaskRunnerList:
        return ListQuery(
            f"artifacts of pack run {run} of {tenant}",
            lambda side, _: single_page(side.pack_artifacts.list(run, tenant_id=tenant), artifact_row),
            (PACK_ARTIFACTS.name,),
            stored=StoredList(PACK_ARTIFACTS, queries.artifacts(owner_of(tenant), run), artifact_row),
        )

    def _approvals(self, run: str, tenant: str) -> TaskRunnerList:
        return ListQuery(
            f"approvals of pack run {run} of {tenant}",
            lambda side, _: single_page(side.pack_run_approvals.list(run, tenant_id=tenant), approval_row),
            (PACK_RUN_APPROVALS.name,),
            stored=StoredList(PACK_RUN_APPROVALS, queries.approvals(owner_of(tenant), run), approval_row),
        )

    def _entry_row(self, entry: PackRunLogEntry) -> ListedRow | None:
        expired = self._expired is not None and entry.timestamp <= self._expired
        return None if expired else (entry.run_id, str(entry.sequence), format_timestamp(entry.timestamp))


def run_row(run: PackRunState) -> ListedRow:
    """Return what identifies a run in its list."""
    return (run.run_id, format_timestamp(run.updated_at))


def artifact_row(artifact: PackRunArtifact) -> ListedRow:
    """Return what identifies a record in its list."""
    return (artifact.run_id, artifact.name)


def approval_row(approval: PackRunApproval) -> ListedRow:
    """Return what identifies an approval in its list."""
    return (approval.run_id, approval.approval_id)


def artifacts_of(side: TaskRunnerStorage, run: str) -> Iterable[ListedRow]:
    """Return what identifies the records of a run that no tenant owns."""
    return map(artifact_row, side.pack_artifacts.list(run))


def approvals_of(side: TaskRunnerStorage, run: str) -> Iterable[ListedRow]:
    """Return what identifies the approvals of such a run."""
    return map(approval_row, side.pack_run_approvals.list(run))


def _newest(source: TaskRunnerStorage, tenant: str) -> tuple[str, ...]:
    try:
        return tuple(run.run_id for run in source.pack_runs.list(NEWEST, tenant_id=tenant))
    except TwinstoreError:
        # The list itself is among the queries and is judged there.
        return ()
