"""Migration 014 of both stores: exactly the customer's tables, and the way back of PostgreSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

import twinstore
from twinstore.scheduler.module import MODULE
from twinstore.testing.scheduler.graph_jobs import graph_job_event, make_graph_build_job
from twinstore_postgres.schema.migrator import lock_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import PostgresDatabase
    from tests.servers import Settings

FILE: Final = "014_graph_jobs.sql"
REVERT: Final = (MODULE.migrations("postgres") / "revert" / FILE).read_text(encoding="utf-8")
TABLES: Final = "SELECT to_regclass('scheduler.graph_jobs'), to_regclass('scheduler.graph_job_events')"
COLUMNS: Final = """
SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns
 WHERE table_schema = 'scheduler' AND table_name = %s ORDER BY ordinal_position
"""
# As the customer's plan gives them, in its order.
JOBS: Final = [
    ("id", "uuid", "NO", None),
    ("tenant_id", "text", "NO", None),
    ("type", "smallint", "NO", None),
    ("status", "smallint", "NO", None),
    ("payload", "jsonb", "NO", None),
    ("created_at", "timestamp with time zone", "NO", "now()"),
    ("updated_at", "timestamp with time zone", "NO", "now()"),
    ("correlation_id", "text", "YES", None),
]
NUMBERED: Final = "nextval('scheduler.graph_job_events_id_seq'::regclass)"
EVENTS: Final = [
    ("id", "bigint", "NO", NUMBERED),
    ("job_id", "uuid", "NO", None),
    ("tenant_id", "text", "NO", None),
    ("status", "smallint", "NO", None),
    ("payload", "jsonb", "NO", None),
    ("created_at", "timestamp with time zone", "NO", "now()"),
]
INDEXES: Final = {
    "idx_graph_jobs_tenant_status": "(tenant_id, status, created_at DESC)",
    "idx_graph_jobs_tenant_type_status": "(tenant_id, type, status, created_at DESC)",
    "idx_graph_job_events_job": "(job_id, created_at DESC)",
}


def migrate(config: Settings) -> tuple[str, ...]:
    with twinstore.add_scheduler_postgres_storage(config) as storage:
        return storage.initializer.ensure_migrations().applied


@pytest.fixture
def owner(empty_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as connection:
        migrate(empty_postgres_database.config)
        yield connection


def test_the_tables_are_the_customers_column_by_column(owner: psycopg.Connection[Any]) -> None:
    assert owner.execute(COLUMNS, ["graph_jobs"]).fetchall() == JOBS
    assert owner.execute(COLUMNS, ["graph_job_events"]).fetchall() == EVENTS
    found = owner.execute("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'scheduler'")
    real = dict(found.fetchall())
    for name, columns in INDEXES.items():
        assert real[name].endswith(f" USING btree {columns}")
    (reference,) = owner.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'graph_job_events_job_id_fkey'"
    ).fetchone() or ("",)
    assert reference == "FOREIGN KEY (job_id) REFERENCES scheduler.graph_jobs(id) ON DELETE CASCADE"


def test_the_revert_does_nothing_in_an_empty_database(empty_postgres_database: PostgresDatabase) -> None:
    with psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as connection:
        connection.execute(REVERT.encode())


def test_the_revert_refuses_while_it_would_lose_rows_that_may_be_nowhere_else(
    owner: psycopg.Connection[Any], empty_postgres_database: PostgresDatabase
) -> None:
    with twinstore.add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
        jobs = [make_graph_build_job("acme", str(number)) for number in range(3)]
        for job in jobs:
            storage.graph_jobs.insert(job)
        storage.graph_jobs.append_event(graph_job_event(jobs[0], "e"))
        for said in (None, "", "2,1", "3,0", "3", "31"):
            if said is not None:
                owner.execute("SELECT set_config('twinstore.kept_elsewhere', %s, false)", [said])
            with pytest.raises(
                psycopg.errors.RaiseException, match=re.escape("3 graph jobs and 1 events")
            ) as no:
                owner.execute(REVERT.encode())
            owner.execute("ROLLBACK")
            assert "kept_elsewhere = '3,1'" in str(no.value.diag.message_hint)
            assert storage.graph_jobs.count_by_status("acme") == {"queued": 3}
        owner.execute("SELECT set_config('twinstore.kept_elsewhere', '3,1', false)")
        storage.graph_jobs.insert(make_graph_build_job("acme", "a fourth one"))
        with pytest.raises(psycopg.errors.RaiseException, match=re.escape("4 graph jobs")):
            owner.execute(REVERT.encode())
        owner.execute("ROLLBACK")
        owner.execute("SELECT set_config('twinstore.kept_elsewhere', '4,1', false)")
        owner.execute(REVERT.encode())
    assert owner.execute(TABLES).fetchone() == (None, None)


def test_the_revert_waits_for_migrations_that_run() -> None:
    assert f"pg_advisory_xact_lock({lock_number('scheduler')})" in REVERT
