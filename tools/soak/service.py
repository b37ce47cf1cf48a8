"""A small service: threads and asyncio tasks that serve several tenants from one process.

It forks, cancels calls and overloads its pool while it works. At the end it pauses until the server was asked
what is open, shows that its pools have lost no connection, closes them, and looks for leftovers.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import TYPE_CHECKING, Any, Final

import psycopg
from pymongo import MongoClient

import twinstore
from tools.soak.faults import Forks, cancel_sometimes, exhaust_pool
from tools.soak.journal import Notes
from tools.soak.plan import NANOSECONDS, SERVED, Fault, disturbances_of
from tools.soak.stored import ProcessResources
from tools.soak.work import Lane, counter_of, entries_of, foreign_rows, own_run, unit_parts
from twinstore import aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tools.soak.faults import Gate
    from tools.soak.journal import Journal
    from tools.soak.plan import Plan
    from twinstore.aio import AsyncSchedulerStorage
    from twinstore.scheduler.storage import SchedulerStorage

PAUSE_SECONDS: Final = 0.01


@dataclass(slots=True)
class AsyncLane:
    """One task, and its random choices.

    Attributes:
        storage: of the process, which all its tasks share.
        notes: where each call is noted.
        random: decides what is done.
        cancelling: whether calls are cancelled.
    """

    storage: AsyncSchedulerStorage
    notes: Notes
    random: Random
    cancelling: bool
    # As trackers of errors do, which keep what the frames of an error hold.
    _kept_errors: deque[BaseException] = field(default_factory=lambda: deque[BaseException](maxlen=100))

    async def work(self, is_running: Callable[[], bool]) -> None:
        """Do one thing after the other."""
        while is_running():
            call = self.random.choice((self.insert, self.unit, self.read, self.in_session))
            await call(self.random.choice(SERVED))
            await asyncio.sleep(PAUSE_SECONDS)

    async def insert(self, tenant: str) -> None:
        """Create a run."""
        key = self.notes.token()
        with self.notes.call("aio insert", tenant, [f"run {key}"]):
            await self._maybe_cancelled(self.storage.runs.create(own_run(tenant, key)))

    async def unit(self, tenant: str) -> None:
        """Write in a unit of work."""
        token = self.notes.token()
        with self.notes.call("aio unit", tenant, unit_parts(tenant, token)):
            await self._maybe_cancelled(self._write_unit(tenant, token))

    async def _write_unit(self, tenant: str, token: str) -> None:
        async with self.storage.transaction(tenant) as unit:
            await unit.runs.create(own_run(tenant, f"{token}/a"))
            await unit.execution_logs.append(entries_of(tenant, f"{token}/a", ("1", "2")))
            await unit.runs.create(own_run(tenant, f"{token}/b"))

    async def read(self, tenant: str) -> None:
        """Read what others have written."""
        with self.notes.reading("aio read", tenant):
            await self._maybe_cancelled(self._read(tenant))

    async def _read(self, tenant: str) -> None:
        page = await self.storage.runs.list(tenant)
        self._check(tenant, foreign_rows(tenant, page.items))

    async def in_session(self, tenant: str) -> None:
        """Read in a session, which keeps a connection."""
        with self.notes.reading("aio session", tenant):
            await self._maybe_cancelled(self._read_in_session(tenant))

    async def _read_in_session(self, tenant: str) -> None:
        async with self.storage.session(tenant) as session:
            page = await session.runs.list(tenant)
            self._check(tenant, foreign_rows(tenant, page.items))

    def _check(self, tenant: str, found: list[str]) -> None:
        for seen in found:
            self.notes.journal.add("foreign", tenant=tenant, lane=self.notes.lane, seen=seen)

    async def _maybe_cancelled(self, call: Awaitable[object]) -> None:
        """Wait for a call, or give it up."""
        if not self.cancelling:
            await call
            return
        try:
            await cancel_sometimes(call, self.random)
        except BaseException as error:
            self._kept_errors.append(error)
            raise


THREADS: Final = 2
TASKS: Final = 4
# Longer than any call may take.
JOIN_SECONDS: Final = 30.0
# Longer than a service needs for its end.
STUCK_SECONDS: Final = 75.0
# For as many concurrent units as there are connections, without any other client.
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
        """Serve until the time is over, then report what is left."""
        self.gate.enter()
        before = ProcessResources.now()
        # A process that hangs for so long prints where.
        rest = (self.plan.end - time.monotonic_ns()) / NANOSECONDS
        faulthandler.dump_traceback_later(rest + STUCK_SECONDS)
        tasks = Thread(target=lambda: asyncio.run(self._serve_tasks()), name="tasks", daemon=True)
        with twinstore.open_storage(self.plan.settings) as opened:
            storage = opened.scheduler
            tasks.start()
            self._serve(storage)
            self._report_stuck("tasks", self._tasks_end.wait(JOIN_SECONDS), tasks)
            self.gate.wait()
            self._go_on.set()
            self._check_pool(storage)
            self._joined([tasks])
        faulthandler.cancel_dump_traceback_later()
        for found in before.leaked():
            self.journal.add("leaked", seen=f"{found} of {self.name}")

    def _is_running(self) -> bool:
        return time.monotonic_ns() < self.plan.end

    def _until(self, instant: float) -> Callable[[], bool]:
        return lambda: self._is_running() and time.monotonic() < instant

    # Threads

    def _serve(self, storage: SchedulerStorage) -> None:
        lanes = [self._lane(storage, f"thread-{number}") for number in range(THREADS)]
        threads = [
            Thread(target=lane.work, args=(self._is_running,), name=lane.notes.lane, daemon=True)
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
            if not self._is_running():
                break
            if disturbance.kind is Fault.FORK:
                forks.fork(disturbance.choice)
            else:
                exhaust_pool(lane, self.plan.pool, disturbance.choice)
        lane.work(self._is_running)
        forks.await_all()

    def _joined(self, threads: list[Thread]) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            self._report_stuck(thread.name, not thread.is_alive(), thread)

    def _report_stuck(self, what: str, in_time: bool, thread: Thread) -> None:  # noqa: FBT001  # what a wait answers
        """Note a thread that does not end, and where it is."""
        if not in_time:
            frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  # documented for debuggers
            where = "".join(traceback.format_stack(frame)[-6:]) if frame else "nowhere"
            self.journal.add(
                "error", during=f"{what} of {self.name}", error=f"it did not end in time: {where}"
            )

    def _check_pool(self, storage: SchedulerStorage) -> None:
        """Open as many units at once as there are connections."""
        parties = self.plan.pool
        meeting = Barrier(parties)

        def enter() -> None:
            with storage.transaction(SERVED[0]) as unit:
                unit.runs.get(SERVED[0], counter_of(SERVED[0]))
                meeting.wait(ENTRY_SECONDS)

        threads = [
            Thread(target=self._enter_or_report, args=("threads", partial(enter)), daemon=True)
            for _ in range(parties)
        ]
        for thread in threads:
            thread.start()
        self._joined(threads)

    def _enter_or_report(self, what: str, enter: partial[None]) -> None:
        try:
            enter()
        except BrokenBarrierError:
            # The units that did not arrive report why.
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, there was no room
            self._report_full_pool(what, error)

    def _report_full_pool(self, what: str, error: BaseException) -> None:
        details = f"a place in the pool of the {what} of {self.name}: {type(error).__name__}: {error}"
        self.journal.add("leaked", seen=details)

    # Tasks

    async def _serve_tasks(self) -> None:
        try:
            async with aio.open_storage(self.plan.settings) as opened:
                lanes = [self._async_lane(opened.scheduler, number) for number in range(TASKS)]
                await asyncio.gather(*(lane.work(self._is_running) for lane in lanes))
                self._tasks_end.set()
                await asyncio.to_thread(self._go_on.wait)
                await self._check_async_pool(opened.scheduler)
        finally:
            self._tasks_end.set()

    def _async_lane(self, storage: AsyncSchedulerStorage, number: int) -> AsyncLane:
        lane = f"{self.name}/task-{number}"
        cancelling = Fault.CANCEL in self.plan.faults
        return AsyncLane(storage, Notes(self.journal, lane), Random(lane), cancelling)

    async def _check_async_pool(self, storage: AsyncSchedulerStorage) -> None:
        """Open as many concurrent units as tasks may have, and make a call in addition."""
        # The last place is for calls outside units.
        parties = self.plan.pool - 1
        meeting = asyncio.Barrier(parties)

        async def enter() -> None:
            async with asyncio.timeout(ENTRY_SECONDS), storage.transaction(SERVED[0]) as unit:
                await unit.runs.get(SERVED[0], counter_of(SERVED[0]))
                await meeting.wait()
                await storage.runs.get(SERVED[0], counter_of(SERVED[0]))

        for answer in await asyncio.gather(*(enter() for _ in range(parties)), return_exceptions=True):
            if isinstance(answer, BaseException):
                self._report_full_pool("tasks", answer)


POLL_SECONDS: Final = 0.1
POSTGRES: Final = """
    SELECT state, coalesce(xact_start IS NOT NULL, false), left(query, 100)
    FROM pg_stat_activity
    WHERE application_name = 'twinstore' AND datname = current_database() AND pid <> pg_backend_pid()
