"""What tasks give up ends on the server, and what they were entering is left: nothing stays behind."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from psycopg.pq import TransactionStatus

import twinstore_embedded
from tests.support.databases import MongoDatabase
from tests.support.outages import MongoRows, PostgresRows, eventually
from tests.support.servers import mongo_config
from twinstore import aio, open_storage
from twinstore.errors import TwinstoreError
from twinstore.scheduler import RunState
from twinstore.testing.scheduler.builders import make_run, moved

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.support.databases import PostgresServer
    from tests.support.outages import LockedRows
    from twinstore.aio import AsyncSchedulerSession, AsyncStorage

TENANT: Final = "acme"
GIVEN_UP: Final = 0.3
# Below the half minute for which any of the calls would wait, also where the machine is busy.
SOON: Final = 20.0
CALLS: Final = 12
NOW: Final = timedelta(0)


def complete(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, timeout=120))


def threads(before: set[threading.Thread]) -> int:
    """Return how many threads the facade and the pool below it have; ``before``: those of other tests."""
    return sum(thread.name.startswith("twinstore") for thread in set(threading.enumerate()) - before)


@pytest.fixture
def users_of_mongo(tmp_path: Path) -> Iterator[MongoDatabase]:
    """A database of a MongoDB whose user may read and write in it, and do nothing else."""
    server = twinstore_embedded.start_mongo(tmp_path, users=True)
    with open_storage(mongo_config(server.url, "mine")) as owner:
        owner.scheduler.initializer.ensure_migrations()
    yield MongoDatabase(server.user_url("mine", "service", "readWrite"), "mine")
    twinstore_embedded.stop(tmp_path)


@pytest.fixture(params=["mongo", "postgres"])
def rows(request: pytest.FixtureRequest) -> Iterator[LockedRows]:
    """The side of a server with a migrated database."""
    with request.getfixturevalue(f"{request.param}_server").migrated_database() as database:
        yield MongoRows(database) if request.param == "mongo" else PostgresRows(database)


async def with_runs(opened: AsyncStorage) -> None:
    for name in ("held", "free"):
        await opened.scheduler.runs.create(make_run(TENANT, name))


async def write_held(opened: AsyncStorage) -> None:
    await opened.scheduler.runs.update(moved(make_run(TENANT, "held"), RunState.QUEUED))


def test_cancelled_calls_on_a_locked_row_free_threads_and_server_at_once(rows: LockedRows) -> None:
    async def work() -> None:
        async with aio.open_storage(rows.settings(PoolMax=10)) as opened:
            await with_runs(opened)
            with rows.locked("held"):
                await give_up_writes(opened)
                assert await asyncio.to_thread(eventually, lambda: rows.active_calls() == 0)
                # The one that holds the row has no name of ours.
                assert await asyncio.to_thread(eventually, lambda: rows.open_transactions() == 0)
            found = await opened.scheduler.runs.get_required(TENANT, "held")
            assert found == make_run(TENANT, "held")
            # And the row can be written again: no cancelled call still blocks it.
            await write_held(opened)
            assert (await opened.scheduler.runs.get_required(TENANT, "held")).state is RunState.QUEUED

    complete(work())


async def give_up_writes(opened: AsyncStorage) -> None:
    """Cancel more writes of a locked row than there are threads; calls of others are not affected."""
    begin = time.monotonic()
    outcomes = await asyncio.gather(
        *(asyncio.wait_for(write_held(opened), GIVEN_UP) for _ in range(CALLS)), return_exceptions=True
    )
    assert time.monotonic() - begin < GIVEN_UP + SOON
    assert {type(outcome) for outcome in outcomes} == {TimeoutError}
    begin = time.monotonic()
    assert await opened.scheduler.runs.get(TENANT, "free") is not None
    assert time.monotonic() - begin < SOON


def test_a_user_of_mongodb_who_may_only_read_and_write_cancels_his_own_calls(
    users_of_mongo: MongoDatabase,
) -> None:
    async def work() -> None:
        rows = MongoRows(users_of_mongo)
        async with aio.open_storage(rows.settings(), concurrency=2) as opened:
            await with_runs(opened)
            with rows.locked("held"):
                await give_up_writes(opened)

    complete(work())


def test_a_call_is_answered_during_forty_units_on_ten_connections(postgres_server: PostgresServer) -> None:
    # Calls that another test cancelled may still end.
    before = set(threading.enumerate())

    async def work(rows: PostgresRows) -> None:
        async with aio.open_storage(rows.settings(PoolMax=10)) as opened:
            await with_runs(opened)
            leave, inside = asyncio.Event(), asyncio.Semaphore(0)

            async def stay(number: int) -> None:
                async with opened.scheduler.transaction(TENANT) as unit:
                    await unit.runs.create(make_run(TENANT, f"run-{number}"))
                    # A call past the unit needs a connection in addition to that of the unit.
                    assert await opened.scheduler.runs.get(TENANT, "free") is not None
                    inside.release()
                    await leave.wait()

            staying = [asyncio.create_task(stay(number)) for number in range(40)]
            for _ in range(8):
                await inside.acquire()
            begin = time.monotonic()
            assert await opened.scheduler.runs.get(TENANT, "free") is not None
            assert time.monotonic() - begin < SOON
            assert rows.connections() <= 10
            mine = set(threading.enumerate()) - before
            assert [thread.name for thread in mine].count("twinstore") <= 10
            leave.set()
            await asyncio.gather(*staying)

    with postgres_server.migrated_database() as database:
        complete(work(PostgresRows(database)))


def test_a_unit_cancelled_while_it_waits_for_a_row_is_rolled_back_before_the_task_continues(
    rows: LockedRows,
) -> None:
    async def unit(opened: AsyncStorage) -> None:
        async with opened.scheduler.transaction(TENANT) as unit:
            await unit.runs.update(moved(make_run(TENANT, "free"), RunState.QUEUED))
            # MongoDB refuses at once what PostgreSQL waits for.
            await unit.runs.update(moved(make_run(TENANT, "held"), RunState.QUEUED))

    async def work() -> None:
        async with aio.open_storage(rows.settings()) as opened:
            await with_runs(opened)
            with rows.locked("held"):
                begin = time.monotonic()
                with pytest.raises((TimeoutError, TwinstoreError)):
                    await asyncio.wait_for(unit(opened), GIVEN_UP)
                assert time.monotonic() - begin < GIVEN_UP + SOON
                assert rows.open_transactions() == 0
                assert (await opened.scheduler.runs.get_required(TENANT, "free")).state is RunState.PLANNING

    complete(work())


def test_a_late_cancellation_never_meets_the_next_call(rows: LockedRows) -> None:
    """Calls are cancelled at every moment of their lives, on two connections that others use right after."""

    async def work() -> None:
        met: list[str] = []
        async with aio.open_storage(rows.settings(PoolMax=2)) as opened:
            await with_runs(opened)

            async def impatient(number: int) -> None:
                try:
                    async with asyncio.timeout(0.0002 * (number % 20)):
                        await opened.scheduler.runs.get(TENANT, "free")
                except TimeoutError:
                    pass

            async def patient() -> None:
                try:
                    assert await opened.scheduler.runs.get(TENANT, "free") is not None
                except TwinstoreError as error:
                    met.append(repr(error))

            for number in range(400):
                await impatient(number)
                await patient()
            await asyncio.gather(
                *(impatient(number) for number in range(200)), *(patient() for _ in range(200))
            )
        assert met == []

    complete(work())


def test_a_cancelled_write_is_stored_wholly_or_not_at_all(rows: LockedRows) -> None:
    async def work() -> None:
        async with aio.open_storage(rows.settings(PoolMax=4)) as opened:

            async def write(number: int) -> None:
                async with asyncio.timeout(0.0005 * (number % 16)):
                    async with opened.scheduler.transaction(TENANT) as unit:
                        await unit.runs.create(make_run(TENANT, f"a-{number}"))
                        await unit.runs.create(make_run(TENANT, f"b-{number}"))

            outcomes = await asyncio.gather(*(write(number) for number in range(96)), return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} <= {type(None), TimeoutError}
            for number in range(96):
                pair = [await opened.scheduler.runs.get(TENANT, f"{name}-{number}") for name in "ab"]
                assert (pair[0] is None) == (pair[1] is None)
                if outcomes[number] is None:
                    assert pair[0] is not None
            assert await asyncio.to_thread(eventually, lambda: rows.open_transactions() == 0)

    complete(work())


def test_deadlines_at_the_door_of_units_and_sessions_leak_no_connection(
    postgres_server: PostgresServer,
) -> None:
    """Six tasks give up while threads of theirs wait for one of four connections; their errors are kept."""
    with postgres_server.migrated_database() as database:
        rows = PostgresRows(database)
        before = set(threading.enumerate())
        kept: list[BaseException] = []

        async def work() -> None:
            # More threads than connections, so that tasks give up behind the door as well as before it.
            async with aio.open_storage(rows.settings(PoolMax=4), concurrency=16) as opened:
                scheduler = opened.scheduler
                async with AsyncExitStack() as stack:
                    for number in range(4):
                        unit = await asyncio.create_task(entered(scheduler.transaction(TENANT), stack))
                        await unit.runs.create(make_run(TENANT, f"busy-{number}"))
                    doors = [
                        *(scheduler.transaction(TENANT) for _ in range(3)),
                        *(scheduler.session(TENANT) for _ in range(3)),
                    ]
                    kept.extend(
                        outcome
                        for outcome in await asyncio.gather(
                            *(asyncio.wait_for(entered(door, stack), 0.2) for door in doors),
                            return_exceptions=True,
                        )
                        if isinstance(outcome, BaseException)
                    )
                    assert [type(error) for error in kept] == [TimeoutError] * 6
                # All four at once, each in a separate unit.
                every = asyncio.Barrier(4)

                async def read() -> None:
                    async with scheduler.transaction(TENANT) as unit:
                        assert await unit.runs.get(TENANT, "busy-0") is not None
                        await every.wait()

                # Sooner than a unit without a connection would be refused.
                await asyncio.wait_for(asyncio.gather(*(read() for _ in range(4))), 9)
                assert rows.connections() <= 4

        complete(work())
        assert eventually(lambda: threads(before) == 0 and rows.connections() == 0)
        assert len(kept) == 6


async def entered(
    block: AbstractAsyncContextManager[AsyncSchedulerSession], stack: AsyncExitStack
) -> AsyncSchedulerSession:
    """Enter a block in a separate task; the stack leaves it."""
    return await stack.enter_async_context(block)


def test_a_joined_connection_stays_its_owners_when_a_call_on_it_is_cancelled(
    postgres_server: PostgresServer,
) -> None:
    async def work(rows: PostgresRows, url: str) -> None:
        async with aio.open_storage(rows.settings()) as opened:
            await with_runs(opened)
            with psycopg.connect(url) as connection:
                bound = await opened.scheduler.bind(connection, TENANT)
                await bound.runs.create(make_run(TENANT, "joined"))
                with rows.locked("held"), pytest.raises(TimeoutError):
                    await asyncio.wait_for(
                        bound.runs.update(moved(make_run(TENANT, "held"), RunState.QUEUED)), GIVEN_UP
                    )
                # The owner decides what becomes of his transaction, and goes on with his connection.
                assert connection.info.transaction_status == TransactionStatus.INERROR
                connection.rollback()
                bound = await opened.scheduler.bind(connection, TENANT)
                await bound.runs.create(make_run(TENANT, "again"))
                connection.commit()
            found = [await opened.scheduler.runs.get(TENANT, name) for name in ("joined", "again")]
            assert [run is not None for run in found] == [False, True]

    with postgres_server.migrated_database() as database:
        complete(work(PostgresRows(database), database.app_url))
