"""Behind pgbouncer in transaction mode: what travels with each transaction, and what is left afterwards."""

from __future__ import annotations

import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool
from pydantic import SecretStr
from typing_extensions import override

import twinstore
from tests.drivers.postgres.deployment import address_of, module_on, through
from tests.support.databases import APP_ROLE
from tests.support.pgbouncer import pooler_before
from tests.support.proxies import CountingProxy, proxy_to
from tests.support.servers import postgres_url
from twinstore.access.scope import Scope
from twinstore.errors import Outcome, TimeoutExceededError, UnavailableError, ValidationError
from twinstore.scheduler.module import MODULE
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore_postgres.access.access import PostgresAccess
from twinstore_postgres.connection import pipeline, undocumented
from twinstore_postgres.connection.data_source import SchedulerDataSource
from twinstore_postgres.connection.errors import NO_SUBJECT
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

    from tests.support.databases import PostgresDatabase, PostgresServer
    from tests.support.pgbouncer import Pooler
    from tests.support.proxies import BreakableProxy
    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore_postgres.backend import PostgresBackend

pytestmark = pytest.mark.pgbouncer

CLIENTS: Final = 6
ROUNDS: Final = 20
PREPARED: Final = b"SELECT count(*) FROM pg_prepared_statements"
SETTINGS: Final = (
    b"SELECT current_setting('app.tenant_id', true), current_setting('TimeZone'),"
    b" current_setting('DateStyle'),"
    b" current_setting('extra_float_digits'), current_setting('row_security'),"
    b" current_setting('statement_timeout'), current_setting('transaction_isolation'),"
    b" current_setting('transaction_read_only')"
)
OURS: Final = ("UTC", "ISO, DMY", "1", "on", "30s")
# Set for the role by another user; every connection of the pooler to the server begins with it.
OTHERS: Final = {
    "timezone": "Asia/Kolkata",
    "datestyle": "German",
    "extra_float_digits": "-3",
    "row_security": "off",
    "statement_timeout": "7s",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
}
BEFORE: Final = ("", "Asia/Kolkata", "German, DMY", "-3", "off", "7s", "serializable", "on")


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """Create a database whose application role begins with settings of another user."""
    with postgres_server.migrated_database() as database:
        with psycopg.connect(database.superuser_url, autocommit=True) as admin:
            for name, value in OTHERS.items():
                place = sql.Identifier(APP_ROLE), sql.Identifier(database.name), sql.Identifier(name)
                admin.execute(sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}").format(*place, value))
        yield database


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[Pooler]:
    """Run a pooler with one connection of the server for all clients of a database."""
    with pooler_before(postgres_server.url, default_pool_size=1, reserve_pool_size=0) as pooler:
        yield pooler


@pytest.fixture
def storage(pooler: Pooler, database: PostgresDatabase) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_postgres_storage(pooler.config(database)) as opened:
        yield opened


def settings_of(pooler: Pooler, database: PostgresDatabase, *, timeout: int = 30_000) -> PostgresSettings:
    """Return the settings of a driver."""
    return PostgresSettings(
        connection_string=SecretStr(pooler.url(database.app_url)),
        transaction_pooler=True,
        statement_timeout_ms=timeout,
    )


@contextmanager
def opened(database: PostgresDatabase, settings: PostgresSettings) -> Iterator[PostgresBackend[Any]]:
    """Open a module for statements of a test."""
    with module_on(database, MODULE, settings=settings) as backend:
        yield backend


@pytest.fixture
def access(pooler: Pooler, database: PostgresDatabase) -> Iterator[PostgresAccess]:
    with opened(database, settings_of(pooler, database)) as backend:
        found = backend.unbound()
        assert isinstance(found, PostgresAccess)
        yield found


def asked(access: PostgresAccess, tenant: str, statement: bytes) -> tuple[Any, ...]:
    """Return the row that a statement answers inside a call."""
    found = access.execution.one(tenant, NO_SUBJECT, (statement, ()))
    assert found is not None
    return found


