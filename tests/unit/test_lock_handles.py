"""What a holder knows of its lock when its clock jumps, when the store is away, and when it is awaited."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

import twinstore
from twinstore import aio, scheduler
from twinstore.catalog.entity import CopyPolicy, Release
from twinstore.errors import LeaseLostError, LockTimeoutError, Outcome, UnavailableError
from twinstore.scheduler import DistributedLock, LockHandle, LockInfo, held_lock
from twinstore.scheduler.aio import AsyncSchedulerStorage
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.repositories.locks import GeneralContender
from twinstore_mongo import MongoDistributedLock
from twinstore_postgres import PostgresDistributedLock, SchedulerDataSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.scheduler.storage import SchedulerStorage

NOW: Final = timedelta(0)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
# Renewals in a lease of a minute: soon, and long before it is over where the machine is busy.
OFTEN: Final = 600


class Elapsed:
    """A clock that changes only when it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def config() -> dict[str, object]:
    return {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": uuid4().hex}}}


@pytest.fixture
def storage(config: dict[str, object]) -> Iterator[SchedulerStorage]:
    with twinstore.open_storage(config) as storage:
        yield storage.scheduler


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> Elapsed:
    clock = Elapsed()
    for module in ("held_lock", "repositories.locks"):
        monkeypatch.setattr(f"twinstore.scheduler.{module}.elapsed", clock)
    return clock


def test_the_names_of_locks_that_hosts_know_are_there() -> None:
    assert DistributedLock in PostgresDistributedLock.__mro__
    assert DistributedLock in MongoDistributedLock.__mro__
    assert SchedulerDataSource.__name__ == "SchedulerDataSource"
    assert {LockHandle.__name__, LockInfo.__name__} <= set(scheduler.__all__)


def test_a_holder_that_slept_knows_that_its_lease_is_over_and_may_ask_again(
    storage: SchedulerStorage, elapsed: Elapsed
) -> None:
    with storage.locks.acquire("a", NOW, lease=MINUTE) as handle:
        elapsed.now = 59.9
        assert handle.is_held()
        elapsed.now = 60
        assert not handle.is_held()
        # No other holder has it: the server still says that it is held, and it is from now on.
        handle.renew()
        assert handle.is_held()
        elapsed.now = 119.9
        assert handle.is_held()


def test_a_clock_that_goes_back_makes_no_lease_longer_than_the_server_does(
    storage: SchedulerStorage, elapsed: Elapsed
) -> None:
    elapsed.now = 1000
    handle = storage.locks.acquire("a", NOW, lease=SECOND)
    elapsed.now = 0
    with storage.locks.acquire("a", MINUTE) as owner:
        assert (handle.is_held(), owner.fence) == (True, 2)
        with pytest.raises(LeaseLostError):
            handle.renew()
        assert not handle.is_held()


def test_a_renewal_that_was_never_sent_leaves_the_lock_and_is_tried_again(
    storage: SchedulerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls, renewed = GeneralContender.renew, [Outcome.NOT_APPLIED] * 3, Event()

    def away(self: GeneralContender, owned: LockInfo, lease: timedelta) -> LockInfo | None:
        if calls:
            raise UnavailableError("The store is away.", outcome=calls.pop())
        found = honest(self, owned, lease)
        renewed.set()
        return found

    monkeypatch.setattr(GeneralContender, "renew", away)
    monkeypatch.setattr(held_lock, "RENEWALS_PER_LEASE", OFTEN)
    with storage.locks.acquire("a", NOW, lease=MINUTE) as handle:
        with pytest.raises(UnavailableError):
            handle.renew()
        assert handle.is_held()
        with handle.keep_alive():
            assert renewed.wait(60)
        assert (handle.is_held(), handle.fence) == (True, 1)


def test_a_renewal_whose_answer_is_lost_loses_the_lock(
    storage: SchedulerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise UnavailableError("The answer is lost.", outcome=Outcome.UNKNOWN)

    handle = storage.locks.acquire("a", NOW)
    monkeypatch.setattr(GeneralContender, "renew", lost)
    with pytest.raises(LeaseLostError, match="connection was lost"):
        handle.renew()
    assert (handle.is_held(), handle.release()) == (False, False)


def test_keeping_alive_ends_where_the_lock_is_lost(
    storage: SchedulerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Event()

    def gone(*_: object) -> None:
        seen.set()

    monkeypatch.setattr(GeneralContender, "renew", gone)
    monkeypatch.setattr(held_lock, "RENEWALS_PER_LEASE", OFTEN)
    handle = storage.locks.acquire("a", NOW, lease=MINUTE)
    with handle.keep_alive():
        assert seen.wait(60)
    assert not handle.is_held()


def test_a_task_holds_renews_and_releases_and_waits_alongside_the_other_calls(
    config: dict[str, object],
) -> None:
    async def work() -> None:
        async with aio.open_storage(config, concurrency=1) as storage:
            locks = storage.module("scheduler", AsyncSchedulerStorage).locks
            async with await locks.acquire("a", NOW, lease=MINUTE) as handle, handle.keep_alive():
                assert (handle.fence, handle.lock_key, await handle.is_held()) == (1, "a", True)
                assert await handle.renew() >= handle.acquired_at
                # Who waits takes no thread from the calls of others, of which there may be one at a time.
                waiting = [asyncio.create_task(locks.try_acquire("a", MINUTE)) for _ in range(3)]
                found = await locks.inspect("a")
                assert found is not None
                with pytest.raises(LockTimeoutError):
                    await locks.acquire("a", NOW)
                waiting[0].cancel()
                assert await handle.release()
            fences = []
            # The first thread that gets it must release it before the other one can.
            for task in asyncio.as_completed(waiting[1:]):
                owner = await task
                assert owner is not None
                fences.append(owner.fence)
                assert await owner.release()
            await asyncio.wait(waiting[:1])
            assert waiting[0].cancelled()
            # The lock that the cancelled task would have got was also released.
            async with await locks.acquire("a", MINUTE) as last:
                assert last.fence > max(fences)

    asyncio.run(work())


def test_a_description_of_released_rows_that_contradicts_itself_is_refused() -> None:
    assert replace(LOCKS, local_keys=()).release is not None
    with pytest.raises(ValueError, match="exactly where it says how"):
        replace(LOCKS, copy_policy=CopyPolicy.COPIED)
    with pytest.raises(ValueError, match="released by renewedAt"):
        replace(LOCKS, release=Release(end="renewedAt", beginning="acquiredAt", fence="fence"))
    with pytest.raises(ValueError, match="which is not a key"):
        replace(LOCKS, local_keys=(("one",),))


def test_the_clock_of_a_holder_goes_on() -> None:
    assert held_lock.elapsed() <= held_lock.elapsed()
