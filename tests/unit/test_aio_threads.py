"""How many threads the facade for asyncio has, who gets them, and what becomes of those who do not wait."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

from tests.support.outages import eventually
from twinstore import add_scheduler_memory_storage, aio, open_storage
from twinstore.aio import calls as threads_module
from twinstore.aio.calls import MAX_WAITING_HANDLES, SharedThreads, UnitThread, block_entry
from twinstore.aio.handles import JoinedThreads
from twinstore.errors import ConfigurationError, UnavailableError, ValidationError
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from twinstore.aio import AsyncStorage

PLACES: Final = 5
UNITS: Final = 4
NOW: Final = timedelta(0)
MINUTE: Final = timedelta(minutes=1)


def complete(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, timeout=100))


def storage(concurrency: int | None = PLACES) -> AsyncStorage:
    settings = {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": uuid4().hex}}}
    return aio.open_storage(settings, concurrency=concurrency)


def running(before: set[threading.Thread], prefix: str = "twinstore") -> int:
    """Return how many threads there are besides those of other tests, which may still end."""
    return sum(thread.name.startswith(prefix) for thread in set(threading.enumerate()) - before)


def waiters(before: set[threading.Thread]) -> int:
    """Return how many threads of this test wait for locks."""
    return running(before, "twinstore-waiting")


class Clock:
    """The clock of a line, which only a test moves."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now


class Gate:
    """What calls wait for in their threads."""

    def __init__(self) -> None:
        self._open = Event()
        self.begun: list[object] = []

    def pass_through(self, name: object = None) -> object:
        self.begun.append(name)
        assert self._open.wait(60)
        return name

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.open()


@pytest.fixture
def threads() -> Iterator[SharedThreads]:
    found = SharedThreads(PLACES, "twinstore-test")
    yield found
    found.close()


async def begun(gate: Gate, number: int) -> None:
    assert await asyncio.to_thread(eventually, lambda: len(gate.begun) == number)


def test_1500_units_at_once_take_a_few_threads_and_all_are_served() -> None:
    async def unit(opened: AsyncStorage, number: int) -> None:
        async with opened.scheduler.transaction("t") as unit:
            await unit.runs.create(make_run("t", f"run-{number}"))
            seen.append(running(before))

    seen: list[int] = []

    async def work() -> None:
        async with storage() as opened:
            await asyncio.gather(*(unit(opened, number) for number in range(1500)))
            assert len(await opened.scheduler.runs.get_pending_runs("t", limit=100)) == 100

    before = set(threading.enumerate())
    complete(work())
    assert len(seen) == 1500
    assert 1 <= max(seen) <= PLACES


def test_a_call_proceeds_during_the_maximum_of_units() -> None:
    async def work() -> None:
        async with storage() as opened:
            leave, full, inside = asyncio.Event(), asyncio.Event(), list[int]()

            async def stay(number: int) -> None:
                async with opened.scheduler.transaction("t") as unit:
                    inside.append(number)
                    if len(inside) == UNITS:
                        full.set()
                    await leave.wait()
                    await unit.runs.create(make_run("t", f"run-{number}"))

            staying = [asyncio.create_task(stay(number)) for number in range(40)]
            await full.wait()
            # A later call queues behind those that wait for a unit, but does not wait for them.
            assert await opened.scheduler.runs.get("t", "absent") is None
            assert len(inside) == UNITS
            leave.set()
            await asyncio.gather(*staying)
            assert sorted(inside) == [*range(40)]
            # In the order of their coming, but for those that enter at the same time.
            assert all(abs(number - place) < UNITS for place, number in enumerate(inside))

    complete(work())


def test_units_that_call_past_themselves_do_not_wait_for_each_other() -> None:
    async def work() -> None:
        async with storage() as opened:
            every = asyncio.Barrier(UNITS)

            async def call(number: int) -> None:
                async with opened.scheduler.transaction("t") as unit:
                    await unit.runs.create(make_run("t", f"run-{number}"))
                    await every.wait()
                    assert await opened.scheduler.runs.get("t", "absent") is None

            await asyncio.gather(*(call(number) for number in range(UNITS)))

    complete(work())


