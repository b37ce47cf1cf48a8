"""Pools that an application made for itself: each works as it is, or is refused with one sentence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg.adapt import AdaptersMap, Loader
from psycopg.rows import dict_row, namedtuple_row
from psycopg_pool import ConnectionPool, NullConnectionPool
from typing_extensions import override

import twinstore
from tests.support.outages import eventually
from twinstore.errors import ConfigurationError, DuplicateError, Outcome, UnavailableError
from twinstore.scheduler import ExecutionLogEntry
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore_postgres.connection import cursors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg.abc import AdaptContext, Buffer

    from tests.support.databases import PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage


class Shouting(Loader):
    """Reads every value as another one."""

    @override
    def load(self, data: Buffer) -> object:
        return f"{bytes(data)!r}!"


class ShoutingBinary(Shouting):
    """The same of binary values."""

    format = psycopg.pq.Format.BINARY


SHOUTED: Final = (
    "text", "varchar", "int4", "int8", "bool", "timestamptz", "jsonb", "uuid", "float8", "bytea",
)  # fmt: skip
FORMATS: Final = (psycopg.pq.Format.TEXT, psycopg.pq.Format.BINARY)


def shout(context: AdaptContext) -> None:
    """Read every type in another way."""
    for name in SHOUTED:
        context.adapters.register_loader(name, Shouting)
        context.adapters.register_loader(name, ShoutingBinary)


def german(connection: psycopg.Connection[Any]) -> None:
    """Write dates as in Germany."""
    connection.execute("SET DateStyle = 'German'")
    connection.execute("SET IntervalStyle = 'sql_standard'")
    connection.execute("SET TimeZone = 'Asia/Kathmandu'")
    connection.commit()


class OtherConnection(psycopg.Connection[Any]):
    """A class of the application."""


WORKING: Final[dict[str, dict[str, Any]]] = {
    "as psycopg_pool makes it": {},
    "autocommit": {"kwargs": {"autocommit": True}},
    "dict_row": {"kwargs": {"row_factory": dict_row}},
    "namedtuple_row": {"kwargs": {"row_factory": namedtuple_row}},
    "RawCursor": {"kwargs": {"cursor_factory": psycopg.RawCursor}},
    "ClientCursor": {"kwargs": {"cursor_factory": psycopg.ClientCursor}},
    "prepare_threshold": {"kwargs": {"prepare_threshold": 0}},
    "nothing prepared": {"kwargs": {"prepare_threshold": None}},
    "loaders of connections": {"configure": shout},
    "DateStyle": {"configure": german},
    "a class of connections": {"connection_class": OtherConnection},
    "a check": {"check": ConnectionPool.check_connection},
    "one connection": {"max_size": 1},
}


@pytest.fixture
def opened(
    request: pytest.FixtureRequest, module_postgres_database: PostgresDatabase
) -> Iterator[SchedulerStorage]:
    made: dict[str, Any] = {"min_size": 1, "open": True, **request.param}
    with ConnectionPool[Any](module_postgres_database.app_url, **made) as pool:
        settings = {"Persistence": {"Postgres": {"Pool": pool}}}
        with twinstore.add_scheduler_postgres_storage(settings) as storage:
            yield storage


def use(storage: SchedulerStorage, database: PostgresDatabase) -> None:
    """Use a storage in every way, and check through another one what it wrote."""
    tenant = uuid4().hex
    storage.check_ready()
    run = storage.runs.create(make_run(tenant, f"{tenant} 1"))
    with pytest.raises(DuplicateError):
        storage.runs.create(run)
    assert storage.runs.get(tenant, run.id) == run
    line = ExecutionLogEntry(
        tenant_id=tenant, run_id=run.id, logged_at=at(), message="it began", data={"a": [1, {"b": 2.5}]}
    )
    (logged,) = storage.execution_logs.append([line])
    with storage.transaction(tenant) as unit:
        assert unit.runs.get(tenant, run.id) == run
        unit.runs.create(make_run(tenant, f"{tenant} 2"))
    lock = storage.locks.try_acquire(f"job {tenant}", timedelta(seconds=5), tenant_id=tenant)
    assert lock is not None
    assert abs(lock.acquired_at - datetime.now(UTC)) < timedelta(minutes=5)
    lock.release()
    with twinstore.open_storage(database.config) as ours:
        assert ours.scheduler.runs.get(tenant, run.id) == run
        assert tuple(ours.scheduler.execution_logs.list(tenant, run.id)) == (logged,)


@pytest.mark.parametrize("opened", WORKING.values(), ids=WORKING, indirect=True)
def test_a_pool_works_as_its_owner_made_it(
    opened: SchedulerStorage, module_postgres_database: PostgresDatabase
) -> None:
    use(opened, module_postgres_database)


def test_a_pool_without_connections_of_its_own_works(module_postgres_database: PostgresDatabase) -> None:
    with NullConnectionPool[Any](module_postgres_database.app_url, open=True) as pool:
        settings = {"Persistence": {"Postgres": {"Pool": pool}}}
        with twinstore.add_scheduler_postgres_storage(settings) as storage:
            use(storage, module_postgres_database)


LATIN: Final = {"kwargs": {"client_encoding": "latin1"}}


@pytest.mark.parametrize("opened", [LATIN], indirect=True)
@pytest.mark.parametrize(
    "call",
    [lambda storage: storage.check_ready(), lambda storage: storage.runs.get("acme", "run")],
    ids=["check_ready", "get"],
)
def test_an_encoding_that_does_not_hold_every_text_is_refused(
    opened: SchedulerStorage, call: Callable[[SchedulerStorage], object]
) -> None:
    with pytest.raises(ConfigurationError, match="client encoding iso8859-1, which does not hold every text"):
        call(opened)


def test_a_joined_connection_with_such_an_encoding_is_refused(
    module_postgres_database: PostgresDatabase,
) -> None:
    url = module_postgres_database.app_url
    with (
        twinstore.open_storage(module_postgres_database.config) as storage,
        psycopg.connect(url, client_encoding="latin1") as connection,
        pytest.raises(ConfigurationError, match="client_encoding=UTF8"),
    ):
        storage.scheduler.bind(connection, "acme").runs.get("acme", "run")


def test_a_pool_that_lets_no_more_callers_wait_says_so(module_postgres_database: PostgresDatabase) -> None:
    pool = ConnectionPool[Any](
        module_postgres_database.app_url, min_size=1, max_size=1, max_waiting=1, open=True
    )
    settings = {"Persistence": {"Postgres": {"Pool": pool}}}
    with (
        pool,
        twinstore.add_scheduler_postgres_storage(settings) as storage,
        ThreadPoolExecutor(1) as caller,
    ):
        with pool.connection():
            waiting = caller.submit(storage.runs.get, "acme", "run")
            assert eventually(lambda: pool.get_stats().get("requests_waiting") == 1)
            with pytest.raises(UnavailableError, match="requests waiting") as refused:
                storage.runs.get("acme", "run")
            assert refused.value.outcome is Outcome.NOT_APPLIED
        assert waiting.result() is None


def test_what_was_registered_with_psycopg_before_the_driver_was_loaded_is_refused(
    module_postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters = AdaptersMap(psycopg.adapters)
    assert cursors.registered(adapters) == ()
    adapters.register_loader("timestamptz", ShoutingBinary)
    monkeypatch.setattr(cursors, "FOREIGN", cursors.registered(adapters))
    with (
        twinstore.add_scheduler_postgres_storage(module_postgres_database.config) as storage,
        pytest.raises(ConfigurationError, match="how to read or write timestamptz, before this driver"),
    ):
        storage.runs.get("acme", "run")


def test_what_an_application_registers_with_psycopg_changes_no_answer(
    module_postgres_database: PostgresDatabase,
) -> None:
    """As applications do that read infinite dates, or dates of another library."""
    before = AdaptersMap(psycopg.adapters)
    shout(psycopg.adapters)
    try:
        with twinstore.add_scheduler_postgres_storage(module_postgres_database.config) as storage:
            use(storage, module_postgres_database)
    finally:
        for name, form in product(SHOUTED, FORMATS):
            loader = before.get_loader(before.types.get_oid(name), form)
            assert loader is not None
            psycopg.adapters.register_loader(name, loader)
