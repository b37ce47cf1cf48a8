"""The repeated work of a worker process, and how it counts and times it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

__all__ = [
    "FIRES",
    "WAITING",
    "AsyncContender",
    "AsyncStep",
    "Contender",
    "Endpoints",
    "Kind",
    "Step",
    "Tally",
    "Watch",
    "Work",
]

Step = Callable[[], int]
"""Does one thing, and returns how many jobs, firings or locks that were; 0 where there was none to have."""
AsyncStep = Callable[[], Awaitable[int]]
Drive = Callable[["Watch"], None]


class Kind(StrEnum):
    """What is done.

    A claim leaves the job leased. ``PROCESS`` takes waiting jobs through their lives, ``LIFE`` also
    enqueues them. Workers fire a page of due schedules in its order, or each in a different order. A lock
    is acquired and released.
    """

    CLAIM = "claim"
    PROCESS = "process"
    LIFE = "life"
    FIRE = "fire"
    FIRE_SPREAD = "fire in an order of its own"
    WORKER = "the worker of a peer"
    LOCK = "lock"
    LOCK_RECONNECT = "lock on a connection opened for it"


# Seconds that a worker has longer for the first thing it finds: on a busy machine a slice may be too short.
FIRST_STEP_GRACE: Final = 5.0
FIRES: Final = frozenset({Kind.FIRE, Kind.FIRE_SPREAD})
WAITING: Final = frozenset({Kind.CLAIM, Kind.PROCESS, Kind.WORKER})
"""What is done to jobs that wait already."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work for a worker.

    Attributes:
        contender: the name of the way to do it.
        size: how many jobs are requested at once.
    """

    contender: str
    kind: Kind
    size: int = 1


@dataclass(frozen=True, slots=True)
class Endpoints:
    """How a worker process reaches the servers.

    Attributes:
        app_url: PostgreSQL in the role of an application, under row-level security.
        superuser_url: for the peers, which have no tenants.
        settings: of this library, by driver.
    """

    mongo_url: str
    mongo_database: str
    app_url: str
    superuser_url: str
    settings: dict[str, dict[str, Any]]


@dataclass(slots=True)
class Tally:
    """What one worker has done in one slice.

    Attributes:
        seconds: from the common start to the end of the last step that found something.
        processor: processor seconds of the process.
        waits: seconds of each step that found something, or of what it waited for.
    """

    units: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    waits: list[float] = field(default_factory=list[float])


class Watch:
    """Signals a worker when to stop, and keeps its tally.

    Args:
        start: the instant of ``perf_counter`` at which all workers begin.
        left: how much of the prepared work is not taken yet; workers share it.
    """

    def __init__(self, start: float, seconds: float, left: Synchronized[int]) -> None:
        self.tally = Tally()
        self._start, self._end = start, start + seconds
        self._left = left
        self._processor = process_time()

    @property
    def is_running(self) -> bool:
        """Whether there is time and something left; each worker has a little more time for its first step."""
        end = self._end if self.tally.units else self._end + FIRST_STEP_GRACE
        return self._left.value > 0 and perf_counter() < end

    def note(self, units: int, began: float, waited: float | None = None) -> None:
        """Count what a step has done."""
        if not units:
            return
        now = perf_counter()
        self.tally.units += units
        self.tally.seconds = now - self._start
        self.tally.waits.append(now - began if waited is None else waited)
        with self._left.get_lock():
            self._left.value -= units

    def closed(self) -> Tally:
        """Return the tally of the whole slice."""
        self.tally.processor = process_time() - self._processor
        return self.tally


class Contender(ABC):
    """One way to do the work, in one worker process.

    Attributes:
        waited: how long the last step waited, where that is not all of it.
    """

    waited: float | None = None

    @abstractmethod
    def step(self, work: Work) -> Step:
        """Return what is done over and over; what it needs is prepared here, outside of the measurement."""

    @abstractmethod
    def close(self) -> None:
        """Close what was opened."""

    def made(self, work: Work) -> Drive:
        """Return what does some work until its watch says stop."""
        step = self.step(work)

        def drive(watch: Watch) -> None:
            while watch.is_running:
                began = perf_counter()
                units = step()
                watch.note(units, began, self.waited)

        return drive


class AsyncContender(ABC):
    """The same for libraries whose own interface is asynchronous; all of a slice runs in one event loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._done = asyncio.Event()
        loop = self._runner.get_loop()
        opened = loop.create_future()
        self._holder = loop.create_task(self._held(opened))
        loop.run_until_complete(asyncio.wait({opened, self._holder}, return_when=asyncio.FIRST_COMPLETED))
        if self._holder.done():
            self._holder.result()  # raises what kept it from being opened

    async def _held(self, opened: asyncio.Future[None]) -> None:
        """Keep everything open in one task: what a task has opened it must close itself."""
        async with AsyncExitStack() as stack:
            await self.open(stack)
            opened.set_result(None)
            await self._done.wait()

    def close(self) -> None:
        """Close what was opened."""
        self._done.set()
        self._runner.get_loop().run_until_complete(self._holder)
        self._runner.close()

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None:
        """Open the library; the stack closes it."""

    @abstractmethod
    async def prepare(self, work: Work) -> AsyncStep:
        """Return what is done over and over; what it needs is prepared here, outside of the measurement."""

    def made(self, work: Work) -> Drive:
        """Return what does some work until its watch says stop."""
        step = self._runner.run(self.prepare(work))

        async def drive(watch: Watch) -> None:
            while watch.is_running:
                began = perf_counter()
                watch.note(await step(), began)

        return lambda watch: self._runner.run(drive(watch))