def left(pooler: Pooler, database: PostgresDatabase) -> tuple[Any, ...]:
    """Return what a client finds that sets nothing, on the connection that all others have used."""
    url = pooler.url(database.app_url)
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as client:
        row = client.execute(SETTINGS).fetchone()
    assert row is not None
    return (row[0] or "", *row[1:])


def test_every_call_has_its_settings_and_leaves_none(
    pooler: Pooler, database: PostgresDatabase, access: PostgresAccess
) -> None:
    assert asked(access, "a", SETTINGS) == ("a", *OURS, "read committed", "off")
    with access.execution.unit("b", NO_SUBJECT) as steps:
        assert steps.run((SETTINGS, ()))[0].first == ("b", *OURS, "read committed", "off")
        assert steps.finish((SETTINGS, ()))[0].first == ("b", *OURS, "read committed", "off")
    assert left(pooler, database) == BEFORE


@pytest.mark.parametrize("read_only", [False, True])
def test_a_unit_of_work_reads_one_state_under_the_same_settings(
    pooler: Pooler, database: PostgresDatabase, *, read_only: bool
) -> None:
    with opened(database, settings_of(pooler, database)) as backend:
        with backend.open_transaction(Scope(tenant_id="t"), read_only=read_only) as unit:
            assert isinstance(unit, PostgresAccess)
            mode = "on" if read_only else "off"
            assert asked(unit, "t", SETTINGS) == ("t", *OURS, "repeatable read", mode)
            # Another tenant in the middle: that alone changes.
            assert asked(unit, "u", SETTINGS) == ("u", *OURS, "repeatable read", mode)
        assert left(pooler, database) == BEFORE


def test_a_statement_is_cancelled_after_the_time_of_the_settings(
    pooler: Pooler, database: PostgresDatabase
) -> None:
    with opened(database, settings_of(pooler, database, timeout=1000)) as backend:
        access = backend.unbound()
        assert isinstance(access, PostgresAccess)
        with pytest.raises(TimeoutExceededError):
            asked(access, "t", b"SELECT pg_sleep(60)")
        assert asked(access, "t", b"SELECT 1") == (1,)
    assert left(pooler, database) == BEFORE


def test_nothing_is_prepared_on_the_server(
    pooler: Pooler, database: PostgresDatabase, storage: SchedulerStorage, tenant: str
) -> None:
    for number in range(3):
        storage.schedules.upsert(make_schedule(tenant, f"s-{number}"))
    with storage.transaction(tenant) as unit:
        unit.runs.create(make_run(tenant, f"{tenant}-r-1"))
    assert len(storage.schedules.list(tenant).items) == 3
    url = pooler.url(database.app_url)
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as client:
        assert client.execute(PREPARED).fetchone() == (0,)


