"""Calls of MongoDB that the handler of a signal interrupts at the worst instant; see ``test_signals``."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread, get_ident
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect
from pymongo.synchronous.pool import Connection, Pool
from pymongo.synchronous.topology import Topology

import twinstore
from tests.faults.signalling import Deadline
from twinstore.errors import TwinstoreError
from twinstore.testing.scheduler.builders import make_run
from twinstore_mongo import connection
from twinstore_mongo.waiting import THREAD_NAME, Waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase
    from twinstore.scheduler.storage import SchedulerStorage


@pytest.fixture
def storage(mongo_database: MongoDatabase, tenant: str) -> Iterator[SchedulerStorage]:
    """Open a storage that has one run."""
    with twinstore.add_scheduler_storage(mongo_database.config) as opened:
        opened.runs.create(make_run(tenant, "stored"))
        yield opened


def test_a_connection_whose_answer_nobody_has_read_is_not_lent_again(
    storage: SchedulerStorage, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise Deadline

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "receive_message", interrupted)
        with pytest.raises(Deadline):
            storage.runs.get(tenant, "stored")
    assert storage.runs.get(tenant, "stored") is not None


def test_a_connection_that_got_lost_on_its_way_back_leaves_its_place(
    mongo_database: MongoDatabase, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = replace(mongo_database, url=f"{mongo_database.url}&maxPoolSize=1")

    def interrupted(*_: object) -> None:
        raise Deadline

    with twinstore.add_scheduler_storage(narrow.config) as storage:
        storage.runs.create(make_run(tenant, "stored"))
        with monkeypatch.context() as patch:
            patch.setattr(Pool, "checkin", interrupted)
            with pytest.raises(Deadline):
                storage.runs.get(tenant, "stored")
        assert storage.runs.get(tenant, "stored") is not None


def test_a_connection_that_is_back_when_its_call_is_interrupted_is_counted_once(
    storage: SchedulerStorage, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    check_in = Pool.checkin

    def interrupted(pool: Any, connection: Any) -> None:  # noqa: ANN401
        with monkeypatch.context() as patch:
            # The last step with the lock of the pool, which counts the connection no longer.
            patch.setattr(pool.size_cond, "notify", refuse)
            check_in(pool, connection)

    def refuse(*_: object) -> None:
        raise Deadline

    def lend(pool: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        used.append(pool)
        return get(pool, *given, **named)

    get = Pool._get_conn  # noqa: SLF001  # which nobody else tells
    with monkeypatch.context() as patch:
        patch.setattr(Pool, "checkin", interrupted)
        patch.setattr(Pool, "_get_conn", lend)
        with pytest.raises(Deadline):
            storage.runs.get(tenant, "stored")
    pool = used[-1]
    # Whatever closes it while it waits there for the next call.
    pool.reset_without_pause()
    gc.collect()
    assert storage.runs.get(tenant, "stored") is not None
    assert (pool.requests, pool.active_sockets, pool.operation_count) == (0, 0, 0)


def test_a_connection_that_waits_for_the_next_call_before_it_is_counted_leaves_its_place(
    storage: SchedulerStorage, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[Any] = []
    check_in = Pool.checkin

    def interrupted(pool: Any, connection: Any) -> None:  # noqa: ANN401
        with monkeypatch.context() as patch:
            # Called when the connection waits for the next call; the lowest releases count it only then.
            patch.setattr(pool._max_connecting_cond, "notify", refuse)  # noqa: SLF001
            check_in(pool, connection)

    def refuse(*_: object) -> None:
        raise Deadline

    def noted(pool: Any, connection: Any) -> None:  # noqa: ANN401
        pools.append(pool)
        check_in(pool, connection)

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "checkin", interrupted)
        with pytest.raises(Deadline):
            storage.runs.get(tenant, "stored")
    monkeypatch.setattr(Pool, "checkin", noted)
    for _ in range(2):
        assert storage.runs.get(tenant, "stored") is not None
        assert (pools[-1].requests, pools[-1].active_sockets, pools[-1].operation_count) == (0, 0, 0)


def test_a_session_that_was_given_back_twice_is_lent_to_one_call_at_a_time(
    storage: SchedulerStorage, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_back = MongoClient._return_server_session  # noqa: SLF001  # whose callers are interrupted
    given = list[Any]()

    def interrupted(client: Any, session: Any) -> None:  # noqa: ANN401
        give_back(client, session)
        given.append(session)
        if len(given) == 1:
            raise Deadline

    with monkeypatch.context() as patch:
        patch.setattr(MongoClient, "_return_server_session", interrupted)
        with pytest.raises(Deadline):
            storage.runs.get(tenant, "stored")
    # The cursor is collected, which gives its session back once more.
    gc.collect()
    lent: list[Any] = []
    lend = Topology.get_server_session

    def noted(topology: Any, minutes: Any) -> Any:  # noqa: ANN401
        lent.append(lend(topology, minutes))
        return lent[-1]

    monkeypatch.setattr(Topology, "get_server_session", noted)
    with storage.sessions.open(tenant) as one, storage.sessions.open(tenant) as other:
        assert [opened.runs.get(tenant, "stored") is not None for opened in (one, other)] == [True, True]
        assert len({session.session_id["id"] for session in lent}) == len(lent) == 2


def another_unit(storage: SchedulerStorage, tenant: str) -> None:
    with storage.transaction(tenant) as unit:
        unit.runs.create(make_run(tenant, "of another unit"))


def test_a_session_that_comes_back_late_is_not_taken_from_who_has_it(
    storage: SchedulerStorage, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[tuple[Any, Any]] = []
    give_back = Topology.return_server_session

    def noted(topology: Any, session: Any) -> None:  # noqa: ANN401
        returned.append((topology, session))
        give_back(topology, session)

    monkeypatch.setattr(Topology, "return_server_session", noted)
    storage.runs.get(tenant, "stored")
    with storage.transaction(tenant) as unit:
        unit.runs.create(make_run(tenant, "first"))
        for topology, session in [*returned]:
            give_back(topology, session)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(another_unit, storage, tenant).result()
        unit.runs.create(make_run(tenant, "second"))
    assert {run.id for run in storage.runs.list(tenant).items} == {
        "stored",
        "first",
        "of another unit",
        "second",
    }


def test_the_thread_that_watches_calls_is_not_started_where_handlers_of_signals_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []
    start = Thread.start

    def noted(thread: Thread) -> None:
        if thread.name == THREAD_NAME:
            started.append(get_ident())
        start(thread)

    monkeypatch.setattr(Thread, "start", noted)
    ended = Thread()  # only for its lock
    waits = Waits(lambda: None, pause=lambda _: None)
    waits.begin(ended)
    while not started:
        pass
    waits.end(ended)
    assert get_ident() not in started


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
