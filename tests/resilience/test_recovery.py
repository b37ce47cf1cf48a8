"""After an outage of PostgreSQL its pool serves again at once, and no connection is opened outside it."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool
from pydantic import SecretStr

import twinstore
from tests.resilience.test_silence import (
    await_none_connected,
    connected_to,
    ended_together,
    frozen,
    most_connections,
    postgres_of_its_own,
    settings_of,
    timed,
)
from twinstore.errors import ConfigurationError, DuplicateError, TimeoutExceededError, UnavailableError
from twinstore.testing.scheduler.builders import make_run
from twinstore.tracking.catalog import SESSIONS
from twinstore_embedded import Shutdown
from twinstore_embedded.state import wait_until
from twinstore_postgres.connection import deadlines
from twinstore_postgres.connection import pool as server_connections
from twinstore_postgres.connection.errors import connect_sqlstate
from twinstore_postgres.connection.pool import ServerConnections
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_embedded import PostgresServer

TENANT: Final = "acme"
CALLERS: Final = 6
POOL: Final = 4
OUTAGE_SECONDS: Final = 3.0
LONG_OUTAGE_SECONDS: Final = 120.0
SOON_SECONDS: Final = 2.0
# Sooner than the ten seconds for which a call waits for a connection.
IN_TIME_SECONDS: Final = 8.0
PAUSE_SECONDS: Final = 0.05
HOLD_SECONDS: Final = 0.05
JOIN_SECONDS: Final = 60.0
ROLE: Final = "twinstore_app"
PROBE_MS: Final = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_of_its_own() as found:
        with twinstore.open_storage(settings_of(found)) as opened:
            opened.scheduler.initializer.ensure_migrations()
        yield found


@pytest.fixture
def outage_seconds(*, long_form: bool) -> float:
    """Return how long the server is away: two minutes in the full form."""
    return LONG_OUTAGE_SECONDS if long_form else OUTAGE_SECONDS


@contextmanager
def open_at(server: PostgresServer, **changes: object) -> Iterator[SchedulerStorage]:
    with twinstore.open_storage(settings_of(server, **changes)) as opened:
        yield opened.scheduler


class Callers:
    """Threads that read again and again, and note each answer and each error with its instant."""

    def __init__(self, storage: SchedulerStorage) -> None:
        self._storage = storage
        self._stop = Event()
        self.answered: list[float] = []
        self.errors: list[tuple[float, Exception]] = []

    def call(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                self._storage.runs.get(TENANT, "nobody")
            except Exception as error:  # noqa: BLE001  # the test judges it
                self.errors.append((time.monotonic(), error))
            else:
                self.answered.append(time.monotonic())

    def stop(self) -> None:
        self._stop.set()


@pytest.mark.parametrize("how", ["stopped", "killed", "frozen"])
def test_the_pool_serves_again_soon_after_an_outage(
    server: PostgresServer, how: str, outage_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A call ends before the server goes on that is frozen.
    monkeypatch.setattr(deadlines, "MARGIN_SECONDS", 0.5)
    with open_at(server, PoolMax=POOL, StatementTimeoutMs=1000) as storage:
        storage.runs.get(TENANT, "nobody")
        callers = Callers(storage)
        with ThreadPoolExecutor(CALLERS) as pool:
            calling = [pool.submit(callers.call) for _ in range(CALLERS)]
            try:
                Event().wait(10 * PAUSE_SECONDS)
                away = time.monotonic()
                go_away(server, how, outage_seconds)
                back = time.monotonic()
                healed = first_after(callers, back)
            finally:
                callers.stop()
            for one in calling:
                one.result(JOIN_SECONDS)
        # On a busy machine everything takes longer: as much as the first call of a storage does.
        with open_at(server) as other:
            first = timed(lambda: other.runs.get(TENANT, "nobody"))
    assert healed - back < SOON_SECONDS + 5 * first.seconds
    during = [error for instant, error in callers.errors if instant > away]
    assert during
    assert all(isinstance(error, UnavailableError) for error in during)
    # While none is in use.
    assert [str(error) for error in during if "PoolMax" in str(error)] == []


def go_away(server: PostgresServer, how: str, seconds: float) -> None:
    """Let the server be away, or silent, for this many seconds."""
    if how == "frozen":
        with frozen(server):
            Event().wait(seconds)
        return
    server.halt(Shutdown.FAST if how == "stopped" else Shutdown.KILLED)
    Event().wait(seconds)
    server.resume(durable=False)


def first_after(callers: Callers, instant: float) -> float:
    """Return when the first call was answered that was answered after an instant."""
    end = instant + JOIN_SECONDS
    while time.monotonic() < end:
        found = [answered for answered in list(callers.answered) if answered > instant]
        if found:
            return found[0]
        Event().wait(PAUSE_SECONDS / 10)
    raise AssertionError(f"no call was answered; the last error: {callers.errors[-1:]}")


def test_a_pool_of_connections_that_all_died_serves_the_next_call(server: PostgresServer) -> None:
    with open_at(server, PoolMax=10, PoolMin=10) as storage:
        ended_together({str(number): lambda: hold(storage) for number in range(10)})
        server.halt(Shutdown.FAST)
        server.resume(durable=False)
        ended = timed(lambda: storage.runs.get(TENANT, "nobody"))
    assert ended.error is None
    assert ended.seconds < IN_TIME_SECONDS


def hold(storage: SchedulerStorage) -> None:
    """Hold a connection for a moment."""
    with storage.transaction(TENANT) as unit:
        unit.runs.get(TENANT, "nobody")
        Event().wait(HOLD_SECONDS)


def test_waiting_callers_open_no_connection_outside_the_pool(
    server: PostgresServer, *, long_form: bool
) -> None:
    most, callers = (5, 400) if long_form else (2, 60)
    # All are served in the end, however busy the machine is: here it is only counted.
    patient = {"PoolMax": most, "PoolTimeoutMs": round(JOIN_SECONDS * 1000)}
    with most_connections(server, ROLE) as highest, open_at(server, **patient) as storage:
        ended = ended_together({str(number): lambda: hold(storage) for number in range(callers)})
        ready = ended_together({str(number): storage.check_ready for number in range(2 * most)})
    assert [str(one) for one in (*ended.values(), *ready.values()) if one.error is not None] == []
    assert highest[0] == most


def test_bulk_work_needs_no_connection_of_the_pool_and_looks_at_its_role_itself(
    server: PostgresServer,
) -> None:
    """Also in a module that is used for the first time while every connection is checked out."""
    table = b"tracking.sessions"
    with (
        psycopg.connect(server.superuser_url(database="twinstore"), autocommit=True) as admin,
        twinstore.open_storage(settings_of(server, PoolMax=1, PoolTimeoutMs=5000)) as opened,
    ):
        opened.tracking.initializer.ensure_migrations()
        with opened.scheduler.sessions.open(TENANT) as session:
            session.runs.get(TENANT, "nobody")
            assert opened.tracking.bulk.counts(SESSIONS) == {}
        admin.execute(b"ALTER TABLE " + table + b" OWNER TO twinstore_app")
        try:
            with twinstore.open_storage(settings_of(server)) as other:
                other.scheduler.runs.get(TENANT, "nobody")
                with pytest.raises(ConfigurationError, match="owns the tables of schema tracking"):
                    other.tracking.bulk.counts(SESSIONS)
        finally:
            admin.execute(b"ALTER TABLE " + table + b" OWNER TO twinstore_owner")


def test_waiting_for_locks_opens_no_connection_beyond_their_limit(server: PostgresServer) -> None:
    lease = timedelta(seconds=30)

    def lock(name: str) -> None:
        with storage.locks.acquire(name, timedelta(seconds=JOIN_SECONDS), lease=lease, holder_id=name):
            open_now.append(connected_to(server))
            Event().wait(HOLD_SECONDS)

    open_now: list[int] = []
    await_none_connected(server)
    with open_at(server, PoolMax=1, LockConnectionsMax=2) as storage:
        ended = ended_together({str(number): partial(lock, str(number)) for number in range(20)})
    assert [str(one) for one in ended.values() if one.error is not None] == []
    assert max(open_now) <= 3


def test_refusals_and_lost_connections_are_no_warnings_in_the_logs_of_others(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets the error. The pool of psycopg warns if the application lets it, without a password."""
    with caplog.at_level(logging.INFO), open_at(server, PoolMax=POOL) as storage:
        storage.runs.create(make_run(TENANT, "twice"))
        with pytest.raises(DuplicateError):
            storage.runs.create(make_run(TENANT, "twice"))
        with storage.bulk.view():
            pass
        server.halt(Shutdown.FAST)
        lost = [timed(lambda: storage.runs.get(TENANT, "nobody")) for _ in range(3)]
        server.resume(durable=False)
        storage.runs.get(TENANT, "nobody")
        # Before the pool is closed, which warns of threads that are slow to end on a busy machine.
        warned = warnings_of_others(caplog)
    assert all(isinstance(one.error, UnavailableError) for one in lost)
    assert [line for line in warned if not line.startswith("psycopg.pool:")] == []
    secret = conninfo_to_dict(server.app_url())["password"]
    assert [line for line in warned if str(secret) in line] == []


