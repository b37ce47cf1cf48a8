"""The rows for the work: waiting jobs and due schedules, restored before each slice."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from benchmarks.peers.contender import FIRES, WAITING, Kind
from twinstore import add_scheduler_mongo_storage, add_scheduler_postgres_storage
from twinstore.scheduler import (
    PolicyRunInputs,
    PolicyRunMode,
    PolicyRunPriority,
    PolicyRunRequest,
    Schedule,
    Selector,
    SelectorScope,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.databases import BenchmarkDatabases
    from twinstore.scheduler.storage import SchedulerStorage

__all__ = ["CRON", "TENANT", "Need", "emptied", "mongo_stock", "postgres_stock", "request", "stocked"]

TENANT: Final = "tenant-0"
TENANTS: Final = 4
CRON: Final = "0 3 * * *"
NOW: Final = datetime.now(UTC).replace(microsecond=0)
FILLED: Final = ("policy_jobs", "triggers", "schedules", "runs")
EMPTY: Final = "TRUNCATE " + ", ".join(f"scheduler.{name}" for name in FILLED) + " CASCADE"
# Without triggers, which some peers have: they notify listeners of every insert.
QUIET: Final = "SET session_replication_role = replica"


def request(number: int, run_id: str | None = None) -> PolicyRunRequest:
    """Return a request of about 600 bytes."""
    inputs = PolicyRunInputs(
        sbom_set=tuple(f"sbom:{number}:{part}" for part in range(4)),
        advisory_cursor=f"advisories:{number:012}",
        environment={"region": "eu", "weights": {"kev": 1.5, "epss": 0.25}},
    )
    return PolicyRunRequest(
        tenant_id=f"tenant-{number % TENANTS}",
        policy_id=f"policy-{number % 7}",
        mode=PolicyRunMode.INCREMENTAL,
        priority=list(PolicyRunPriority)[number % 3],
        run_id=run_id,
        requested_by="bench",
        metadata={"team": "core"},
        inputs=inputs,
    )


def schedule(number: int) -> Schedule:
    """Return a schedule that has been due since last night or the night before."""
    made = NOW - timedelta(days=2)
    return Schedule(
        id=f"bench-{number:06}",
        tenant_id=TENANT,
        name=f"nightly {number}",
        when_cron=CRON,
        selection=Selector(scope=SelectorScope.ALL_IMAGES),
        created_at=made,
        created_by="bench",
    )


def fill(storage: SchedulerStorage, jobs: int, schedules: int) -> None:
    """Enqueue jobs, which become available one after the other, and store schedules that are due."""
    for number in range(jobs):
        available = NOW - timedelta(milliseconds=jobs - number)
        storage.policy_run_service.enqueue(request(number, f"run-{number:08}"), now=available)
    for number in range(schedules):
        storage.schedules.upsert(schedule(number))


@dataclass(frozen=True, slots=True)
class Need:
    """What a group works on, at most."""

    jobs: int
    schedules: int
    locks: int


def postgres_stock(databases: BenchmarkDatabases, jobs: int, schedules: int) -> Callable[[Kind, int], None]:
    """Fill the tables of the library; return what fills them again."""
    with closing(databases.superuser()) as connection:
        connection.execute(EMPTY.encode())
    with add_scheduler_postgres_storage(databases.settings()) as storage:
        fill(storage, jobs, schedules)
    with_jobs = stocked(databases, "scheduler.policy_jobs")
    with_triggers = stocked(databases, "scheduler.triggers", "scheduler.runs")

    def refill(kind: Kind, amount: int) -> None:
        if kind in FIRES:
            with_triggers(amount)
        elif kind in WAITING:
            with_jobs(amount)
        elif kind is Kind.LIFE:
            with_jobs(0)

    return refill


def emptied(databases: BenchmarkDatabases, *tables: str) -> None:
    """Remove what an earlier group has left, where the tables are there."""
    with closing(databases.superuser()) as connection:
        for table in tables:
            if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,):
                connection.execute(f"TRUNCATE {table} CASCADE".encode())


def stocked(databases: BenchmarkDatabases, table: str, *others: str) -> Callable[[int], None]:
    """Keep the rows that a table has now; return a function that restores some of them and empties others."""
    template = f"bench_{table.rpartition('.')[2]}"

    def execute(*statements: str) -> None:
        with closing(databases.superuser()) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    execute(f"DROP TABLE IF EXISTS {template}", f"CREATE TABLE {template} AS TABLE {table}")
    tables = ", ".join((table, *others))
    back = f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM {template} LIMIT "  # noqa: S608  # names of tables
    empty, analyse = f"TRUNCATE {tables} CASCADE", f"VACUUM ANALYZE {tables}"
    return lambda amount: execute(QUIET, empty, f"{back}{amount}", analyse)


def mongo_stock(databases: BenchmarkDatabases, jobs: int, schedules: int) -> Callable[[Kind, int], None]:
    """Fill the collections of the library; return what fills them again."""
    database = databases.runs().database
    for name in FILLED:
        database[name].delete_many({})
    with add_scheduler_mongo_storage(databases.settings()) as storage:
        fill(storage, jobs, schedules)
    for name in ("policy_jobs", "triggers"):
        database[name].aggregate([{"$out": f"bench_{name}"}])

    def back(name: str, amount: int) -> None:
        database[name].delete_many({})
        if amount:
            into = {"$merge": name}
            database[f"bench_{name}"].aggregate([{"$sort": {"_id": 1}}, {"$limit": amount}, into])

    def refill(kind: Kind, amount: int) -> None:
        if kind in FIRES:
            database["runs"].delete_many({})
            back("triggers", amount)
        elif kind in WAITING:
            back("policy_jobs", amount)
        elif kind is Kind.LIFE:
            back("policy_jobs", 0)

    return refill
