"""The lists of the task runner as data: filter, order and limits in one place for every driver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, build_query
from twinstore.access.scope import instant_argument, options_argument, whole_argument
from twinstore.catalog.conditions import After, AtLeast, Before, Condition, Equals
from twinstore.taskrunner.pack_runs import PackRunQueryOptions

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.catalog.tenancy import Tenants

# Every order ends with the key: only a total order pages without gaps.
NEWEST_RUNS: Final = (SortKey("updatedAt", descending=True, time=True), SortKey("runId"))
IN_ORDER: Final = (SortKey("sequence", number=True),)
LATEST_FIRST: Final = (SortKey("sequence", descending=True, number=True),)
BY_TIME: Final = (SortKey("timestamp", time=True), SortKey("sequence", number=True))
MAX_ENTRIES: Final = 5000
# Outputs and approvals of a run are read whole, in parts of so many rows.
PART: Final = 1000


def pack_runs(scope: Tenants, options: PackRunQueryOptions | None) -> Query:
    """Return the query of ``PackRunStateStore.list``."""
    options = options_argument(options, PackRunQueryOptions)
    where: list[Condition] = []
    if options.updated_after is not None:
        where.append(After("updatedAt", instant_argument(options.updated_after, "updated_after")))
    if options.updated_before is not None:
        where.append(Before("updatedAt", instant_argument(options.updated_before, "updated_before")))
    return build_query(
        "pack_runs",
        scope=scope,
        where=where,
        order=NEWEST_RUNS,
        limit=options.limit,
        maximum=200,
        page_token=options.page_token,
    )


def log_of_run(scope: Tenants, run_id: str, after_sequence: int, limit: int) -> Query:
    """Return the query of ``PackRunLogStore.read``."""
    after = After("sequence", whole_argument(after_sequence, "after_sequence"))
    return of_run("pack_run_logs", scope, run_id, IN_ORDER, limit, after)


def window_of_log(scope: Tenants, run_id: str, start: datetime, end: datetime, limit: int) -> Query:
    """Return the query of ``PackRunLogStore.read_window``."""
    since = AtLeast("timestamp", instant_argument(start, "start"))
    until = Before("timestamp", instant_argument(end, "end"))
    return of_run("pack_run_logs", scope, run_id, BY_TIME, limit, since, until)


def last_entry(scope: Tenants, run_id: str) -> Query:
    """Return the query of the entry of a run with the highest number."""
    return of_run("pack_run_logs", scope, run_id, LATEST_FIRST, 1)


def artifacts(scope: Tenants, run_id: str) -> Query:
    """Return the query of a part of ``PackRunArtifactUploader.list``."""
    return of_run("pack_artifacts", scope, run_id, (SortKey("name"),), PART)


def approvals(scope: Tenants, run_id: str) -> Query:
    """Return the query of a part of ``PackRunApprovalStore.list``."""
    return of_run("pack_run_approvals", scope, run_id, (SortKey("approvalId"),), PART)


def of_run(
    entity: str,
    scope: Tenants,
    run_id: str,
    order: tuple[SortKey, ...],
    limit: int,
    *where: Condition,
) -> Query:
    """Return a query of the rows below one run."""
    query = build_query(
        entity,
        scope=scope,
        where=(Equals("runId", run_id), *where),
        order=order,
        limit=limit,
        maximum=MAX_ENTRIES,
    )
    # They are about one run, also in system scope: what is read of it must be whole, or be refused.
    return replace(query, skips_undecodable=False)
