"""Leases of policy jobs: one by one and a hundred at once, beside the bare statements and other queues."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from random import getrandbits
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from bson.int64 import Int64
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool
from pymongo import ReturnDocument

from benchmarks.rivals import rivals
from benchmarks.schedule import Case, Group, Sample
from twinstore import add_scheduler_mongo_storage, add_scheduler_postgres_storage
from twinstore.scheduler import PolicyRunInputs, PolicyRunMode, PolicyRunPriority, PolicyRunRequest
from twinstore_postgres.owners import ScopeKind
from twinstore_postgres.special.scheduler_claims import lease_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection
    from pymongo.collection import Collection

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from twinstore.scheduler import PolicyJobRepository, PolicyRunService

    Lease = Callable[[int], int]

__all__ = ["BATCH", "mongo_claims", "postgres_claims"]

BATCH: Final = 100
# So many times the number of single leases wait in the queue: a batch is over too soon otherwise.
QUEUES: Final = 5
NOW: Final = datetime.now(UTC).replace(microsecond=0)
UNTIL: Final = NOW + timedelta(minutes=1)
TENANTS: Final = 4
SET: Final = "SELECT set_config('app.tenant_id', 'system', true)"
TEMPLATE: Final = "bench_policy_jobs"
REFILL: Final = (
    "TRUNCATE scheduler.policy_jobs",
    f"INSERT INTO scheduler.policy_jobs SELECT * FROM {TEMPLATE}",  # noqa: S608  # a constant
    "VACUUM ANALYZE scheduler.policy_jobs",
)


def request(number: int) -> PolicyRunRequest:
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
        run_id=f"run-{number:08}",
        requested_by="bench",
        metadata={"team": "core"},
        inputs=inputs,
    )


def enqueue(runs: PolicyRunService, jobs: int) -> None:
    """Fill the queue; the jobs become available one after the other."""
    for number in range(jobs):
        runs.enqueue(request(number), now=NOW - timedelta(milliseconds=jobs - number))


def timed(lease: Lease, size: int, jobs: int) -> Sample:
    """Lease jobs until there were enough of them; count them when the lease is committed."""
    left = jobs
    began = perf_counter()
    while left > 0:
        found = lease(min(size, left))
        if not found:
            raise RuntimeError("the queue ran dry")
        left -= found
    return Sample(units=jobs, seconds=perf_counter() - began)


def cases_of(ways: dict[str, Lease], operations: int, refill: Callable[[], object]) -> list[Case]:
    """Return single and batch form of the ways, each repository against the bare statement."""
    found: list[Case] = []
    for form, size, jobs in (("one", 1, operations), (f"{BATCH}", BATCH, operations * QUEUES)):
        for way, lease in ways.items():
            found.append(
                Case(
                    name=f"{way}, {form}",
                    run=lambda lease=lease, size=size, jobs=jobs: timed(lease, size, jobs),  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
                    prepare=refill,
                    against=(f"bare, {form}",) if way == "lease" else (),
                )
            )
    return found


def by_repository(jobs: PolicyJobRepository) -> Lease:
    """Return what leases through a repository."""

    def lease(size: int) -> int:
        if size == 1:
            return int(jobs.lease_next("bench", NOW) is not None)
        return len(jobs.lease_many("bench", NOW, limit=size))

    return lease


def by_psycopg(pool: ConnectionPool[Connection[tuple[Any, ...]]]) -> Lease:
    """Return what leases by the same statement on a pool, with raw rows as the answer."""
    wire = {
        "lastAttemptAt": NOW.isoformat(),
        "updatedAt": NOW.isoformat(),
        "leaseExpiresAt": UNTIL.isoformat(),
    }
    changed = Jsonb({"status": "dispatching", "leaseOwner": "bench", **wire})

    def lease(size: int) -> int:
        with pool.connection() as connection:
            cursor = connection.cursor()
            with connection.pipeline():
                connection.execute(SET)
                values = (NOW, NOW, "bench", UNTIL, changed)
                cursor.execute(lease_statement(ScopeKind.EVERYBODY, size), values)
            return len(cursor.fetchall())

    return lease


def by_pymongo(collection: Collection[dict[str, Any]]) -> Lease:
    """Return what leases by the same updates, with raw documents as the answer."""
    due = {"status": "pending", "availableAt": {"$lte": NOW}, "attemptCount": {"$lt": 2**31 - 1}}
    order = [("_priorityRank", -1), ("availableAt", 1), ("createdAt", 1), ("_id", 1)]
    sets = {
        "status": "dispatching",
        "leaseOwner": "bench",
        "leaseExpiresAt": UNTIL,
        "lastAttemptAt": NOW,
        "updatedAt": NOW,
    }

    def lease(size: int) -> int:
        if size == 1:
            change = {"$set": sets, "$inc": {"attemptCount": 1, "_version": Int64(1)}}
            found = collection.find_one_and_update(
                due, change, sort=order, return_document=ReturnDocument.AFTER
            )
            return int(found is not None)
        keys = [row["_id"] for row in collection.find(due, {"_id": 1}).sort(order).limit(size)]
        version = Int64(getrandbits(61))
        change = {"$set": {**sets, "_version": version}, "$inc": {"attemptCount": 1}}
        collection.update_many({"_id": {"$in": keys}, **due}, change)
        return len(list(collection.find({"_id": {"$in": keys}, "_version": version})))

    return lease


@contextmanager
def postgres_claims(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Leases on PostgreSQL, and the job fetch of other queues on the same server."""
    jobs = options.operations * QUEUES
    pool: ConnectionPool[Connection[tuple[Any, ...]]] = ConnectionPool(
        databases.app_url, kwargs={"autocommit": True}, min_size=1, open=False
    )
    with ExitStack() as stack:
        storage = stack.enter_context(add_scheduler_postgres_storage(databases.settings()))
        stack.enter_context(pool)
        superuser = stack.enter_context(closing(databases.superuser()))
        enqueue(storage.policy_run_service, jobs)
        superuser.execute(f"CREATE TABLE IF NOT EXISTS {TEMPLATE} AS TABLE scheduler.policy_jobs")

        def refill() -> None:
            for statement in REFILL:
                superuser.execute(statement)

        ways = {"bare": by_psycopg(pool), "lease": by_repository(storage.policy_jobs)}
        cases = cases_of(ways, options.operations, refill)
        cases += stack.enter_context(rivals(databases, options.operations, QUEUES, BATCH))
        title = "Leases of policy jobs, PostgreSQL"
        yield Group(name="postgres-claims", title=title, unit="jobs", cases=cases)
        superuser.execute(f"TRUNCATE scheduler.policy_jobs; DROP TABLE {TEMPLATE}")


@contextmanager
def mongo_claims(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """Leases on MongoDB."""
    collection = databases.runs().database["policy_jobs"]
    with add_scheduler_mongo_storage(databases.settings()) as storage:
        enqueue(storage.policy_run_service, options.operations * QUEUES)
        template = collection.database[TEMPLATE]
        collection.aggregate([{"$out": TEMPLATE}])

        def refill() -> None:
            collection.delete_many({})
            template.aggregate([{"$merge": collection.name}])

        ways = {"bare": by_pymongo(collection), "lease": by_repository(storage.policy_jobs)}
        cases = cases_of(ways, options.operations, refill)
        yield Group(name="mongo-claims", title="Leases of policy jobs, MongoDB", unit="jobs", cases=cases)
        template.drop()
        collection.delete_many({})
