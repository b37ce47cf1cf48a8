"""Other job queues on the same PostgreSQL, through their own Python interface; dependency group ``bench``.

Each is asked for the next job, or the next hundred where it can be, until so many were handed out.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack, closing, contextmanager
from datetime import timedelta
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from benchmarks.schedule import Case, Sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.databases import BenchmarkDatabases

    Fetch = Callable[[int], Awaitable[int]]

__all__ = ["rivals"]

MISSING: Final = "{} is not installed, so it is not measured; run: pip install --group bench\n"
LEASE: Final = timedelta(minutes=1)
# Without their triggers, which tell every insert to listeners; the fetch itself is measured with them.
QUIET: Final = "SET session_replication_role = replica"


@contextmanager
def rivals(databases: BenchmarkDatabases, operations: int, queues: int, batch: int) -> Iterator[list[Case]]:
    """Open the queues that are installed and return their cases."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        cases, done = loop.create_future(), asyncio.Event()

        async def held() -> None:
            """Keep the queues open; what a task has opened it must close itself."""
            found: list[Case] = []
            async with AsyncExitStack() as stack:
                for opened in (procrastinate, apscheduler):
                    try:
                        found += await opened(stack, runner, databases, operations, queues, batch)
                    except ImportError:
                        sys.stderr.write(MISSING.format(opened.__name__))
                cases.set_result(found)
                await done.wait()

        holder = loop.create_task(held())
        loop.run_until_complete(asyncio.wait({cases, holder}, return_when=asyncio.FIRST_COMPLETED))
        try:
            # Whatever kept the queues from being opened comes out of the task.
            if not cases.done():
                holder.result()
            yield cases.result()
        finally:
            done.set()
            loop.run_until_complete(holder)


async def procrastinate(  # noqa: PLR0917  # what every queue is told
    stack: AsyncExitStack,
    runner: asyncio.Runner,
    databases: BenchmarkDatabases,
    operations: int,
    queues: int,
    batch: int,
) -> list[Case]:
    """Procrastinate hands out one job at a time."""
    del batch
    library: Any = import_module("procrastinate")
    jobs: Any = import_module("procrastinate.jobs")
    connector = library.PsycopgConnector(conninfo=databases.superuser_url)
    app = library.App(connector=connector)
    await stack.enter_async_context(app.open_async())
    await app.schema_manager.apply_schema_async()
    manager = app.job_manager
    worker = await manager.register_worker()
    made = [
        jobs.Job(
            id=None,
            queue="bench",
            lock=None,
            queueing_lock=None,
            task_name="bench",
            task_kwargs={"inputs": {"sbomSet": [f"sbom:{number}:{part}" for part in range(4)]}},
        )
        for number in range(operations * queues)
    ]
    await manager.batch_defer_jobs_async(made)

    async def fetch(size: int) -> int:
        del size
        return int(await manager.fetch_job(None, worker) is not None)

    refill = refilled(databases, "procrastinate_jobs", "procrastinate_events")
    return [case(runner, "procrastinate, one", fetch, (1, operations), refill)]


async def apscheduler(  # noqa: PLR0917  # what every queue is told
    stack: AsyncExitStack,
    runner: asyncio.Runner,
    databases: BenchmarkDatabases,
    operations: int,
    queues: int,
    batch: int,
) -> list[Case]:
    """APScheduler hands out as many jobs as it is asked for."""
    library: Any = import_module("apscheduler")
    brokers: Any = import_module("apscheduler.eventbrokers.local")
    stores: Any = import_module("apscheduler.datastores.sqlalchemy")
    engines: Any = import_module("sqlalchemy.ext.asyncio")
    url = databases.superuser_url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = engines.create_async_engine(url)
    stack.push_async_callback(engine.dispose)
    store, broker, log = (
        stores.SQLAlchemyDataStore(engine),
        brokers.LocalEventBroker(),
        logging.getLogger("bench"),
    )
    await broker.start(stack, log)
    await store.start(stack, broker, log)
    await store.add_task(library.Task(id="bench", func="benchmarks:bench", job_executor="async"))
    for number in range(operations * queues):
        inputs = {"sbomSet": [f"sbom:{number}:{part}" for part in range(4)]}
        await store.add_job(library.Job(task_id="bench", executor="async", kwargs={"inputs": inputs}))

    async def fetch(size: int) -> int:
        return len(await store.acquire_jobs("bench", LEASE, size))

    refill = refilled(databases, "jobs")
    return [
        case(runner, "apscheduler, one", fetch, (1, operations), refill),
        case(runner, f"apscheduler, {batch}", fetch, (batch, operations * queues), refill),
    ]


def refilled(databases: BenchmarkDatabases, jobs: str, *emptied: str) -> Callable[[], None]:
    """Keep the jobs that wait now; return what brings all of them back."""
    template = f"bench_{jobs}"
    tables = ", ".join((jobs, *emptied))

    def execute(*statements: str) -> None:
        with closing(databases.superuser()) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    execute(f"DROP TABLE IF EXISTS {template}", f"CREATE TABLE {template} AS TABLE {jobs}")
    back = f"INSERT INTO {jobs} OVERRIDING SYSTEM VALUE SELECT * FROM {template}"  # noqa: S608  # names of tables
    return lambda: execute(QUIET, f"TRUNCATE {tables} CASCADE", back, f"VACUUM ANALYZE {jobs}")


def case(
    runner: asyncio.Runner, name: str, fetch: Fetch, amount: tuple[int, int], prepare: Callable[[], None]
) -> Case:
    """Return what is measured: so many jobs, so many at a time."""
    size, jobs = amount

    async def drain() -> Sample:
        left = jobs
        began = perf_counter()
        while left > 0:
            found = await fetch(min(size, left))
            if not found:
                raise RuntimeError(f"the queue of {name} ran dry")
            left -= found
        return Sample(units=jobs, seconds=perf_counter() - began)

    return Case(name=name, run=lambda: runner.run(drain()), prepare=prepare)