def test_a_stalled_queue_refuses_and_a_moving_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads_module, "STALL_SECONDS", 0.1)

    async def work() -> None:
        async with storage() as opened:
            every = asyncio.Barrier(UNITS)
            refused: list[str] = []

            async def want_one_more() -> None:
                async with opened.scheduler.transaction("t"):
                    await every.wait()
                    try:
                        async with opened.scheduler.session("t"):
                            pass
                    except UnavailableError as error:
                        refused.append(error.message)

            await asyncio.gather(*(want_one_more() for _ in range(UNITS)))
            # At least one, whose place the others then had.
            assert refused
            assert all(f"All {UNITS} slots" in message for message in refused)

            # In a small pool units may have all places, and then a call waits with them.
            async with storage(1) as small, small.scheduler.transaction("t"):
                with pytest.raises(UnavailableError, match="All 1 slots"):
                    await small.scheduler.runs.get("t", "absent")

            # The last ones wait for longer, but not for any step of the line. The clock is that of the test,
            # because a step may take as long on a busy machine.
            clock = Clock()
            monkeypatch.setattr(threads_module, "time", clock)

            async def hurry() -> None:
                async with opened.scheduler.transaction("t"):
                    clock.now += 0.1 / (2 * UNITS)
                    # The line is checked as long as there is one.
                    if len(ended) < UNITS * 11:
                        await looks[-1].wait()
                    ended.append(clock.now)

            looks, ended = [asyncio.Event()], list[float]()
            look = SharedThreads._check_stalled  # noqa: SLF001  # no public event reports it

            def noted(shared: SharedThreads) -> None:
                look(shared)
                looks[-1].set()
                looks.append(asyncio.Event())

            monkeypatch.setattr(SharedThreads, "_check_stalled", noted)
            await asyncio.gather(*(hurry() for _ in range(UNITS * 12)))
            assert clock.now - ended[0] > 5 * 0.1

    complete(work())