def test_a_call_costs_as_many_round_trips_as_past_the_pooler(
    pooler: Pooler, database: PostgresDatabase, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[object] = []
    original = pipeline.fetched

    def counted(pgconn: PGconn) -> PQGen[list[PGresult]]:
        trips.append(pgconn)
        return original(pgconn)

    monkeypatch.setattr(pipeline, "fetched", counted)

    def trips_of(call: Callable[[], object]) -> int:
        trips.clear()
        call()
        return len(trips)

    with twinstore.add_scheduler_postgres_storage(pooler.config(database)) as storage:
        storage.check_ready()
        assert trips_of(lambda: storage.runs.create(make_run(tenant, tenant))) == 1
        assert trips_of(lambda: storage.runs.get(tenant, tenant)) == 1
        assert trips_of(lambda: storage.runs.list(tenant)) == 1
        # It reads before it writes: begin, lock and read, then write and commit.
        assert trips_of(lambda: storage.schedules.upsert(make_schedule(tenant, tenant))) == 2


def test_a_session_holds_no_connection_of_the_server_between_its_calls(
    pooler: Pooler, database: PostgresDatabase, storage: SchedulerStorage, tenant: str
) -> None:
    """One connection serves an open session, and every other client meanwhile."""
    with storage.sessions.open(tenant) as session:
        session.runs.create(make_run(tenant, f"{tenant}-r-1"))
        assert left(pooler, database) == BEFORE
        storage.runs.create(make_run(tenant, f"{tenant}-r-2"))
        # What this session wrote, and what others have committed: there is one primary.
        assert session.runs.get(tenant, f"{tenant}-r-1") is not None
        assert session.runs.get(tenant, f"{tenant}-r-2") is not None


def test_an_error_gives_the_connection_of_the_server_back(
    pooler: Pooler, database: PostgresDatabase, access: PostgresAccess
) -> None:
    """A failed statement leaves its transaction open until it is rolled back, and this is the only one."""
    for failing in (b"SELECT 1/0", b"SELECT nothing_of_this_name"):
        with pytest.raises(twinstore.TwinstoreError):
            asked(access, "t", failing)
        assert left(pooler, database) == BEFORE
    assert asked(access, "t", b"SELECT 1") == (1,)


def ask_until_interrupted(access: PostgresAccess) -> None:
    """Ask for what takes longer than the time after which a signal comes."""
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    asked(access, "t", b"SELECT pg_sleep(25)")


def test_a_call_that_is_interrupted_is_cancelled_and_rolled_back(
    pooler: Pooler, database: PostgresDatabase, access: PostgresAccess
) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask_until_interrupted(access)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert left(pooler, database) == BEFORE
    assert asked(access, "t", b"SELECT 1") == (1,)


def test_tenants_stay_separated_while_many_clients_share_one_connection(
    pooler: Pooler, database: PostgresDatabase, tenant: str
) -> None:
    start = Barrier(CLIENTS)

    def serve(number: int) -> None:
        own = f"{tenant}-{number}"
        with twinstore.add_scheduler_postgres_storage(pooler.config(database)) as storage:
            start.wait(60)
            for count in range(1, ROUNDS + 1):
                if count % 2:
                    storage.runs.create(make_run(own, f"{own}-{count}"))
                else:
                    with storage.transaction(own) as unit:
                        assert len(unit.runs.list(own).items) == count - 1
                        unit.runs.create(make_run(own, f"{own}-{count}"))
                assert {run.tenant_id for run in storage.runs.list(own).items} == {own}
                # Of the neighbour, whose call may be the one before on the connection, nothing is seen.
                neighbour = f"{tenant}-{(number + 1) % CLIENTS}"
                assert storage.runs.get(own, f"{neighbour}-1") is None

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(serve, range(CLIENTS)))
    assert left(pooler, database) == BEFORE


def die_in_a_unit(storage: SchedulerStorage, line: BreakableProxy, tenant: str) -> None:
    """End a connection in the middle of a unit, as that of a process that is killed ends."""
    with storage.transaction(tenant) as unit:
        unit.runs.create(make_run(tenant, f"{tenant}-r-1"))
        line.cut()


def test_of_a_client_that_dies_in_a_transaction_nothing_is_left(
    pooler: Pooler, database: PostgresDatabase, storage: SchedulerStorage, tenant: str
) -> None:
    with proxy_to(address_of(pooler.url(database.app_url))) as line:
        url = through(line, pooler.url(database.app_url))
        settings = pooler.config(database, ConnectionString=url)
        dying = twinstore.add_scheduler_postgres_storage(settings)
        with dying, pytest.raises(UnavailableError) as caught:
            die_in_a_unit(dying, line, tenant)
    assert caught.value.outcome is Outcome.UNKNOWN  # of the commit, which it could not send
    assert left(pooler, database) == BEFORE
    assert storage.runs.list(tenant).items == ()


