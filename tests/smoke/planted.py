"""Faults of a deployed store, each planted past the driver, and what a smoke test says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import psycopg
from bson import Int64
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from pymongo import MongoClient
from pymongo.database import Database

from tests.databases import APP_ROLE

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.databases import MongoDatabase, PostgresDatabase

__all__ = [
    "MONGO_FAULTS",
    "MONGO_UNREADY",
    "POSTGRES_FAULTS",
    "POSTGRES_UNREADY",
    "Fault",
    "mongo",
    "mongo_content",
    "postgres",
    "postgres_content",
]

Document = dict[str, Any]
T = TypeVar("T")
SCHEMA: Final = "schema"
LISTS: Final = "C5 list order"
C6: Final = "C6 lock smoke test"
TRIAL_LOCKS: Final = "no lock outlives the longest lease"
FAR: Final = datetime(2999, 1, 1, tzinfo=UTC)
# What the smoke test of locks writes on purpose, and the numbers that were given: a gap is no row.
SMOKE_LOCK: Final = "system:twinstore:smoke"
COUNTERS: Final = "_counters"


# Without slots: Python 3.11 cannot make a frozen class with slots through its alias.
@dataclass(frozen=True)
class Fault(Generic[T]):
    """A fault: what plants it, and at which step a smoke test says what."""

    plant: Callable[[T], object]
    step: str
    told: tuple[str, ...]


@contextmanager
def postgres(database: PostgresDatabase) -> Generator[psycopg.Connection]:
    """Connect past every policy."""
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        yield connection


@contextmanager
def mongo(database: MongoDatabase) -> Generator[Database[Document]]:
    """Connect past every rule."""
    with MongoClient[Document](database.url) as client:
        yield client[database.name]


def run_sql(*statements: str) -> Callable[[psycopg.Connection], object]:
    """Return what runs some statements."""

    def run(connection: psycopg.Connection) -> None:
        for statement in statements:
            connection.execute(statement.encode())

    return run


TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'scheduler' ORDER BY 1"
ROWS: Final = "SELECT t::text FROM scheduler.{} AS t ORDER BY 1"


def postgres_content(connection: psycopg.Connection) -> dict[str, list[str]]:
    """Return every row of every table as the server shows it, the row of the lock of smoke tests apart."""
    content: dict[str, list[str]] = {}
    for (table,) in connection.execute(TABLES).fetchall():
        rows = connection.execute(sql.SQL(ROWS).format(sql.Identifier(table))).fetchall()
        content[table] = [row for (row,) in rows if "twinstore:smoke" not in row]
    return content


def mongo_content(database: Database[Document]) -> dict[str, list[bytes]]:
    """Return every document of every collection as it is stored, with the same two exceptions."""
    content: dict[str, list[bytes]] = {}
    raw = database.with_options(database.codec_options.with_options(document_class=RawBSONDocument))
    for name in sorted(database.list_collection_names()):
        if name != COUNTERS:
            found = raw[name].find({"_id": {"$ne": SMOKE_LOCK}}, sort=[("_id", 1)])
            content[name] = [document.raw for document in found]
    return content


INSERT_LOCK: Final = """
INSERT INTO scheduler.locks (tenant_id, lock_key, holder_id, acquired_at, expires_at, fence, metadata)
VALUES ('{tenant}', '{key}', 'gone', now(), now() + interval '9 years', 3, '{{}}')
"""
CHANGE_CHECKSUM: Final = """
UPDATE scheduler.schema_migrations SET checksum = repeat('0', 64) WHERE migration_name LIKE '013%'
"""

# Beside each other: every fault is named, whatever others there are.
POSTGRES_FAULTS: Final[Mapping[str, Fault[psycopg.Connection]]] = {
    "an index is gone": Fault(
        run_sql("DROP INDEX scheduler.idx_runs_state_created"), SCHEMA, ("idx_runs_state_created",)
    ),
    "a right is missing": Fault(
        run_sql(f"REVOKE UPDATE ON scheduler.graph_jobs FROM {APP_ROLE}"),
        SCHEMA,
        ("scheduler.graph_jobs", "UPDATE"),
    ),
    "a right too much": Fault(
        run_sql(f"GRANT DELETE ON scheduler.audit TO {APP_ROLE}"), SCHEMA, ("scheduler.audit", "DELETE")
    ),
    "a sequence is below its rows": Fault(
        run_sql("SELECT setval('scheduler.graph_job_events_id_seq', 1)"),
        SCHEMA,
        ("graph_job_events_id_seq", "setval"),
    ),
    "the lock of smoke tests is stuck": Fault(
        run_sql(INSERT_LOCK.format(tenant="system", key="twinstore:smoke")), C6, ("'gone'", "expiresAt")
    ),
    "a lock of a service is stuck": Fault(
        run_sql(INSERT_LOCK.format(tenant="acme", key="planner")),
        TRIAL_LOCKS,
        ("'planner'", "'gone'", "expiresAt"),
    ),
    "a row cannot be decoded": Fault(
        run_sql("""UPDATE scheduler.runs SET reason = '{"unheard": 1}' WHERE id = 'acme-run-3'"""),
        LISTS,
        ("acme-run-3", "reason"),
    ),
}
# With each of these a store is not ready, so nothing else is asked of it.
POSTGRES_UNREADY: Final[Mapping[str, Fault[psycopg.Connection]]] = {
    "row-level security is off": Fault(
        run_sql("ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY"), SCHEMA, ("runs",)
    ),
    "a migration file was changed": Fault(
        run_sql(CHANGE_CHECKSUM), SCHEMA, ("013_create_locks.sql is changed",)
    ),
    "a migration is pending": Fault(
        run_sql("DELETE FROM scheduler.schema_migrations WHERE migration_name LIKE '016%'"),
        SCHEMA,
        ("016_add_list_indexes.sql is pending",),
    ),
}


def insert_lock(tenant: str, key: str) -> Callable[[Database[Document]], object]:
    """Return what plants a lock that nobody can have asked for."""

    def insert(database: Database[Document]) -> None:
        now = datetime.now(UTC)
        lock = {
            "_id": f"{tenant}:{key}",
            "lockKey": key,
            "tenantId": tenant,
            "holderId": "gone",
            "acquiredAt": now,
            "expiresAt": now + timedelta(days=3000),
            "fence": Int64(3),
            "metadata": {},
        }
        database["locks"].replace_one({"_id": lock["_id"]}, lock, upsert=True)

    return insert


def break_run(database: Database[Document]) -> None:
    """Write into a run what no model has, past its validator."""
    database["runs"].update_one(
        {"_id": "acme-run-3"},
        {"$set": {"reason": {"unheard": 1}}},
        bypass_document_validation=True,
    )


MONGO_FAULTS: Final[Mapping[str, Fault[Database[Document]]]] = {
    "an index is gone": Fault(
        lambda database: database["policy_jobs"].drop_index("ix_tenantId_policyId_createdAt__id"),
        SCHEMA,
        ("policy_jobs", "policyId"),
    ),
    "a validator is gone": Fault(
        lambda database: database.command("collMod", "runs", validator={}), SCHEMA, ("runs", "validator")
    ),
    "another age of a TTL": Fault(
        lambda database: database.command(
            "collMod", "runs", index={"name": "ttl_finishedAt", "expireAfterSeconds": 3600 * 24 * 9999}
        ),
        SCHEMA,
        ("ttl_finishedAt",),
    ),
    "a counter is below its rows": Fault(
        lambda database: database[COUNTERS].update_one(
            {"_id": "graph_job_events"}, {"$set": {"value": Int64(1)}}
        ),
        SCHEMA,
        ("graph_job_events", "NumberLong"),
    ),
    "the lock of smoke tests is stuck": Fault(
        insert_lock("system", "twinstore:smoke"), C6, ("'gone'", "expiresAt")
    ),
    "a lock of a service is stuck": Fault(
        insert_lock("acme", "planner"), TRIAL_LOCKS, ("'planner'", "'gone'", "expiresAt")
    ),
    "a document cannot be decoded": Fault(break_run, LISTS, ("acme-run-3", "reason")),
}
MONGO_UNREADY: Final[Mapping[str, Fault[Database[Document]]]] = {
    "a unique index is gone": Fault(
        lambda database: database["triggers"].drop_index("ux_scheduleId"), SCHEMA, ("triggers", "scheduleId")
    ),
    "a migration is pending": Fault(
        lambda database: database["_migrations"].delete_one({"_id": {"$regex": "016_"}}),
        SCHEMA,
        ("016_add_list_indexes is pending",),
    ),
}
