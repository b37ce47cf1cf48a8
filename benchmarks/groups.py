"""Which cases are compared with each other."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from psycopg_pool import ConnectionPool

from benchmarks import mongo_limits, postgres_limits
from benchmarks.cli_cases import CliCases, Differences
from benchmarks.entities.group import entities
from benchmarks.merge import merging
from benchmarks.mongo_singles import BareMongo
from benchmarks.peers.groups import PEER_GROUPS
from benchmarks.postgres_singles import BarePostgres
from benchmarks.ruled import ruling
from benchmarks.scale import scaling
from benchmarks.schedule import Case, Group
from benchmarks.script import SCRIPT, SCRIPT_VERIFY, hand_script
from benchmarks.singles import TENANT, SingleOperations, single_operations
from benchmarks.start import starting
from benchmarks.switch import switching
from benchmarks.tools.group import comparing
from benchmarks.waits import waiting
from twinstore import add_scheduler_mongo_storage, add_scheduler_postgres_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options

__all__ = [
    "BACK",
    "BULK_ROLE",
    "EQUAL",
    "FIRST",
    "FURTHER",
    "GROUPS",
    "INSERT",
    "RAW_SCAN",
    "ROOFLINE",
    "SECOND",
    "TENTH",
    "UNEQUAL",
]

ROOFLINE: Final = "COPY, two connections"
FIRST: Final = "first copy"
BULK_ROLE: Final = "first copy, bulk role"
SECOND: Final = "second copy, identical"
TENTH: Final = "copy, a tenth there"
EQUAL: Final = "verify, equal"
UNEQUAL: Final = "verify, ten differences"
INSERT: Final = "insert_many, two threads"
BACK: Final = "copy back"
RAW_SCAN: Final = "raw COPY out"
GET_KEYS: Final = 1000
KEYS: Final = "SELECT id FROM scheduler.runs WHERE tenant_id = %s LIMIT %s"


@contextmanager
def copying(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """MongoDB to PostgreSQL."""
    tool = CliCases(databases, options.documents, options.jobs, profile=options.profile)
    databases.empty_postgres()
    hand_script(databases)
    rows = postgres_limits.prebuilt_rows(databases)
    limits = [
        Case(name="MongoDB raw batches", run=partial(mongo_limits.raw_scan, databases.runs())),
        Case(
            name="COPY, one connection",
            prepare=databases.empty_postgres,
            run=partial(postgres_limits.copy_in, databases, rows, 1),
        ),
        Case(
            name=ROOFLINE,
            prepare=databases.empty_postgres,
            run=partial(postgres_limits.copy_in, databases, rows, 2),
        ),
        Case(
            name=SCRIPT,
            prepare=databases.empty_postgres,
            run=partial(hand_script, databases),
            against=(ROOFLINE,),
        ),
    ]

    def fill_a_tenth() -> None:
        databases.empty_postgres()
        postgres_limits.copy_in(databases, rows[::10], 1)

    against = (ROOFLINE, SCRIPT)
    candidates = [
        Case(
            name=BULK_ROLE,
            prepare=databases.empty_postgres,
            run=partial(replace(tool, databases=databases.with_bulk_role()).copy, BULK_ROLE),
            against=against,
        ),
        Case(name=FIRST, prepare=databases.empty_postgres, run=partial(tool.copy, FIRST), against=against),
        Case(
            name=SECOND,
            prepare=databases.vacuum_postgres,
            run=partial(tool.copy, SECOND, "unchanged"),
            against=(*against, FIRST),
        ),
        Case(
            name=TENTH,
            prepare=fill_a_tenth,
            run=partial(tool.copy, TENTH),
            against=against,
        ),
    ]
    title = "MongoDB to PostgreSQL"
    yield Group(name="copy", title=title, unit="documents", cases=[*limits, *candidates])


@contextmanager
def verifying(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Full content of both sides."""
    tool = CliCases(databases, options.documents, options.jobs, profile=options.profile)
    databases.empty_postgres()
    hand_script(databases)
    databases.vacuum_postgres()
    differences = Differences(databases)
    cases = [
        Case(name="MongoDB raw batches", run=partial(mongo_limits.raw_scan, databases.runs())),
        Case(name=RAW_SCAN, prepare=differences.remove, run=partial(postgres_limits.copy_out, databases)),
        Case(name=SCRIPT_VERIFY, run=partial(hand_script, databases, "verify")),
        Case(name=EQUAL, run=partial(tool.verify, EQUAL), against=(RAW_SCAN, SCRIPT_VERIFY)),
        Case(
            name=UNEQUAL,
            prepare=differences.plant,
            run=lambda: tool.verify(UNEQUAL, named=differences.keys),
            against=(RAW_SCAN, EQUAL),
        ),
    ]
    yield Group(name="verify", title="Verification, full content", unit="documents", cases=cases)


@contextmanager
def returning(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """PostgreSQL to MongoDB."""
    tool = CliCases(databases, options.documents, options.jobs, profile=options.profile)
    databases.empty_postgres()
    hand_script(databases)
    databases.vacuum_postgres()
    documents = mongo_limits.prebuilt_documents(databases.runs())
    insert = partial(mongo_limits.insert_prebuilt, databases.runs(back=True), documents, 2)
    cases = [
        Case(name=RAW_SCAN, run=partial(postgres_limits.copy_out, databases)),
        Case(name=INSERT, prepare=databases.empty_mongo, run=insert),
        Case(name=BACK, prepare=databases.empty_mongo, run=partial(tool.copy_back, BACK), against=(INSERT,)),
    ]
    yield Group(name="return", title="PostgreSQL to MongoDB", unit="documents", cases=cases)


@contextmanager
def mongo_singles(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Single operations on MongoDB."""
    keys = databases.runs().find({"tenantId": TENANT}, {"_id": 1}).limit(GET_KEYS)
    run_ids = [document["_id"] for document in keys]
    with add_scheduler_mongo_storage(databases.settings()) as storage:
        repertoire = SingleOperations(storage, BareMongo(databases), run_ids)
        yield single_operations("mongo", "Single operations, MongoDB", repertoire, options.operations)
    databases.runs().delete_many({"_id": {"$regex": "^bench-"}})  # other groups count on what was loaded


@contextmanager
def postgres_singles(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Single operations on PostgreSQL."""
    databases.empty_postgres()
    hand_script(databases)
    databases.vacuum_postgres()
    with closing(databases.superuser()) as connection:
        keys = connection.execute(KEYS, [TENANT, GET_KEYS])
        run_ids = [str(row[0]) for row in keys]
    pool: ConnectionPool[Connection[tuple[Any, ...]]] = ConnectionPool(
        databases.app_url, kwargs={"autocommit": True}, min_size=1, open=False
    )
    with add_scheduler_postgres_storage(databases.settings()) as storage, pool:
        repertoire = SingleOperations(storage, BarePostgres(pool), run_ids)
        yield single_operations("postgres", "Single operations, PostgreSQL", repertoire, options.operations)


GROUPS: Final = {
    "copy": copying,
    "verify": verifying,
    "return": returning,
    "mongo": mongo_singles,
    "postgres": postgres_singles,
    "start": starting,
    "entities": entities,
    **PEER_GROUPS,
}
# Measured only where they are named.
FURTHER: Final = {
    "merge": merging,
    "rules": ruling,
    "tools": comparing,
    "waits": waiting,
    "switch": switching,
    "scale": scaling,
}