def test_a_pool_of_the_host_prepares_nothing_and_keeps_its_settings(
    pooler: Pooler, database: PostgresDatabase, tenant: str
) -> None:
    url = pooler.url(database.app_url)
    options = {"autocommit": True, "prepare_threshold": 0}
    with ConnectionPool(url, kwargs=options, min_size=2, max_size=2, open=True) as pool:
        settings = PostgresSettings(pool=pool, transaction_pooler=True)
        with opened(database, settings) as backend:
            access = backend.unbound()
            assert isinstance(access, PostgresAccess)
            for _ in range(3):
                assert asked(access, tenant, SETTINGS)[:2] == (tenant, "Asia/Kolkata")
            assert asked(access, tenant, PREPARED) == (0,)
    assert left(pooler, database) == BEFORE


def url_in(settings: Settings) -> str:
    """Return the connection string of settings."""
    persistence = cast("dict[str, Any]", settings["Persistence"])
    return str(persistence["Postgres"]["ConnectionString"])


# What psycopg's pipeline may send behind the end of a transaction.
FLUSH: Final = b"H\x00\x00\x00\x04"
LATE_SECONDS: Final = 0.2


class LateFlush(CountingProxy):
    """Passes a Flush on when the answers to what was before it have long come, as a busy client sends it."""

    @override
    def _send(self, target: socket.socket, part: bytes) -> None:
        if part.endswith(FLUSH):
            target.sendall(part.removesuffix(FLUSH))
            time.sleep(LATE_SECONDS)
            part = FLUSH
        target.sendall(part)


@contextmanager
def of_a_pool(settings: Settings) -> Iterator[SchedulerSession]:
    """Open a storage over a pool of the host."""
    with ConnectionPool(url_in(settings), kwargs={"autocommit": True, "prepare_threshold": None}) as pool:
        postgres = {"Pool": pool, "TransactionPooler": True}
        with twinstore.add_scheduler_postgres_storage({"Persistence": {"Postgres": postgres}}) as storage:
            yield storage


@contextmanager
def of_a_caller(settings: Settings) -> Iterator[SchedulerSession]:
    """Open a storage and join a connection that is in no transaction."""
    with (
        twinstore.add_scheduler_postgres_storage(settings) as storage,
        psycopg.connect(url_in(settings), autocommit=True, prepare_threshold=None) as connection,
    ):
        yield storage.bind(connection, "t")


@contextmanager
def without_our_pipeline(settings: Settings) -> Iterator[SchedulerSession]:
    """Open a storage as with a release of psycopg that does not carry our pipeline."""
    with pytest.MonkeyPatch.context() as released:
        released.setattr(undocumented, "_limitations", {})
        released.setattr(undocumented, "_probed", set())
        released.setitem(sys.modules, "twinstore_postgres.connection.pipeline", None)
        with twinstore.add_scheduler_postgres_storage(settings) as storage:
            yield storage


@pytest.mark.parametrize("way", [of_a_pool, of_a_caller, without_our_pipeline])
def test_a_call_of_a_busy_client_leaves_the_connection_of_the_server_to_others(
    pooler: Pooler,
    module_postgres_database: PostgresDatabase,
    way: Callable[[Settings], AbstractContextManager[SchedulerSession]],
) -> None:
    url = pooler.url(module_postgres_database.app_url)
    with (
        LateFlush(socket.AF_INET, address_of(url)) as line,
        way(pooler.config(module_postgres_database, ConnectionString=through(line, url))) as session,
    ):
        for call in (
            lambda: session.runs.list("t"),
            lambda: session.schedules.upsert(make_schedule("t", "s")),
            lambda: session.runs.get("t", "none"),
        ):
            call()
            time.sleep(2 * LATE_SECONDS)
            # With a connection that is held, this one waits for 20 s and fails.
            left(pooler, module_postgres_database)


def test_a_connection_of_the_caller_is_joined_without_preparing(
    pooler: Pooler, database: PostgresDatabase, storage: SchedulerStorage, tenant: str
) -> None:
    url = pooler.url(database.app_url)
    with psycopg.connect(url, prepare_threshold=0) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE", prepare=False)
        connection.execute("SET LOCAL row_security = on", prepare=False)
        bound = storage.bind(connection, tenant)
        for number in range(3):
            bound.runs.create(make_run(tenant, f"{tenant}-{number}"))
        found = connection.execute(PREPARED, prepare=False).fetchone()
        assert found == (0,)
    assert len(storage.runs.list(tenant).items) == 3
    assert left(pooler, database) == BEFORE


