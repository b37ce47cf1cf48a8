"""The SQL of conditions and orders, and which lists of several values are read branch by branch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from twinstore.access.paging import SortKey
from twinstore.access.query import Query
from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Tenant
from twinstore.errors import ValidationError
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import POLICY_JOBS, RUNS, SCHEDULES, TRIGGERS, WORKERS
from twinstore.scheduler.enums import PolicyRunJobStatus, RunState
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.workers import WorkerStatus
from twinstore.testing.instants import START
from twinstore_postgres.access.queries import branches_of, compile_claim, compile_query
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from twinstore.catalog.tenancy import Tenants

RUNS_TABLE, SCHEDULES_TABLE, TRIGGERS_TABLE = map(table_of, (RUNS, SCHEDULES, TRIGGERS))
SCOPE = Tenant("t")
NOW = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
HOSTILE = "x'; DROP TABLE scheduler.runs; --"


def where(statement: bytes) -> str:
    return statement.decode().partition(" WHERE ")[2]


def test_values_are_parameters_never_text() -> None:
    statement, parameters = compile_query(
        queries.runs_by_schedule(Tenant(HOSTILE), HOSTILE, 5, None), RUNS_TABLE
    )
    assert "DROP" not in statement.decode()
    assert parameters == [HOSTILE, HOSTILE, 6]


@pytest.mark.parametrize("field", ["nothing", "row_version", 'id" OR true --'])
def test_an_unknown_name_is_refused(field: str) -> None:
    query = Query(entity="runs", scope=SCOPE, where=(Equals(field, "x"),), order=(SortKey("id"),), limit=1)
    with pytest.raises(ValidationError, match="has no field"):
        compile_query(query, RUNS_TABLE)


def test_states_are_written_out_so_that_the_partial_index_applies() -> None:
    statement, parameters = compile_query(queries.pending_runs(SCOPE, 10, None), RUNS_TABLE)
    assert '"state" IN (0, 1)' in statement.decode()
    assert parameters == ["t", 11]


def test_one_row_more_than_the_limit_is_fetched() -> None:
    _, parameters = compile_query(queries.runs(SCOPE, RunQueryOptions(limit=7)), RUNS_TABLE)
    assert parameters[-1] == 8


def test_every_condition_has_its_operator() -> None:
    query = Query(
        entity="schedules",
        scope=ALL_TENANTS,
        where=(
            IsNull("deletedAt"),
            Equals("enabled", value=True),
            Equals("enabled", value=False),
            OneOf("name", ("a", "b")),
            After("createdAt", NOW),
            Before("createdAt", NOW),
            AtMost("createdAt", NOW),
            AtLeast("createdAt", NOW),
            NotAfter("deletedAt", NOW),
            IsPresent("deletedBy"),
            Equals("mode", "content-refresh"),
        ),
        order=(SortKey("id"),),
        limit=1,
    )
    statement, parameters = compile_query(query, SCHEDULES_TABLE)
    assert where(statement) == (
        '"deleted_at" IS NULL AND "enabled" AND NOT "enabled" AND "name" = ANY(%s) AND "created_at" > %s'
        ' AND "created_at" < %s AND "created_at" <= %s AND "created_at" >= %s'
        ' AND ("deleted_at" > %s) IS NOT TRUE AND "deleted_by" IS NOT NULL'
        ' AND "mode" IN (1) ORDER BY "id" COLLATE "C" LIMIT %s'
    )
    assert parameters == [["a", "b"], NOW, NOW, NOW, NOW, NOW, 2]


def test_numbers_are_parameters_like_other_values() -> None:
    query = Query(
        entity="triggers",
        scope=SCOPE,
        where=(Equals("fireCount", 3), AtLeast("misfireCount", 0)),
        order=(SortKey("fireCount", number=True), SortKey("id")),
        limit=1,
        after=(7, "x"),
    )
    statement, parameters = compile_query(query, TRIGGERS_TABLE)
    assert '"fire_count" = %s AND "misfire_count" >= %s' in where(statement)
    assert parameters == ["t", 3, 0, 7, 7, "x", 2]


@pytest.mark.parametrize(
    ("scope", "condition"),
    [(SCOPE, '"tenant_id" = %s'), (NO_TENANT, '"tenant_id" IS NULL'), (ALL_TENANTS, "true")],
)
def test_a_scope_is_a_condition_of_its_own(scope: Tenants, condition: str) -> None:
    query = Query(entity="runs", scope=scope, where=(), order=(SortKey("id"),), limit=1)
    statement, _ = compile_query(query, RUNS_TABLE)
    assert where(statement) == f'{condition} ORDER BY "id" COLLATE "C" LIMIT %s'


NEXT_ORDER = (SortKey("nextFireAt", time=True, nullable=True), SortKey("id"))


def test_a_list_goes_on_strictly_after_its_key() -> None:
    query = Query(entity="triggers", scope=SCOPE, where=(), order=NEXT_ORDER, limit=1, after=(NOW, "x"))
    statement, parameters = compile_query(query, TRIGGERS_TABLE)
    assert where(statement) == (
        '"tenant_id" = %s AND ("next_fire_at" >= %s AND ("next_fire_at" > %s OR "id" COLLATE "C" > %s)) '
        'ORDER BY "next_fire_at" NULLS FIRST, "id" COLLATE "C" LIMIT %s'
    )
    assert parameters == ["t", NOW, NOW, "x", 2]


def test_a_list_goes_on_among_absent_values_and_then_with_the_others() -> None:
    query = Query(entity="triggers", scope=SCOPE, where=(), order=NEXT_ORDER, limit=1, after=(None, "x"))
    statement, parameters = compile_query(query, TRIGGERS_TABLE)
    absent, present = statement.decode().split(" UNION ALL ")
    assert absent.endswith(
        'WHERE "tenant_id" = %s AND "next_fire_at" IS NULL AND "id" COLLATE "C" > %s '
        'ORDER BY "id" COLLATE "C" LIMIT %s)'
    )
    assert where(present.encode()) == (
        '"tenant_id" = %s AND "next_fire_at" IS NOT NULL '
        'ORDER BY "next_fire_at" NULLS FIRST, "id" COLLATE "C" LIMIT %s)) AS "triggers" '
        'ORDER BY "next_fire_at" NULLS FIRST, "id" COLLATE "C" LIMIT %s'
    )
    assert parameters == ["t", "x", 2, "t", 2, 2]


def test_a_descending_list_goes_on_below_its_key() -> None:
    order = (SortKey("createdAt", descending=True, time=True), SortKey("id"))
    query = Query(entity="runs", scope=SCOPE, where=(), order=order, limit=1, after=(NOW, "x"))
    assert '("created_at" <= %s AND ("created_at" < %s OR "id" COLLATE "C" > %s))' in where(
        compile_query(query, RUNS_TABLE)[0]
    )


ALIVE = queries.dead_workers(START, timedelta(minutes=5), 7)


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
