"""A small service: threads and asyncio tasks that serve several tenants from one process.

It forks, gives calls up and overcrowds its pool while it works. At the end it stands still until the server
was asked what is open, shows that its pools have lost no connection, closes them, and looks for what is left.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
import time
import traceback
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import TYPE_CHECKING, Final

import twinstore
from tests.soak.awaited import AwaitedLane
from tests.soak.calls import Lane, counter_of
from tests.soak.faults.forks import Forks
from tests.soak.faults.pools import crowd
from tests.soak.notes import Notes
from tests.soak.plan import NANOSECONDS, SERVED, Fault, disturbances_of
from tests.soak.remains import Remains
from twinstore import aio

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.gates import Gate
    from tests.soak.journal import Journal
    from tests.soak.plan import Plan
    from twinstore.aio import AsyncSchedulerStorage
    from twinstore.scheduler.storage import SchedulerStorage

__all__ = ["Service"]

THREADS: Final = 2
TASKS: Final = 4
# Longer than any call may take.
JOIN_SECONDS: Final = 30.0
# Longer than a service needs for its end.
STUCK_SECONDS: Final = 75.0
# For as many units at once as there are connections, with nobody else there.
ENTRY_SECONDS: Final = 25.0


@dataclass(slots=True)
class Service:
    """One process.

    Attributes:
        plan: what is done.
        journal: of all processes.
        name: its own, and the seed of its choices.
        gate: where it waits at the end.
    """

    plan: Plan
    journal: Journal
    name: str
    gate: Gate
    _tasks_end: Event = field(default_factory=Event)
    _go_on: Event = field(default_factory=Event)

    def run(self) -> None:
        """Serve until the time is over, and tell what is left then."""
        self.gate.enter()
        before = Remains.now()
        # Whatever stands still for so long says where.
        rest = (self.plan.end - time.monotonic_ns()) / NANOSECONDS
        faulthandler.dump_traceback_later(rest + STUCK_SECONDS)
        tasks = Thread(target=lambda: asyncio.run(self._serve_tasks()), name="tasks", daemon=True)
        with twinstore.open_storage(self.plan.settings) as opened:
            storage = opened.scheduler
            tasks.start()
            self._serve(storage)
            self._awaited("tasks", self._tasks_end.wait(JOIN_SECONDS), tasks)
            self.gate.wait()
            self._go_on.set()
            self._check_room(storage)
            self._joined([tasks])
        faulthandler.cancel_dump_traceback_later()
        for found in before.left_over():
            self.journal.add("leaked", seen=f"{found} of {self.name}")

    def _goes_on(self) -> bool:
        return time.monotonic_ns() < self.plan.end

    def _until(self, instant: float) -> Callable[[], bool]:
        return lambda: self._goes_on() and time.monotonic() < instant

    # Threads

    def _serve(self, storage: SchedulerStorage) -> None:
        lanes = [self._lane(storage, f"thread-{number}") for number in range(THREADS)]
        threads = [
            Thread(target=lane.work, args=(self._goes_on,), name=lane.notes.lane, daemon=True)
            for lane in lanes
        ]
        for thread in threads:
            thread.start()
        self._serve_disturbed(self._lane(storage, "main"))
        self._joined(threads)

    def _lane(self, storage: SchedulerStorage, name: str) -> Lane:
        lane = f"{self.name}/{name}"
        return Lane(storage, Notes(self.journal, lane), Random(lane))

    def _serve_disturbed(self, lane: Lane) -> None:
        """Serve, and do to the process what the plan says."""
        forks = Forks(lane)
        for disturbance in disturbances_of(self.plan, self.name):
            lane.work(self._until(time.monotonic() + disturbance.pause))
            if not self._goes_on():
                break
            if disturbance.kind is Fault.FORK:
                forks.fork(disturbance.choice)
            else:
                crowd(lane, self.plan.pool, disturbance.choice)
        lane.work(self._goes_on)
        forks.await_all()

    def _joined(self, threads: list[Thread]) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            self._awaited(thread.name, not thread.is_alive(), thread)

    def _awaited(self, what: str, in_time: bool, thread: Thread) -> None:  # noqa: FBT001  # what a wait answers
        """Note a thread that does not end, and where it stands."""
        if not in_time:
            frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  # documented for debuggers
            where = "".join(traceback.format_stack(frame)[-6:]) if frame else "nowhere"
            self.journal.add(
                "error", during=f"{what} of {self.name}", error=f"it did not end in time: {where}"
            )

    def _check_room(self, storage: SchedulerStorage) -> None:
        """Open as many units at once as there are connections."""
        parties = self.plan.pool
        meeting = Barrier(parties)

        def enter() -> None:
            with storage.transaction(SERVED[0]) as unit:
                unit.runs.get(SERVED[0], counter_of(SERVED[0]))
                meeting.wait(ENTRY_SECONDS)

        threads = [
            Thread(target=self._told, args=("threads", partial(enter)), daemon=True) for _ in range(parties)
        ]
        for thread in threads:
            thread.start()
        self._joined(threads)

    def _told(self, what: str, enter: partial[None]) -> None:
        try:
            enter()
        except BrokenBarrierError:
            # Whoever did not arrive tells why.
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, there was no room
            self._no_room(what, error)

    def _no_room(self, what: str, error: BaseException) -> None:
        told = f"a place in the pool of the {what} of {self.name}: {type(error).__name__}: {error}"
        self.journal.add("leaked", seen=told)

    # Tasks

    async def _serve_tasks(self) -> None:
        try:
            async with aio.open_storage(self.plan.settings) as opened:
                lanes = [self._awaited_lane(opened.scheduler, number) for number in range(TASKS)]
                await asyncio.gather(*(lane.work(self._goes_on) for lane in lanes))
                self._tasks_end.set()
                await asyncio.to_thread(self._go_on.wait)
                await self._check_awaited_room(opened.scheduler)
        finally:
            self._tasks_end.set()

    def _awaited_lane(self, storage: AsyncSchedulerStorage, number: int) -> AwaitedLane:
        lane = f"{self.name}/task-{number}"
        cancelling = Fault.CANCEL in self.plan.faults
        return AwaitedLane(storage, Notes(self.journal, lane), Random(lane), cancelling)

    async def _check_awaited_room(self, storage: AsyncSchedulerStorage) -> None:
        """Open as many units at once as tasks may have, and make a call beside them."""
        # The last place is for calls that stand alone.
        parties = self.plan.pool - 1
        meeting = asyncio.Barrier(parties)

        async def enter() -> None:
            async with asyncio.timeout(ENTRY_SECONDS), storage.transaction(SERVED[0]) as unit:
                await unit.runs.get(SERVED[0], counter_of(SERVED[0]))
                await meeting.wait()
                await storage.runs.get(SERVED[0], counter_of(SERVED[0]))

        for answer in await asyncio.gather(*(enter() for _ in range(parties)), return_exceptions=True):
            if isinstance(answer, BaseException):
                self._no_room("tasks", answer)
