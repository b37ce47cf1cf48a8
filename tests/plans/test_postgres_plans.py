"""The hot statements use their index, as the application role and under row-level security."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from twinstore.access import Row
from twinstore.paging import SortValue
from twinstore.query import expired_query
from twinstore.scheduler import queries
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULER,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.repositories.impact_snapshots import row_of
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.tenancy import ALL_TENANTS, Tenant
from twinstore.testing.scheduler.builders import make_impact_set, make_run_summary
from twinstore_postgres import statements
from twinstore_postgres.codec import Json, Unprepared
from twinstore_postgres.compile import compile_claim, compile_count, compile_query, compile_removal
from twinstore_postgres.derive import table_of
from twinstore_postgres.owners import ScopeKind
from twinstore_postgres.special.scheduler import with_schedules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import PostgresDatabase
    from twinstore.catalog import Entity
    from twinstore.query import Query
    from twinstore.tenancy import Tenants
    from twinstore_postgres.execution import Step

Connection = psycopg.Connection[Any]
Node = dict[str, Any]

START = datetime(2025, 1, 1, tzinfo=UTC)
ROWS = 6000
LATER = START + timedelta(seconds=ROWS // 2)
TENANT = "t3"
SCOPE = Tenant(TENANT)

# Ten tenants that take turns, four schedules each; most runs are finished, and rows are as wide as in life.
FILL = """
CREATE TEMPORARY TABLE numbers AS
SELECT i, 't' || i %% 10 AS tenant, 's' || i / 10 %% 4 AS schedule, 'r' || i / 10 %% 4 AS run,
       %(start)s::timestamptz + i * interval '1 second' AS at,
       jsonb_build_object('text', repeat(md5(i::text), 16)) AS wide
  FROM generate_series(1, 6000) i;
INSERT INTO scheduler.schedules
SELECT 's' || i, tenant, 'name ' || i, '0 * * * *', 'v', 'me', 'me', i %% 11 > 0, 'UTC', 0, wide, '{}', '{}',
       '{}', '{}', at, at, CASE WHEN i %% 22 = 0 THEN at END, CASE WHEN i %% 22 = 0 THEN 'me' END
  FROM numbers;
INSERT INTO scheduler.triggers
SELECT 'trg' || i, tenant, 's' || i, '0 * * * *' || repeat('x', 400), 'UTC', i %% 11 > 0,
       CASE WHEN i %% 11 > 0 THEN at END, NULL, NULL, 0, 0, at, at
  FROM numbers;
INSERT INTO scheduler.runs
SELECT 'r' || i, tenant, 'v', schedule, NULL, NULL, 0, CASE WHEN i %% 5 = 0 THEN i / 5 %% 3 ELSE 3 END, wide,
       NULL, '[]', at, NULL, CASE WHEN i %% 5 > 0 THEN at END
  FROM numbers;
INSERT INTO scheduler.impact_snapshots
SELECT 'i' || i, 't' || i %% 40, 'r' || i / 40 %% 3, 'digest' || i / 40 %% 3, 'content', wide, 0, at
  FROM numbers;
INSERT INTO scheduler.audit
SELECT 'a' || i, tenant, 'c' || i / 10 %% 4, 'done', at, wide, NULL, schedule, run, NULL, '{}', NULL
  FROM numbers;
