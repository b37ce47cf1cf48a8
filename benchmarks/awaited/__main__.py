"""``python -m benchmarks.awaited``: 64 calls at once on one core, by the facade, natively, and in threads.

All ways take turns in every round, in one process that is bound to one core; the servers may use the others.
A figure is the median of the rounds. Requests per second depend on what else the machine does; the processor
time of a call does so far less.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from argparse import ArgumentParser
from collections import defaultdict
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pymongo import AsyncMongoClient
from rich.console import Console
from rich.table import Table

import twinstore
from benchmarks.awaited.calls import CALLS, Calls, Numbers, fill
from benchmarks.awaited.native_mongo import OwnMongo, PlainMongo
from benchmarks.awaited.native_postgres import OwnPostgres, PlainPostgres, open_pool
from benchmarks.databases import SOURCE, open_databases
from twinstore import aio
from twinstore.config import load_settings
from twinstore.plugins.drivers import load_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from benchmarks.awaited.calls import AwaitedCalls
    from benchmarks.databases import BenchmarkDatabases
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_postgres.settings import PostgresSettings

__all__ = ["main"]

FACADE, NATIVE, PLAIN, THREADS = "twinstore.aio", "native", "client alone", "threads"
WAYS: Final = (FACADE, NATIVE, PLAIN, THREADS)
CONNECTIONS: Final = 10
WARM_UP_SECONDS: Final = 0.3


class Measurement(NamedTuple):
    """One turn: calls per second, and microseconds of processor time of this process for one call."""

    rate: float
    cost: float


Samples = dict[tuple[str, str, str], list[Measurement]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table for each store."""
    parser = ArgumentParser(prog="python -m benchmarks.awaited", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="in which all ways take their turn (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn (%(default)s)")
    parser.add_argument("--at-once", type=int, default=64, help="tasks, and threads (%(default)s)")
    parser.add_argument(
        "--directory", type=Path, default=Path(".bench/awaited"), help="servers (%(default)s)"
    )
    options = parser.parse_args(arguments)
    samples: Samples = defaultdict(list)
    # One core after the servers have started: they may have the others.
    with open_databases(options.directory, durable=False) as databases, on_one_core():
        before = os.getloadavg()[0]
        for driver in ("Postgres", "Mongo"):
            with twinstore.open_storage(databases.settings(driver)) as storage:
                fill(storage.scheduler)
                bench = Bench(
                    databases=databases,
                    storage=storage,
                    driver=driver,
                    at_once=options.at_once,
                    seconds=options.seconds,
                    samples=samples,
                )
                asyncio.run(bench.measure(options.rounds))
    console = Console(width=None if sys.stdout.isatty() else 130)
    for driver in ("Postgres", "Mongo"):
        console.print(table_of(driver, samples), "")
    console.print(f"load before: {before:.1f}; {options.at_once} at once, {options.rounds} rounds.")


@contextmanager
def on_one_core() -> Iterator[None]:
    """Bind this process to one core where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The ways to one store, which take turns.

    Attributes:
        storage: the synchronous one.
        at_once: how many tasks or threads.
        seconds: of a turn.
        samples: where the figures go.
    """

    databases: BenchmarkDatabases
    storage: twinstore.Storage
    driver: str
    at_once: int
    seconds: float
    samples: Samples

    async def measure(self, rounds: int) -> None:
        """Let every way take its turn with every call."""
        async with AsyncExitStack() as stack:
            ways = {name: way async for name, way in self._opened(stack)}
            for number in range(rounds + 1):
                for call in CALLS:
                    for name in WAYS:
                        # The first round only warms up.
                        seconds = self.seconds if number else WARM_UP_SECONDS
                        measurement = await self._measure(
                            getattr(ways[name], call), seconds, threads=name == THREADS
                        )
                        if number:
                            self.samples[self.driver, call, name].append(measurement)
                sys.stderr.write(f"{self.driver}: round {number} of {rounds}\n")

    async def _opened(self, stack: AsyncExitStack) -> AsyncIterator[tuple[str, AwaitedCalls | Calls]]:
        settings = self.databases.settings(self.driver)
        opened = await stack.enter_async_context(aio.open_storage(settings))
        # Its calls have the same names and arguments, and are awaited.
        yield FACADE, Calls(cast("SchedulerStorage", opened.scheduler))
        yield THREADS, Calls(self.storage.scheduler)
        if self.driver == "Postgres":
            spec = load_backend("Postgres")
            found = cast("PostgresSettings", load_settings(settings).backend_settings("scheduler", spec))
            pool = await open_pool(found, CONNECTIONS)
            stack.push_async_callback(pool.close)
            yield NATIVE, OwnPostgres(pool)
            yield PLAIN, PlainPostgres(pool)
        else:
            client = AsyncMongoClient[dict[str, Any]](self.databases.mongo_url, timeoutMS=30_000)
            stack.push_async_callback(client.close)
            yield NATIVE, OwnMongo(client, SOURCE)
            yield PLAIN, PlainMongo(client, SOURCE)

    async def _measure(self, call: Callable[[int], Any], seconds: float, *, threads: bool) -> Measurement:
        numbers, begin, used = Numbers(), perf_counter(), process_time()
        done = await (self._in_threads if threads else self._in_tasks)(call, begin + seconds, numbers)
        return Measurement(done / (perf_counter() - begin), 1e6 * (process_time() - used) / done)

    async def _in_tasks(self, call: Callable[[int], Awaitable[object]], end: float, numbers: Numbers) -> int:
        async def lane() -> int:
            done = 0
            while perf_counter() < end:
                await call(numbers.next())
                done += 1
            return done

        return sum(await asyncio.gather(*(lane() for _ in range(self.at_once))))

    async def _in_threads(self, call: Callable[[int], object], end: float, numbers: Numbers) -> int:
        """Use as many threads as the driver serves at a time, as a web framework would be configured."""
        done = [0] * min(self.at_once, self.storage.scheduler.concurrency)

        def lane(number: int) -> None:
            while perf_counter() < end:
                call(numbers.next())
                done[number] += 1

        lanes = [threading.Thread(target=lane, args=(number,)) for number in range(len(done))]
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()
        return sum(done)


def table_of(driver: str, samples: Mapping[tuple[str, str, str], list[Measurement]]) -> Table:
    """Return calls per second and processor time, each also as a ratio to the facade."""
    table = Table(
        "call", *WAYS, "native / aio", "CPU aio / native", title=f"{driver}: calls/s (µs of CPU per call)"
    )
    for call in CALLS:
        rates = {
            name: median(measurement.rate for measurement in samples[driver, call, name]) for name in WAYS
        }
        costs = {
            name: median(measurement.cost for measurement in samples[driver, call, name]) for name in WAYS
        }
        ratios = [
            median(
                native.rate / facade.rate
                for native, facade in zip(
                    samples[driver, call, NATIVE], samples[driver, call, FACADE], strict=True
                )
            ),
            costs[FACADE] / costs[NATIVE],
        ]
        cells = [f"{rates[name]:,.0f} ({costs[name]:.0f})" for name in WAYS]
        table.add_row(call, *cells, *(f"{ratio:.2f}" for ratio in ratios))
    return table


if __name__ == "__main__":
    main()