def test_connections_of_the_host_have_settings_and_tenant_for_one_transaction(
    pooler: Pooler, database: PostgresDatabase, tenant: str
) -> None:
    with SchedulerDataSource(pooler.config(database)) as source:
        for _ in range(2):
            with source.open_connection(tenant) as connection:
                row = connection.execute(SETTINGS).fetchone()
                assert row == (tenant, *OURS, "read committed", "off")
                connection.execute("SET ROLE NONE")
                assert connection.execute(PREPARED).fetchone() == (0,)
            assert connection.info.transaction_status == TransactionStatus.IDLE
    assert left(pooler, database) == BEFORE


@pytest.mark.parametrize(
    "options",
    [
        {"ignore_startup_parameters": "options, extra_float_digits"},
        {"server_reset_query": "DISCARD ALL", "server_reset_query_always": 1},
        {"server_reset_query": ""},
    ],
    ids=["ignored parameters", "reset after each transaction", "never reset"],
)
def test_how_the_pooler_treats_parameters_and_connections_does_not_matter(
    postgres_server: PostgresServer, database: PostgresDatabase, tenant: str, options: dict[str, object]
) -> None:
    with pooler_before(postgres_server.url, **options) as pooler:
        with opened(database, settings_of(pooler, database)) as backend:
            access = backend.unbound()
            assert isinstance(access, PostgresAccess)
            assert asked(access, "a", SETTINGS) == ("a", *OURS, "read committed", "off")
        with twinstore.add_scheduler_postgres_storage(pooler.config(database)) as storage:
            storage.check_ready()
            with storage.transaction(tenant) as unit:
                unit.runs.create(make_run(tenant, f"{tenant}-r-1"))
            assert len(storage.runs.list(tenant).items) == 1
            with storage.locks.acquire(tenant, timedelta(seconds=10)):
                pass


def test_a_call_that_waited_in_vain_for_a_connection_of_the_server_has_done_nothing(
    postgres_server: PostgresServer, database: PostgresDatabase, tenant: str
) -> None:
    options = {"default_pool_size": 1, "reserve_pool_size": 0, "query_wait_timeout": 3}
    with (
        pooler_before(postgres_server.url, **options) as pooler,
        twinstore.add_scheduler_postgres_storage(pooler.config(database)) as storage,
    ):
        with storage.transaction(tenant) as unit, ThreadPoolExecutor(1) as another:
            unit.runs.list(tenant)
            call = another.submit(storage.runs.create, make_run(tenant, tenant))
            with pytest.raises(UnavailableError, match="query_wait_timeout") as caught:
                call.result()
        assert caught.value.outcome is Outcome.NOT_APPLIED
        assert storage.runs.get(tenant, tenant) is None


def test_a_server_away_behind_a_pooler_that_asks_for_passwords_is_no_mistake_in_the_settings(
    postgres_server: PostgresServer, database: PostgresDatabase
) -> None:
    """The pooler takes the password, and only then has no connection of the server to give."""
    away = postgres_url(postgres_server.url, port="1")
    with (
        pooler_before(away, auth_type="scram-sha-256", query_wait_timeout=1) as pooler,
        twinstore.add_scheduler_postgres_storage(pooler.config(database)) as storage,
        pytest.raises(UnavailableError) as caught,
    ):
        storage.runs.list("t")
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_a_store_that_is_only_read_takes_no_write(pooler: Pooler, database: PostgresDatabase) -> None:
    with module_on(database, MODULE, settings=settings_of(pooler, database), read_only=True) as backend:
        access = backend.unbound()
        assert isinstance(access, PostgresAccess)
        assert asked(access, "a", SETTINGS)[-1] == "on"
        with pytest.raises(ValidationError):
            asked(access, "a", b"DELETE FROM scheduler.runs")
