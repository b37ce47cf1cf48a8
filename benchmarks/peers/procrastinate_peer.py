"""Procrastinate, through its own Python interface; dependency group ``bench``."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from benchmarks.peers.contender import WAITING, AsyncContender, AsyncStep, Endpoints, Kind, Work
from benchmarks.peers.stock import Need, emptied, stocked
from twinstore.scheduler.repositories.locks import backoff_delays

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.databases import BenchmarkDatabases

__all__ = ["Procrastinate", "procrastinate_stock"]

QUEUE: Final = "bench"
TASK: Final = "bench"
INSTANT: Final = 1_700_000_000
SCHEDULES: Final = 100_000


def job(number: int, lock: str | None = None) -> Any:  # noqa: ANN401  # a library without a fixed place
    """Return a job with arguments like those of ours."""
    return import_module("procrastinate.jobs").Job(
        id=None,
        queue=QUEUE,
        lock=lock,
        queueing_lock=None,
        task_name=TASK,
        task_kwargs={"inputs": {"sbomSet": [f"sbom:{number}:{part}" for part in range(4)]}},
    )


def procrastinate_stock(databases: BenchmarkDatabases, need: Need) -> Callable[[Kind, int], None]:
    """Create its tables and fill them; return what fills them again.

    Raises:
        ImportError: it is not installed.
    """
    library: Any = import_module("procrastinate")

    async def fill() -> None:
        connector = library.PsycopgConnector(conninfo=databases.superuser_url)
        async with library.App(connector=connector).open_async() as app:
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()
            if need.jobs or need.locks:
                lock = QUEUE if need.locks else None
                made = [job(number, lock) for number in range(need.locks or need.jobs)]
                await app.job_manager.batch_defer_jobs_async(made)

    emptied(databases, "procrastinate_jobs")
    asyncio.run(fill())
    back = stocked(databases, "procrastinate_jobs", "procrastinate_events", "procrastinate_periodic_defers")
    return lambda kind, amount: back(amount if kind in {*WAITING, Kind.LOCK} else 0)


class Procrastinate(AsyncContender):
    """A worker that calls what the worker of procrastinate calls, or that worker itself."""

    def __init__(self, endpoints: Endpoints, worker: str) -> None:
        library: Any = import_module("procrastinate")
        self._succeeded = import_module("procrastinate.jobs").Status.SUCCEEDED
        connector = library.PsycopgConnector(conninfo=endpoints.superuser_url, min_size=1)
        self._app = library.App(connector=connector)
        self._worker: int | None = None
        self._count = 0
        self._numbers = count()

        self._app.task(self._work, name=TASK, queue=QUEUE)
        del worker
        super().__init__()

    @override
    async def open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._app.open_async())

    @override
    async def prepare(self, work: Work) -> AsyncStep:
        # Registered again each time: its own worker removes those without a heartbeat for half a minute.
        self._worker = await self._app.job_manager.register_worker()
        self._numbers = count()
        steps: dict[Kind, AsyncStep] = {
            Kind.CLAIM: self._claim,
            Kind.WORKER: self._run_worker,
            Kind.LIFE: self._life,
            Kind.FIRE: self._fire,
            Kind.LOCK: self._lock,
        }
        return steps[work.kind]

    async def _work(self, **_: object) -> None:
        """Count; the task of the jobs that its own worker runs."""
        self._count += 1

    async def _claim(self) -> int:
        return int(await self._fetched() is not None)

    async def _fetched(self) -> Any:  # noqa: ANN401  # its job
        return await self._app.job_manager.fetch_job(None, self._worker)

    async def _finished(self, found: Any) -> int:  # noqa: ANN401  # its job
        await self._app.job_manager.finish_job(found, self._succeeded, delete_job=False)
        return 1

    async def _life(self) -> int:
        await self._app.job_manager.defer_job_async(job(0))
        found = await self._fetched()
        return 0 if found is None else await self._finished(found)

    async def _run_worker(self) -> int:
        """Let its worker run, one job at a time as it does by default, until nothing waits."""
        self._count = 0
        await self._app.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)
        return self._count

    async def _fire(self) -> int:
        """Defer one periodic task for one instant, as its deferrer does for each of them in turn."""
        name = f"bench-{next(self._numbers) % SCHEDULES}"
        made = job(0).evolve(task_kwargs={"timestamp": INSTANT})
        deferred = await self._app.job_manager.defer_periodic_job(made, name, INSTANT)
        return int(deferred is not None)

    async def _lock(self) -> int:
        """Fetch a job that excludes other jobs with its lock, and finish it."""
        for pause in backoff_delays(float("inf")):
            await asyncio.sleep(pause)
            found = await self._fetched()
            if found is not None:
                return await self._finished(found)
        return 0
