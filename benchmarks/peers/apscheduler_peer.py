"""APScheduler 4, through its own data store; dependency group ``bench``."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from benchmarks.peers.contender import FIRES, WAITING, AsyncContender, AsyncStep, Endpoints, Kind, Work
from benchmarks.peers.stock import CRON, Need, emptied, stocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.databases import BenchmarkDatabases

__all__ = ["Apscheduler", "apscheduler_stock"]

LEASE: Final = timedelta(minutes=1)
PAGE: Final = 100
TASK: Final = "bench"
# Through its own interface each of them would take milliseconds.
MORE: Final = """
INSERT INTO jobs SELECT (jsonb_populate_record(job, jsonb_build_object('id', gen_random_uuid()))).*
  FROM jobs AS job, generate_series(2, %s)
"""
# It is due since the first instant after this.
SINCE: Final = datetime.now(UTC) - timedelta(days=2)


async def opened(stack: AsyncExitStack, url: str) -> Any:  # noqa: ANN401  # a library without a fixed place
    """Open its data store; the stack closes it."""
    engines: Any = import_module("sqlalchemy.ext.asyncio")
    stores: Any = import_module("apscheduler.datastores.sqlalchemy")
    brokers: Any = import_module("apscheduler.eventbrokers.local")
    engine = engines.create_async_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    stack.push_async_callback(engine.dispose)
    store, broker, log = (
        stores.SQLAlchemyDataStore(engine),
        brokers.LocalEventBroker(),
        logging.getLogger("bench"),
    )
    await broker.start(stack, log)
    await store.start(stack, broker, log)
    return store


def new_job(number: int) -> Any:  # noqa: ANN401  # its job
    """Return a job with arguments like those of ours."""
    library: Any = import_module("apscheduler")
    inputs = {"sbomSet": [f"sbom:{number}:{part}" for part in range(4)]}
    return library.Job(task_id=TASK, executor="async", kwargs={"inputs": inputs})


def apscheduler_stock(databases: BenchmarkDatabases, need: Need) -> Callable[[Kind, int], None]:
    """Create its tables and fill them; return what fills them again.

    Raises:
        ImportError: it is not installed.
    """
    library: Any = import_module("apscheduler")
    crons: Any = import_module("apscheduler.triggers.cron")

    async def fill() -> None:
        async with AsyncExitStack() as stack:
            store = await opened(stack, databases.superuser_url)
            await store.add_task(library.Task(id=TASK, func="benchmarks:bench", job_executor="async"))
            await store.add_job(new_job(0))
            for number in range(need.schedules):
                trigger = crons.CronTrigger.from_crontab(CRON, start_time=SINCE, timezone=UTC)
                made = library.Schedule(
                    id=f"bench-{number}",
                    task_id=TASK,
                    trigger=trigger,
                    next_fire_time=trigger.next(),
                    job_executor="async",
                )
                await store.add_schedule(made, library.ConflictPolicy.replace)

    emptied(databases, "jobs", "schedules")
    asyncio.run(fill())
    with closing(databases.superuser()) as connection:
        connection.execute(MORE, [need.jobs])
    with_jobs = stocked(databases, "jobs", "job_results")
    with_schedules = stocked(databases, "schedules", "jobs")

    def refill(kind: Kind, amount: int) -> None:
        if kind in FIRES:
            with_schedules(amount)
        else:
            with_jobs(amount if kind in WAITING else 0)

    return refill


class Apscheduler(AsyncContender):
    """A worker that calls what the scheduler of APScheduler calls."""

    def __init__(self, endpoints: Endpoints, worker: str) -> None:
        self._library: Any = import_module("apscheduler")
        self._results: Any = import_module("apscheduler._structures")
        self._url = endpoints.superuser_url
        self._worker = worker
        super().__init__()

    @override
    async def open(self, stack: AsyncExitStack) -> None:
        self._store = await opened(stack, self._url)

    @override
    async def prepare(self, work: Work) -> AsyncStep:
        steps: dict[Kind, Callable[[int], Any]] = {
            Kind.CLAIM: self._claim,
            Kind.PROCESS: self._process,
            Kind.LIFE: self._life,
            Kind.FIRE: self._fire,
        }
        chosen, size = steps[work.kind], work.size
        return lambda: chosen(size)

    async def _claim(self, size: int) -> int:
        return len(await self._store.acquire_jobs(self._worker, LEASE, size))

    async def _process(self, size: int) -> int:
        found = await self._store.acquire_jobs(self._worker, LEASE, size)
        for job in found:
            outcome = self._library.JobOutcome.success
            result = self._library.JobResult.from_job(job, outcome)
            await self._store.release_job(self._worker, job, result)
        return len(found)

    async def _life(self, size: int) -> int:
        await self._store.add_job(new_job(0))
        return await self._process(size)

    async def _fire(self, size: int) -> int:
        """Add the jobs of a hundred due schedules, one by one as its scheduler does, and release them."""
        del size
        schedules = await self._store.acquire_schedules(self._worker, LEASE, PAGE)
        now = datetime.now(UTC)
        results = []
        for schedule in schedules:
            due = schedule.next_fire_time
            following = schedule.trigger.next()
            while following is not None and following <= now:  # coalesced into the latest, its default
                due, following = following, schedule.trigger.next()
            fired = self._library.Job(
                task_id=TASK, schedule_id=schedule.id, scheduled_fire_time=due, executor="async"
            )
            await self._store.add_job(fired)
            results.append(
                self._results.ScheduleResult(
                    schedule_id=schedule.id,
                    task_id=TASK,
                    trigger=schedule.trigger,
                    last_fire_time=due,
                    next_fire_time=following,
                )
            )
        if results:
            await self._store.release_schedules(self._worker, results)
        return len(results)