def warnings_of_others(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what other libraries have warned of."""
    return [
        f"{record.name}: {record.getMessage()}"
        for record in caplog.records
        if record.levelno >= logging.WARNING and not record.name.startswith("twinstore")
    ]


def test_a_call_that_waits_for_the_pool_fails_once_its_storage_is_closed(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connections, "FAILURE_CHECK_SECONDS", 0.0)
    url = SecretStr(server.app_url())
    connections = ServerConnections(PostgresSettings(connection_string=url, pool_max=1))
    pool, lent = connections.take(JOIN_SECONDS)
    with ThreadPoolExecutor(1) as caller:
        waiting = caller.submit(connections.take)
        assert wait_until(lambda: bool(pool.get_stats().get("requests_waiting")), JOIN_SECONDS)
        connections.close()
        with pytest.raises(ConfigurationError, match="This storage is closed"):
            waiting.result(JOIN_SECONDS)
    pool.putconn(lent)


def test_connections_of_the_pool_are_replaced_when_they_are_old(server: PostgresServer) -> None:
    # Each use lasts longer than one of the two ages.
    asked = "SELECT pg_backend_pid() FROM pg_sleep(0.01)"

    def ids(lifetime: int) -> set[object]:
        """Return which processes of the server answered, one call after the other."""
        settings = PostgresSettings(
            connection_string=SecretStr(server.app_url()), pool_max=1, pool_max_lifetime_ms=lifetime
        )
        found = set[object]()
        with closing(ServerConnections(settings)) as connections:
            for _ in range(3):
                with connections.connection() as connection:
                    found |= set(connection.execute(asked).fetchall())
        return found

    assert (len(ids(1)), len(ids(PostgresSettings().pool_max_lifetime_ms))) == (3, 1)


def test_a_probe_that_gets_no_connection_of_the_host_ends_in_time(server: PostgresServer) -> None:
    with (
        ConnectionPool(server.app_url(), min_size=1, max_size=1, open=True) as pool,
        twinstore.open_storage(settings_of(server, Pool=pool)) as opened,
    ):
        opened.scheduler.check_ready()
        with pool.connection():
            ended = timed(partial(opened.scheduler.check_ready, timeout_ms=PROBE_MS))
        opened.scheduler.check_ready()
    assert isinstance(ended.error, TimeoutExceededError)
    assert "pool of the application" in ended.error.message
    assert ended.seconds < IN_TIME_SECONDS


def test_asking_why_a_connection_was_refused_leaves_no_file_open(server: PostgresServer) -> None:
    refused = make_conninfo(server.app_url(), dbname="nowhere")
    open_before = psutil.Process().num_fds()
    assert [connect_sqlstate(refused, 10) for _ in range(5)] == ["3D000"] * 5
    # One that something else in this process has opened meanwhile is no leak.
    assert psutil.Process().num_fds() < open_before + 5