"""
MONGO: Final = {"$currentOp": {"allUsers": True, "idleSessions": True, "idleConnections": True}}


@dataclass(frozen=True, slots=True)
class Watch:
    """Questions to a server.

    Attributes:
        connections: each connection, in words.
        open_work: each transaction or statement of a client that lives, in words.
    """

    connections: Callable[[], list[str]]
    open_work: Callable[[], list[str]]


def settled(query: Callable[[], list[str]], seconds: float) -> list[str]:
    """Ask until the answer is empty or the time is over; return the last answer."""
    deadline = time.monotonic() + seconds
    while (found := query()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return found


def postgres_watch(url: str) -> Watch:
    """Ask a PostgreSQL."""

    def rows() -> list[tuple[Any, ...]]:
        with psycopg.connect(url, application_name="soak") as connection:
            return connection.execute(POSTGRES).fetchall()

    return Watch(
        connections=lambda: [f"a connection that is {row[0]} ({row[2]})" for row in rows()],
        open_work=lambda: [f"a transaction that is {row[0]} ({row[2]})" for row in rows() if row[1]],
    )


def mongo_watch(url: str) -> Watch:
    """Ask a MongoDB."""

    def items() -> list[dict[str, Any]]:
        with MongoClient[dict[str, Any]](url, appname="soak") as client:
            found = list(client.admin.aggregate([MONGO]))
        return [item for item in found if item.get("appName") == "twinstore"]

    return Watch(
        connections=lambda: [
            f"a connection from {item['client']}"
            for item in items()
            if item["type"] == "op" and "client" in item
        ],
        open_work=lambda: open_transactions(items()),
    )


def open_transactions(items: list[dict[str, Any]]) -> list[str]:
    """Return the transactions whose client is connected.

    Those of killed processes stay until the server ends them.
    """
    connected = {item["connectionId"] for item in items if item["type"] == "op" and "connectionId" in item}
    return [
        f"a transaction of {item.get('client')} ({item.get('desc')})"
        for item in items
        if "transaction" in item and item.get("connectionId") in connected
    ]
