"""A closed storage answers on every driver alike: nothing that it handed out works or connects again."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo.errors import AutoReconnect
from pymongo.synchronous.pool import Connection

import twinstore
from twinstore import aio
from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_mongo.client import connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.databases import MongoDatabase
    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerStorage

CLOSED: Final = "This storage is closed; open a new one"
THREADS: Final = 4
WAIT: Final = 30
# What an application holds of a storage, each way to continue with it.
CALLS: Final[dict[str, Callable[[SchedulerStorage, str], object]]] = {
    "repository": lambda storage, tenant: storage.runs.list(tenant),
    "service": lambda storage, tenant: storage.run_summary_service.list(tenant),
    "locks": lambda storage, tenant: storage.locks.try_acquire("name", timedelta(0), tenant_id=tenant),
    "session": lambda storage, tenant: storage.sessions.open(tenant).__enter__(),
    "transaction": lambda storage, tenant: storage.transaction(tenant).__enter__(),
    "transact": lambda storage, tenant: storage.transact(lambda unit: unit, tenant_id=tenant),
    "bind": lambda storage, tenant: storage.bind(object(), tenant),
    "initializer": lambda storage, _: storage.initializer.ensure_migrations(),
    "capabilities": lambda storage, _: storage.capabilities,
    "check_ready": lambda storage, _: storage.check_ready(),
    "bulk": lambda storage, _: storage.bulk.counts(RUNS),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_way_into_a_closed_storage_is_refused(every_store: Settings, tenant: str, call: str) -> None:
    storage = twinstore.add_scheduler_storage(every_store)
    storage.runs.list(tenant)
    storage.close()
    storage.close()
    with pytest.raises(ConfigurationError, match=CLOSED):
        CALLS[call](storage, tenant)


def test_what_was_handed_out_before_is_refused_too(every_store: Settings, tenant: str) -> None:
    with ExitStack() as stack:
        storage = stack.enter_context(twinstore.add_scheduler_storage(every_store))
        session = stack.enter_context(storage.sessions.open(tenant))
        runs, sessions, initializer, bulk = storage.runs, storage.sessions, storage.initializer, storage.bulk
        session.runs.create(make_run(tenant, f"{tenant}-1"))
        lock = storage.locks.acquire("name", timedelta(seconds=1), tenant_id=tenant)
        storage.close()
        for call in (
            lambda: runs.get(tenant, f"{tenant}-1"),
            lambda: session.runs.get(tenant, f"{tenant}-1"),
            lambda: sessions.open(tenant).__enter__(),
            lambda: storage.runs,
            initializer.ensure_migrations,
            lambda: bulk.counts(RUNS),
            bulk.view,
        ):
            with pytest.raises(ConfigurationError, match=CLOSED):
                call()
        assert not lock.release()


def test_a_unit_that_outlives_its_storage_is_not_committed(every_store: Settings, tenant: str) -> None:
    storage = twinstore.add_scheduler_storage(every_store)

    def outliving() -> None:
        with storage.transaction(tenant) as unit:
            unit.runs.create(make_run(tenant, f"{tenant}-1"))
            storage.close()
            with pytest.raises(ConfigurationError, match=CLOSED):
                unit.runs.create(make_run(tenant, f"{tenant}-2"))

    with pytest.raises(ConfigurationError, match=CLOSED):
        outliving()
    with twinstore.add_scheduler_storage(every_store) as again:
        assert len(again.runs.list(tenant)) == 0
        # MongoDB keeps the row of an abandoned transaction for a minute (docs/concurrency.md).
        if "Mongo" not in str(every_store["Persistence"]):
            again.runs.create(make_run(tenant, f"{tenant}-1"))


def test_calls_that_run_while_a_storage_is_closed_end_with_an_error_of_the_library(
    every_store: Settings, tenant: str
) -> None:
    storage = twinstore.add_scheduler_storage(every_store)
    running = Event()
    came = Counter[str]()

    def call() -> None:
        while True:
            try:
                storage.runs.list(tenant)
                with storage.transaction(tenant) as unit:
                    unit.runs.list(tenant)
                running.set()
            except ConfigurationError as error:
                came[error.message] += 1
                return
            except TwinstoreError as error:
                # In the middle of a round trip; the error of the next call says why.
                came[type(error).__name__] += 1

    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(call) for _ in range(THREADS)]
        assert running.wait(WAIT)
        storage.close()
        for done in calls:
            done.result(WAIT)
    assert sum(count for message, count in came.items() if CLOSED in message) == THREADS


def test_the_facade_for_asyncio_answers_the_same(every_store: Settings, tenant: str) -> None:
    async def main() -> None:
        storage = aio.open_storage(every_store)
        scheduler = storage.scheduler
        calls: dict[str, Callable[[], Any]] = {
            "repository": lambda: scheduler.runs.list(tenant),
            "check_ready": scheduler.check_ready,
            "capabilities": scheduler.capabilities,
            "transact": lambda: scheduler.transact(nothing, tenant_id=tenant),
            "session": scheduler.session(tenant).__aenter__,
            "transaction": scheduler.transaction(tenant).__aenter__,
        }
        await scheduler.runs.list(tenant)

        async def outliving() -> None:
            async with scheduler.transaction(tenant) as unit:
                await unit.runs.create(make_run(tenant, f"{tenant}-1"))
                await storage.close()
                with pytest.raises(ConfigurationError, match=CLOSED):
                    await unit.runs.list(tenant)

        with pytest.raises(ConfigurationError, match=CLOSED):
            await outliving()
        await storage.close()
        for call in calls.values():
            with pytest.raises(ConfigurationError, match=CLOSED):
                await call()

    asyncio.run(main())
    with twinstore.add_scheduler_storage(every_store) as again:
        assert len(again.runs.list(tenant)) == 0


async def nothing(unit: object) -> None:
    """Do nothing in a unit."""


def test_a_call_whose_storage_is_closed_meanwhile_makes_no_client_of_its_own(
    mongo_database: MongoDatabase, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = twinstore.add_scheduler_storage(mongo_database.config)
    storage.runs.create(make_run(tenant, "stored"))
    made: list[object] = []

    def meanwhile(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(connection, "new_client", lambda *_: made.append(None))
        storage.close()
        raise AutoReconnect("the connection is gone")

    monkeypatch.setattr(Connection, "receive_message", meanwhile)
    with pytest.raises(TwinstoreError):
        storage.runs.get(tenant, "stored")
    assert made == []