def test_a_call_cancelled_in_the_queue_is_never_made(threads: SharedThreads, gate: Gate) -> None:
    async def work() -> None:
        made = [asyncio.create_task(threads.run(gate.pass_through, number)) for number in range(PLACES)]
        await begun(gate, PLACES)
        waiting = [asyncio.create_task(threads.run(gate.pass_through, number)) for number in (90, 91)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        gate.open()
        assert await asyncio.gather(*made) == [*range(PLACES)]
        assert await waiting[1] == 91
        assert 90 not in gate.begun

    complete(work())


@pytest.mark.parametrize("joined", [False, True])
def test_the_error_of_a_cancelled_call_is_not_reported(
    threads: SharedThreads, gate: Gate, *, joined: bool
) -> None:
    """As the one of a statement that was cancelled on the server."""
    told: list[object] = []
    # What was there before is no garbage of this test, and to look through all of it takes seconds. It stays
    # frozen, as what was collected does: see tests/conftest.py.
    gc.freeze()

    def fail() -> None:
        gate.pass_through()
        raise LookupError

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        calls = JoinedThreads(threads) if joined else threads
        task = asyncio.create_task(calls.run(fail))
        await begun(gate, 1)
        task.cancel()
        await asyncio.sleep(0)
        gate.open()
        await asyncio.wait({task})
        assert task.cancelled()
        del task
        # Every thread has let go of what it has done.
        await asyncio.gather(*(threads.run(int) for _ in range(PLACES)))
        gc.collect()
        await asyncio.sleep(0)

    complete(work())
    gc.collect()
    assert told == []


def test_a_block_that_was_being_entered_is_left_in_its_thread_when_the_loop_is_closed(gate: Gate) -> None:
    left = Event()
    told: list[tuple[str, object]] = []

    @contextmanager
    def slow() -> Iterator[None]:
        gate.pass_through()
        told.append(("entered", threading.get_ident()))
        try:
            yield
        except BaseException as error:
            told.append((type(error).__name__, threading.get_ident()))
            raise
        finally:
            left.set()

    threads = SharedThreads(PLACES, "twinstore-test")

    async def work() -> None:
        entry = asyncio.create_task(UnitThread(threads).open(block_entry(slow())))
        await begun(gate, 1)
        entry.cancel()
        kept.append((await asyncio.gather(entry, return_exceptions=True))[0])

    kept: list[object] = []
    asyncio.run(work())
    assert not left.is_set()
    gate.open()
    assert left.wait(60)
    assert [what for what, _ in told] == ["entered", "CancelledError"]
    assert len({thread for _, thread in told}) == 1
    assert isinstance(kept[0], asyncio.CancelledError)

    async def again() -> list[int]:
        return await asyncio.gather(*(threads.run(int) for _ in range(PLACES)))

    assert asyncio.run(again()) == [0] * PLACES
    threads.close()


def test_a_storage_outlives_its_event_loop_and_serves_two_at_a_time() -> None:
    opened = storage(2)

    async def call(name: str) -> None:
        async with opened.scheduler.transaction("t") as unit:
            await unit.runs.create(make_run("t", name))
        await asyncio.gather(*(opened.scheduler.runs.get_required("t", name) for _ in range(20)))

    for name in ("first", "second"):
        complete(call(name))
    both = [threading.Thread(target=complete, args=(call(name),)) for name in ("third", "fourth")]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(100)

    async def count() -> None:
        assert len(await opened.scheduler.runs.get_pending_runs("t")) == 4
        await opened.close()
        with pytest.raises(ConfigurationError, match="closed"):
            await opened.scheduler.runs.get("t", "first")

    complete(count())


def test_those_who_wait_for_a_lock_are_bounded_and_their_time_begins_with_their_call() -> None:
    before = set(threading.enumerate())

    async def work() -> None:
        async with storage(1) as opened:
            locks = opened.scheduler.locks
            async with await locks.acquire("a", NOW, lease=MINUTE):
                waiting = [
                    asyncio.create_task(locks.try_acquire("a", MINUTE))
                    for _ in range(MAX_WAITING_HANDLES * 3)
                ]
                assert await asyncio.to_thread(eventually, lambda: waiters(before) == MAX_WAITING_HANDLES)
                # Behind all of them; by its turn its time is over, and it asks once.
                late = asyncio.create_task(locks.try_acquire("a", timedelta(seconds=0.01)))
                await asyncio.sleep(0.02)
                for task in waiting:
                    task.cancel()
                assert await asyncio.wait_for(late, 30) is None
            # The lock that a cancelled task would have got is not kept.
            async with await locks.acquire("a", MINUTE):
                pass

    complete(work())


def test_threads_end_when_they_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinstore.aio.calls.IDLE_SECONDS", 0.05)

    async def work() -> None:
        threads = SharedThreads(PLACES, "twinstore-idle")
        # Reported by the threads: on a busy machine they may have ended when the answers arrive.
        used = await asyncio.gather(*(threads.run(threading.current_thread) for _ in range(20)))
        assert {thread.name for thread in used} == {"twinstore-idle"}
        assert await asyncio.to_thread(eventually, lambda: not any(thread.is_alive() for thread in used))
        assert await threads.run(int) == 0
        threads.close()

    complete(work())


def test_concurrency_follows_the_driver_and_is_at_least_one() -> None:
    postgres = {"ConnectionString": "postgresql://nobody@localhost:1/none", "PoolMax": 7}
    mongo = {"ConnectionString": "mongodb://localhost:1/none?maxPoolSize=12"}
    switches = {"Scheduler": "Postgres", "Tracking": "Mongo", "TaskRunner": "Memory"}
    settings = {"Persistence": {**switches, "Postgres": postgres, "Mongo": mongo}}
    with open_storage(settings) as opened:
        found = [opened.scheduler.concurrency, opened.tracking.concurrency, opened.taskrunner.concurrency]
    assert found == [7, 12, 10]
    with add_scheduler_memory_storage() as opened:
        assert opened.concurrency == 10
    with pytest.raises(ValidationError, match="concurrency should be at least 1"):
        storage(0)
