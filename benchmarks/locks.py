"""Locks under contention: how often one is acquired, and how long each of some holders waits for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from statistics import median, quantiles
from threading import local
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

import psycopg

from benchmarks.schedule import Case, Group, Sample
from twinstore import add_scheduler_mongo_storage, add_scheduler_postgres_storage
from twinstore.scheduler.locks import lock_number
from twinstore.scheduler.repositories.locks import pauses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from twinstore.scheduler.storage import SchedulerStorage

__all__ = ["mongo_locks", "postgres_locks"]

KEY: Final = "bench"
HOLDERS: Final = (1, 4, 16)
PATIENCE: Final = timedelta(minutes=5)
LEASE: Final = timedelta(minutes=1)
# A turn takes milliseconds, a single operation a fraction of one.
OPERATIONS_PER_TURN: Final = 10
NUMBER: Final = lock_number("system", "bare")
TRY: Final = "SELECT pg_try_advisory_lock(%s)"
UNLOCK: Final = "SELECT pg_advisory_unlock(%s)"

Release = Callable[[], object]
Acquire = Callable[[], Release]
"""Waits for the lock and returns what gives it up."""


def contended(acquire: Acquire, holders: int, turns: int) -> Sample:
    """Let holders, each a thread, take the lock so often all together; they do nothing while they have it."""
    numbers = count()

    def work(_: int) -> list[float]:
        waits: list[float] = []
        while next(numbers) < turns:
            begun = perf_counter()
            release = acquire()
            waits.append(perf_counter() - begun)
            release()
        return waits

    with ThreadPoolExecutor(holders) as pool:
        begun = perf_counter()
        waits = [wait for found in pool.map(work, range(holders)) for wait in found]
        seconds = perf_counter() - begun
    return Sample(
        units=len(waits),
        seconds=seconds,
        wait_seconds=median(waits),
        long_wait_seconds=quantiles(waits, n=20)[-1],
    )


def waiting(attempt: Callable[[], Release | None]) -> Acquire:
    """Return what repeats an attempt as the library does."""

    def acquire() -> Release:
        for pause in pauses(monotonic() + PATIENCE.total_seconds()):
            sleep(pause)
            release = attempt()
            if release is not None:
                return release
        raise TimeoutError

    return acquire


def ours(storage: SchedulerStorage) -> Acquire:
    """Return what acquires through the library."""
    return lambda: storage.locks.acquire(KEY, PATIENCE, lease=LEASE).release


def cases(options: Options, bare: dict[str, Acquire], library: Acquire) -> list[Case]:
    """Return every way to acquire at every number of holders."""
    turns = max(options.operations // OPERATIONS_PER_TURN, 2)
    found: list[Case] = []
    for holders in HOLDERS:
        named = {f"{name}, {holders}": acquire for name, acquire in bare.items()}
        found += [
            Case(name=name, run=partial(contended, acquire, holders, turns))
            for name, acquire in named.items()
        ]
        found.append(
            Case(
                name=f"lock, {holders}",
                run=partial(contended, library, holders, turns),
                against=tuple(named),
            )
        )
    return found


@contextmanager
def postgres_locks(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """The lock beside the bare advisory lock, on a connection opened for it and on one that is kept."""
    settings = databases.settings("Postgres")
    settings["Persistence"]["Postgres"]["LockConnectionsMax"] = max(HOLDERS)
    with add_scheduler_postgres_storage(settings) as storage, ExitStack() as kept:
        mine = local()

        def of_thread() -> psycopg.Connection:
            if not hasattr(mine, "connection"):
                mine.connection = kept.enter_context(closing(connected(databases)))
            found: psycopg.Connection = mine.connection
            return found

        bare: dict[str, Acquire] = {
            "advisory lock, own connection": partial(opened, databases),
            "advisory lock, connection kept": waiting(lambda: advisory(of_thread())),
        }
        yield Group(
            name="locks on PostgreSQL",
            title="Locks, PostgreSQL: acquired by 1, 4 and 16 holders",
            unit="locks",
            cases=cases(options, bare, ours(storage)),
        )


def connected(databases: BenchmarkDatabases) -> psycopg.Connection:
    """Open a connection of the application role."""
    return psycopg.connect(databases.app_url, autocommit=True)


def advisory(connection: psycopg.Connection) -> Release | None:
    """Try the advisory lock once."""
    if connection.execute(TRY, [NUMBER]).fetchone() != (True,):
        return None
    return lambda: connection.execute(UNLOCK, [NUMBER])


def opened(databases: BenchmarkDatabases) -> Release:
    """Open a connection, wait for the advisory lock on it, and return what closes it."""
    connection = connected(databases)
    release = waiting(lambda: advisory(connection))()

    def close() -> None:
        release()
        connection.close()

    return close


@contextmanager
def mongo_locks(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
    """The lock beside the bare ``findOneAndUpdate`` of a lease document."""
    leases = databases.client["twinstore_bench"]["bare_leases"]
    leases.update_one({"_id": KEY}, {"$setOnInsert": {"free": True, "fence": 0}}, upsert=True)

    def attempt() -> Release | None:
        change: dict[str, Any] = {"$set": {"free": False}, "$inc": {"fence": 1}}
        if leases.find_one_and_update({"_id": KEY, "free": True}, change) is None:
            return None
        return lambda: leases.find_one_and_update({"_id": KEY}, {"$set": {"free": True}})

    with add_scheduler_mongo_storage(databases.settings()) as storage:
        yield Group(
            name="locks on MongoDB",
            title="Locks, MongoDB: acquired by 1, 4 and 16 holders",
            unit="locks",
            cases=cases(options, {"findOneAndUpdate": waiting(attempt)}, ours(storage)),
        )