INSERT INTO scheduler.run_summaries SELECT tenant, 's' || i, at, NULL, wide, '{}' FROM numbers
"""

TOKEN_AFTER: dict[str, tuple[SortValue, ...]] = {"time": (LATER, "m"), "text": ("name 3", "m")}


def prepared(step: Step) -> tuple[bytes, list[Any]]:
    statement, parameters = step
    return statement, list(parameters)


def listed(query: Query) -> tuple[bytes, list[Any]]:
    return prepared(compile_query(query, table_of(SCHEDULER.entity(query.entity))))


def due_with_schedules(query: Query) -> tuple[bytes, list[Any]]:
    statement, values = listed(query)
    return with_schedules(statement), values


def claimed(query: Query) -> tuple[bytes, list[Any]]:
    return prepared(compile_claim(query, table_of(SCHEDULER.entity(query.entity))))


def purged(entity: Entity, scope: Tenants) -> tuple[bytes, list[Any]]:
    return prepared(compile_removal(expired_query(entity, scope, LATER, 100), table_of(entity)))


def continued(query: Query) -> tuple[bytes, list[Any]]:
    """Return the statement of a later page."""
    after = TOKEN_AFTER["time" if query.order[0].time else "text"][: len(query.order)]
    return listed(replace(query, after=after))


RUN_LIST = queries.runs(SCOPE, RunQueryOptions(limit=20))
BY_SCHEDULE = queries.runs(SCOPE, RunQueryOptions(schedule_id="s3", limit=20))
OLDEST = queries.runs(SCOPE, RunQueryOptions(ascending=True, limit=20))
SNAPSHOT_LIST = queries.snapshots(SCOPE, 5, None)
TRIGGER_LIST = queries.triggers(SCOPE, 20, None)
AUDIT_LIST = queries.audit(SCOPE, AuditQueryOptions(limit=20))

WITH_ORDER = {
    "runs": (listed(RUN_LIST), TENANT, "idx_runs_tenant_created"),
    "runs, later page": (continued(RUN_LIST), TENANT, "idx_runs_tenant_created"),
    "runs, window": (
        listed(queries.runs(SCOPE, RunQueryOptions(created_after=START, created_before=LATER, limit=20))),
        TENANT,
        "idx_runs_tenant_created",
    ),
    "runs of a schedule": (listed(BY_SCHEDULE), TENANT, "idx_runs_tenant_schedule_created"),
    "runs of a schedule, later page": (continued(BY_SCHEDULE), TENANT, "idx_runs_tenant_schedule_created"),
    "latest runs of a schedule": (
        listed(queries.runs_by_schedule(SCOPE, "s3", 20, None)),
        TENANT,
        "idx_runs_tenant_schedule_created",
    ),
    "pending runs": (listed(queries.pending_runs(SCOPE, 20, None)), TENANT, "idx_runs_pending"),
    "runs by state": (
        listed(queries.runs_by_state(RunState.QUEUED, 20, None)),
        "system",
        "idx_runs_state_created",
    ),
    "snapshots": (listed(SNAPSHOT_LIST), TENANT, "idx_impact_snapshots_tenant"),
    "snapshots, later page": (continued(SNAPSHOT_LIST), TENANT, "idx_impact_snapshots_tenant"),
    "snapshots of a run": (
        listed(queries.snapshots(SCOPE, 5, None, "r2")),
        TENANT,
        "idx_impact_snapshots_run",
    ),
    "latest snapshot": (
        listed(queries.latest_snapshot(SCOPE, "digest2")),
        TENANT,
        "idx_impact_snapshots_selector",
    ),
    "audit": (listed(AUDIT_LIST), TENANT, "idx_audit_tenant_occurred"),
    "audit, later page": (continued(AUDIT_LIST), TENANT, "idx_audit_tenant_occurred"),
    "audit of a schedule": (
        listed(queries.audit(SCOPE, AuditQueryOptions(schedule_id="s3", limit=20))),
        TENANT,
        "idx_audit_tenant_schedule",
    ),
    "audit of a run": (
        listed(queries.audit(SCOPE, AuditQueryOptions(run_id="r3", limit=20))),
        TENANT,
        "idx_audit_tenant_run",
    ),
    "audit of a category": (
        listed(queries.audit(SCOPE, AuditQueryOptions(category="c3", limit=20))),
        TENANT,
        "idx_audit_tenant_category",
    ),
    "triggers": (listed(TRIGGER_LIST), TENANT, "idx_triggers_tenant_next"),
    "triggers, later page": (continued(TRIGGER_LIST), TENANT, "idx_triggers_tenant_next"),
    "due schedules": (
        due_with_schedules(queries.due_triggers(START + timedelta(seconds=60), 100)),
        "system",
        "idx_triggers_due",
    ),
    "schedules": (
        listed(queries.schedules(SCOPE, ScheduleQueryOptions(limit=20))),
        TENANT,
        "idx_schedules_tenant_every_name",
    ),
    "schedules, later page": (
        continued(queries.schedules(SCOPE, ScheduleQueryOptions(limit=20))),
        TENANT,
        "idx_schedules_tenant_every_name",
    ),
    "enabled schedules": (
        listed(queries.schedules(SCOPE, ScheduleQueryOptions(include_disabled=False, limit=20))),
        TENANT,
        "idx_schedules_tenant_every_name",
    ),
    "summaries": (listed(queries.run_summaries(SCOPE, 20, None)), TENANT, "run_summaries_pkey"),
    "claim of pending runs": (claimed(queries.pending_runs(SCOPE, 20, None)), TENANT, "idx_runs_pending"),
    "purge of runs": (purged(RUNS, ALL_TENANTS), "system", "idx_runs_finished"),
    "purge of snapshots": (purged(IMPACT_SNAPSHOTS, ALL_TENANTS), "system", "idx_impact_snapshots_generated"),
}
# The index gives the first part of the order; the ids that break its ties are sorted group by group.
NEARLY_ORDERED = {
    "runs, oldest first": (listed(OLDEST), TENANT, "idx_runs_tenant_created"),
}


@pytest.fixture(scope="module")
def app(module_postgres_database: PostgresDatabase) -> Iterator[Connection]:
    with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as admin:
        for statement in FILL.split(";"):
            admin.execute(statement.encode(), {"start": START})
        # With the map of visible rows, too, as it is from then on.
        admin.execute("VACUUM (ANALYZE)")
    with psycopg.connect(module_postgres_database.app_url) as connection:
        yield connection


def plan(
    connection: Connection, step: tuple[bytes, list[Any]], tenant: str, mode: str = "force_custom_plan"
) -> Node:
    """Return the plan of a prepared statement; rolled back, so nothing is removed."""
    statement, parameters = step
    numbers = iter(range(1, 100))
    prepared = re.sub("%s", lambda _: f"${next(numbers)}", statement.decode())
    values = sql.SQL(", ").join(literal(item) for item in parameters)
    try:
        connection.execute("SELECT set_config('app.tenant_id', %s, true)", [tenant])
        connection.execute("SELECT set_config('plan_cache_mode', %s, true)", [mode])
        connection.execute(b"PREPARE hot AS " + prepared.encode())
        row = connection.execute(sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE hot ({})").format(values)).fetchone()
        connection.execute("DEALLOCATE hot")
    finally:
        connection.rollback()
    assert row is not None
    return dict(row[0][0]["Plan"])


def literal(value: object) -> sql.Literal:
    """Return a parameter as it is written into a statement."""
    return sql.Literal(value.decode() if isinstance(value, Json) else value)


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def kinds(root: Node) -> set[str]:
    return {node["Node Type"] for node in nodes(root)}


def indexes(root: Node) -> set[str]:
    return {node["Index Name"] for node in nodes(root) if "Index Name" in node}


@pytest.mark.parametrize("name", WITH_ORDER)
def test_a_hot_statement_reads_its_index_in_order(app: Connection, name: str) -> None:
    step, tenant, index = WITH_ORDER[name]
    root = plan(app, step, tenant)
    assert index in indexes(root)
    assert not {"Sort", "Incremental Sort", "Seq Scan"} & kinds(root)


@pytest.mark.parametrize("name", NEARLY_ORDERED)
def test_an_index_with_part_of_the_order_spares_the_whole_sort(app: Connection, name: str) -> None:
    step, tenant, index = NEARLY_ORDERED[name]
    root = plan(app, step, tenant)
    assert index in indexes(root)
    assert not {"Sort", "Seq Scan"} & kinds(root)


@pytest.mark.parametrize("name", [name for name in (*WITH_ORDER, *NEARLY_ORDERED) if "later page" in name])
def test_a_later_page_starts_at_its_key(app: Connection, name: str) -> None:
    step, tenant, index = (WITH_ORDER | NEARLY_ORDERED)[name]
    (scan,) = [node for node in nodes(plan(app, step, tenant)) if node.get("Index Name") == index]
    assert "<=" in scan["Index Cond"] or ">=" in scan["Index Cond"]


@pytest.mark.parametrize("name", [*WITH_ORDER, *NEARLY_ORDERED])
def test_such_statements_are_planned_for_their_values(name: str) -> None:
    (statement, _), _, _ = (WITH_ORDER | NEARLY_ORDERED)[name]
    assert isinstance(statement, Unprepared)


@pytest.mark.parametrize("entity", [RUNS, IMPACT_SNAPSHOTS], ids=lambda entity: entity.name)
def test_the_purge_of_one_tenant_does_not_read_the_whole_table(app: Connection, entity: Entity) -> None:
    assert "Seq Scan" not in kinds(plan(app, purged(entity, SCOPE), TENANT))


def test_rows_are_counted_from_an_index(app: Connection) -> None:
    step = prepared(compile_count(queries.pending_runs(SCOPE, 20, None), table_of(RUNS), "state"))
    root = plan(app, step, TENANT)
    assert "idx_runs_pending" in indexes(root)
    assert "Seq Scan" not in kinds(root)


@pytest.mark.parametrize("several", [1, 100])
def test_several_keys_are_probed_one_by_one(app: Connection, several: int) -> None:
    step = (
        statements.find_several(table_of(RUNS), ScopeKind.TENANT),
        [[f"r{n}" for n in range(several)], TENANT],
    )
    root = plan(app, step, TENANT)
    assert indexes(root) == {"runs_pkey"}
    assert "Seq Scan" not in kinds(root)


def looked_up(entity: Entity, unique: str | None = None) -> bytes:
    return statements.find(table_of(entity), ScopeKind.TENANT, unique)


BY_KEY = {
    "schedule": (looked_up(SCHEDULES), ["s3", TENANT], "schedules_pkey"),
    "schedule by name": (
        looked_up(SCHEDULES, "tenant_name"),
        [TENANT, "name 3", TENANT],
        # It has the name as the unique index does, and the planner does not prefer that one.
        "idx_schedules_tenant_every_name",
    ),
    "trigger": (looked_up(TRIGGERS, "schedule"), ["s3", TENANT], "uq_triggers_schedule"),
    "run": (looked_up(RUNS), ["r3", TENANT], "runs_pkey"),
    "snapshot": (looked_up(IMPACT_SNAPSHOTS), ["i3", TENANT], "impact_snapshots_pkey"),
    "audit record": (looked_up(AUDIT), ["a3", TENANT], "audit_pkey"),
    "summary": (looked_up(RUN_SUMMARIES), [TENANT, "s3", TENANT], "run_summaries_pkey"),
    "removal": (statements.delete(table_of(RUNS), ScopeKind.TENANT), ["r3", TENANT], "runs_pkey"),
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("entity", [IMPACT_SNAPSHOTS, RUN_SUMMARIES], ids=lambda entity: entity.name)
def test_a_put_probes_its_key_with_any_plan(app: Connection, entity: Entity, mode: str) -> None:
    rows = {
        IMPACT_SNAPSHOTS: row_of(SCOPE, "i3", make_impact_set(), None),
        RUN_SUMMARIES: Row(make_run_summary(TENANT, "s3")),
    }
    table, row = table_of(entity), rows[entity]
    values = table.encode(row)
    rest = () if entity is RUN_SUMMARIES else ("i3", TENANT) * 2
    root = plan(app, (statements.put(table, ScopeKind.TENANT), [*values, *rest]), TENANT, mode)
    assert indexes(root) <= {f"{entity.name}_pkey"}
    assert "Seq Scan" not in kinds(root)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", BY_KEY)
def test_a_lookup_probes_its_key_with_any_plan(app: Connection, name: str, mode: str) -> None:
    statement, parameters, index = BY_KEY[name]
    root = plan(app, (statement, parameters), TENANT, mode)
    assert indexes(root) == {index}
    assert "Seq Scan" not in kinds(root)
