"""Which lists of several values are read branch by branch, and as what."""

from __future__ import annotations

from datetime import timedelta

import pytest

from twinstore.catalog.tenancy import Tenant
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import POLICY_JOBS, RUNS, WORKERS
from twinstore.scheduler.enums import PolicyRunJobStatus, RunState
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.workers import WorkerStatus
from twinstore.testing.instants import START
from twinstore_postgres.access.queries import branches_of, compile_claim, compile_query
from twinstore_postgres.mapping.table import table_of

ALIVE = queries.dead_workers(START, timedelta(minutes=5), 7)
SCOPE = Tenant("t")


def test_each_status_of_silent_workers_is_a_branch() -> None:
    first, second = branches_of(WORKERS, ALIVE)
    assert {str(item) for item in first.where} ^ {str(item) for item in second.where} == {
        "Equals(field='status', value='active')",
        "Equals(field='status', value='draining')",
    }
    assert (first.order, first.limit, first.scope) == (ALIVE.order, 7, ALIVE.scope)


@pytest.mark.parametrize(
    ("compiled", "unions"), [(compile_query, 1), (compile_claim, 0)], ids=["a page", "a claim"]
)
def test_every_parameter_has_its_place(compiled: type, unions: int) -> None:
    statement, values = compiled(ALIVE, table_of(WORKERS))
    assert statement.count(b"%s") == len(values)
    # A claim in branches would choose its rows before it sees which of them others have locked.
    assert statement.count(b" UNION ALL ") == unions


def test_one_status_needs_no_branch() -> None:
    assert branches_of(WORKERS, queries.workers([WorkerStatus.DEAD], None, 5, None)) == ()


def test_workers_of_one_tenant_come_from_the_index_of_their_tenant() -> None:
    query = queries.workers([WorkerStatus.DEAD, WorkerStatus.ACTIVE], "t", 5, None)
    assert branches_of(WORKERS, query) == ()


def test_an_index_that_holds_just_these_rows_is_read_as_it_is() -> None:
    assert branches_of(RUNS, queries.pending_runs(SCOPE, 5, None)) == ()


def test_without_an_index_by_the_field_there_are_no_branches() -> None:
    options = RunQueryOptions(states=[RunState.RUNNING, RunState.ERROR])
    assert branches_of(RUNS, queries.runs(SCOPE, options)) == ()


def test_branches_spare_the_rows_of_all_other_values() -> None:
    statuses = [PolicyRunJobStatus.PENDING, PolicyRunJobStatus.FAILED]
    query = queries.policy_jobs(SCOPE, PolicyJobQueryOptions(statuses=statuses))
    assert len(branches_of(POLICY_JOBS, query)) == 2  # one for each status


def test_a_branch_for_each_status_would_not_help_the_jobs_of_one_policy() -> None:
    statuses = [PolicyRunJobStatus.PENDING, PolicyRunJobStatus.FAILED]
    options = PolicyJobQueryOptions(statuses=statuses, policy_id="p")
    assert branches_of(POLICY_JOBS, queries.policy_jobs(SCOPE, options)) == ()
