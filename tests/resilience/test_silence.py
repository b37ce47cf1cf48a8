"""A server that is frozen, or behind a network that swallows everything: no caller hangs.

Each call ends soon after the limit of its statement, with an error that says what is known of its writes,
and as soon as the server goes on, so do the callers.
"""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import TYPE_CHECKING, Final

import psutil
import psycopg
import pytest
from pydantic import SecretStr

import twinstore
import twinstore_embedded
from tests.support.databases import without_retention
from tests.support.outages import server_directory
from tests.support.proxies import proxy_to
from tests.support.servers import mongo_config, postgres_config
from twinstore.catalog.keys import KeyRange
from twinstore.errors import LeaseLostError, Outcome, TimeoutExceededError, UnavailableError
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_embedded.postgres import find_postgres_server
from twinstore_embedded.state import wait_until
from twinstore_mongo.client.client import CLOSE_SECONDS
from twinstore_postgres import backend as backend_module
from twinstore_postgres.connection import deadlines
from twinstore_postgres.connection.deadlines import LongRunningConnection
from twinstore_postgres.connection.target import target_of
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore_embedded import MongoServer, PostgresServer

# Calls that hang are what these tests look for: they end the test, not the run.
HANGING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: after how many seconds, and with which error."""

    seconds: float
    error: BaseException | None

    def __str__(self) -> str:
        """Name the error."""
        return f"{self.seconds:.1f} s, {type(self.error).__name__}: {self.error}"


def timed(call: Callable[[], object]) -> Ended:
    """Make a call, and return how it ended."""
    begun = time.monotonic()
    try:
        call()
    except Exception as error:  # noqa: BLE001  # the test judges it
        return Ended(time.monotonic() - begun, error)
    return Ended(time.monotonic() - begun, None)


def ended_together(calls: Mapping[str, Callable[[], object]]) -> dict[str, Ended]:
    """Make calls at once, each on a separate thread, and return how each of them ended."""
    pool = ThreadPoolExecutor(len(calls))
    try:
        begun = {name: pool.submit(timed, call) for name, call in calls.items()}
        return {name: future.result(HANGING_SECONDS) for name, future in begun.items()}
    finally:
        pool.shutdown(wait=False)


@contextmanager
def frozen(server: PostgresServer | MongoServer) -> Iterator[None]:
    """Freeze a server, its first process and all others, for the length of the block."""
    # A restarted server has another process id.
    found = find_postgres_server(server.home.parent) or server
    first = psutil.Process(found.pid)
    first.suspend()
    # No more come, because the first one makes them.
    others = first.children(recursive=True)
    try:
        for other in others:
            other.suspend()
        assert wait_until(lambda: all(map(is_stopped, (first, *others))), SLACK_SECONDS)
        yield
    finally:
        for process in (*others, first):
            process.resume()


def is_stopped(process: psutil.Process) -> bool:
    """Whether no thread runs any more; on a busy machine one may answer for a moment after the signal."""
    try:
        states = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended meanwhile
        return False
    return {state.rpartition(") ")[2][0] for state in states} <= {"T", "Z"}


@contextmanager
def postgres_of_its_own() -> Iterator[PostgresServer]:
    """Run a PostgreSQL for the length of the block."""
    with server_directory("silence") as directory:
        yield twinstore_embedded.start_postgres(directory, durable=False, owned=True)


@contextmanager
def mongo_of_its_own() -> Iterator[MongoServer]:
    """Run a replica set of one node for the length of the block."""
    with server_directory("silence") as directory:
        yield twinstore_embedded.start_mongo(directory, owned=True)


def settings_of(server: PostgresServer | MongoServer, **changes: object) -> Settings:
    """Return the settings of a store on a server, with some of its section changed."""
    if isinstance(server, twinstore_embedded.MongoServer):
        settings, section = mongo_config(server.url, "silence"), "Mongo"
    else:
        quick = "?connect_timeout=2"
        settings = postgres_config(server.app_url() + quick, server.owner_url() + quick)
        section = "Postgres"
    persistence = settings["Persistence"]
    assert isinstance(persistence, dict)
    persistence[section] |= changes
    persistence["Tracking"] = section
    return without_retention(settings)


@contextmanager
def most_connections(server: PostgresServer, role: str) -> Iterator[list[int]]:
    """Count the connections of a role again and again; at the end the list holds the highest number."""
    highest = [0]
    counting = True

    def look(admin: psycopg.Connection[tuple[int]]) -> int:
        found = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", (role,)).fetchone()
        return 0 if found is None else found[0]

    def count() -> None:
        with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
            while counting:
                highest[0] = max(highest[0], look(admin))

    with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
        # Those of the test before end a moment after it.
        assert wait_until(lambda: look(admin) == 0, HANGING_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(count)
        try:
            yield highest
        finally:
            counting = False
            counted.result(HANGING_SECONDS)


def await_none_connected(server: PostgresServer | MongoServer) -> None:
    """Wait until this process has no connection to a server: those of a test end a moment after it."""
    assert wait_until(lambda: connected_to(server) == 0, HANGING_SECONDS)


def connected_to(server: PostgresServer | MongoServer) -> int:
    """Return how many connections this process has to a server; those that it has closed linger there."""
    found = psutil.Process().net_connections("tcp4")
    return sum(one.status == "ESTABLISHED" and one.raddr[1:] == (server.port,) for one in found)


TENANT: Final = "acme"
# Long enough for what is begun while the server answers.
STATEMENT_MS: Final = 1500
MARGIN_SECONDS: Final = 0.5
CONNECT_SECONDS: Final = 2.0
LIMIT_SECONDS: Final = STATEMENT_MS / 1000 + MARGIN_SECONDS
# What a machine that is busy with other tests may add. A call without the limit that is meant would take the
# ten seconds of another one, the half minute of a statement, or hang.
SLACK_SECONDS: Final = 7.0
SOON_SECONDS: Final = 20.0
TIMEOUT_SECONDS: Final = 60.0
CALLERS: Final = 8
SELECTION_MS: Final = 2000
PROBE_MS: Final = 1000
ROWS: Final = 200
POOL: Final = 12
NOBODY: Final = timedelta(0)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_of_its_own() as server:
        with twinstore.open_storage(settings_of(server)) as opened:
            opened.scheduler.initializer.ensure_migrations()
            with opened.scheduler.transaction(TENANT) as unit:
                for number in range(ROWS):
                    unit.runs.create(make_run(TENANT, f"row-{number}"))
        yield server


@pytest.fixture(scope="module")
def mongo() -> Iterator[MongoServer]:
    with mongo_of_its_own() as server:
        with twinstore.open_storage(settings_of(server)) as opened:
            opened.scheduler.initializer.ensure_migrations()
        yield server


@pytest.fixture(params=["postgres", "mongo"])
def server(request: pytest.FixtureRequest) -> PostgresServer | MongoServer:
    found: PostgresServer | MongoServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time that is added to the limit of a statement be short."""
    monkeypatch.setattr(deadlines, "MARGIN_SECONDS", MARGIN_SECONDS)


@contextmanager
def open_at(server: PostgresServer | MongoServer, **changes: object) -> Iterator[SchedulerStorage]:
    if not hasattr(server, "app_url"):
        changes = {"ServerSelectionTimeoutMs": SELECTION_MS, **changes}
    with twinstore.open_storage(settings_of(server, **changes)) as opened:
        yield opened.scheduler


def seconds_until(call: Callable[[], object]) -> float:
    """Return after how many seconds of trying a call is answered."""
    begun = time.monotonic()
    while timed(call).error is not None:
        assert time.monotonic() < begun + TIMEOUT_SECONDS
    return time.monotonic() - begun


def outcome_of(ended: Ended) -> Outcome:
    assert isinstance(ended.error, UnavailableError), str(ended)
    return ended.error.outcome


@pytest.mark.usefixtures("narrow")
def test_no_call_hangs_on_a_frozen_server(postgres: PostgresServer) -> None:
    with ExitStack() as stack:
        storage = stack.enter_context(open_at(postgres, StatementTimeoutMs=STATEMENT_MS, PoolMax=POOL))
        warm(storage)
        units = Units(storage)
        calls = begun_calls(storage, stack)
        with frozen(postgres):
            ended = ended_together({name: call for name, (call, _) in calls.items()}) | units.end()
            left = timed(lambda: stack.pop_all().close())
    # The lock that it held is lost with its connection.
    assert isinstance(ended["renew"].error, LeaseLostError)
    told = {name: one for name, one in ended.items() if name != "renew"}
    expected = {name: outcome for name, (_, outcome) in calls.items() if outcome} | UNITS
    assert {name: outcome_of(one) for name, one in told.items()} == expected
    # To connect, or a last round trip and the rollback after it.
    most = max(CONNECT_SECONDS, 2 * LIMIT_SECONDS) + SLACK_SECONDS
    assert {name: str(one) for name, one in ended.items() if one.seconds > most} == {}
    assert left.seconds < most, str(left)
    silent = ended["read"].error
    assert isinstance(silent, TimeoutExceededError)
    assert "silent" in silent.message
    assert "StatementTimeoutMs" not in silent.message


UNITS: Final = {
    "commit": Outcome.UNKNOWN,
    "read in a unit": Outcome.NOT_APPLIED,
    "transact": Outcome.UNKNOWN,
}


def warm(storage: SchedulerStorage) -> None:
    """Let the pool have a connection for each call."""
    together = Barrier(POOL)

    def hold() -> None:
        with storage.sessions.open(TENANT) as session:
            session.runs.get(TENANT, "row-1")
            together.wait(TIMEOUT_SECONDS)

    ended = ended_together({str(number): hold for number in range(POOL)})
    assert [str(one) for one in ended.values() if one.error is not None] == []


class Units:
    """Units of work that have written something, each on a separate thread, and then wait."""

    def __init__(self, storage: SchedulerStorage) -> None:
        self._storage = storage
        self._go_on = Event()
        self._begun = Barrier(len(UNITS) + 1)
        self._threads = ThreadPoolExecutor(len(UNITS))
        ways = {"commit": self._commit, "read in a unit": self._read, "transact": self._transact}
        self._ends = {name: self._threads.submit(self._ended, way) for name, way in ways.items()}
        self._begun.wait(TIMEOUT_SECONDS)

    def end(self) -> dict[str, Ended]:
        """End them, and return how they ended."""
        self._go_on.set()
        return {name: end.result(TIMEOUT_SECONDS) for name, end in self._ends.items()}

    def _ended(self, way: Callable[[], object]) -> Ended:
        ended = timed(way)
        return Ended(time.monotonic() - self._gone_on, ended.error)

    def _wait(self) -> None:
        self._begun.wait()
        self._go_on.wait()
        self._gone_on = time.monotonic()

    def _commit(self) -> None:
        with self._storage.transaction(TENANT) as unit:
            unit.runs.create(make_run(TENANT, "of-a-unit"))
            self._wait()

    def _read(self) -> None:
        with self._storage.transaction(TENANT) as unit:
            unit.runs.create(make_run(TENANT, "of-another-unit"))
            self._wait()
            unit.runs.get(TENANT, "row-1")

    def _transact(self) -> None:
        def work(unit: SchedulerSession) -> None:
            unit.runs.create(make_run(TENANT, "of-a-third-unit"))
            self._wait()

        self._storage.transact(work, tenant_id=TENANT)


def begun_calls(
    storage: SchedulerStorage, stack: ExitStack
) -> dict[str, tuple[Callable[[], object], Outcome | None]]:
    """Return calls of every other kind, of which some have begun, and what is known of their writes then."""
    session = stack.enter_context(storage.sessions.open(TENANT))
    session.runs.get(TENANT, "row-1")
    held = storage.locks.acquire("held", NOBODY, lease=timedelta(minutes=1), holder_id="me")
    reading, unknown = Outcome.NOT_APPLIED, Outcome.UNKNOWN
    new = storage.locks.acquire
    return {
        "read": (lambda: storage.runs.get(TENANT, "row-1"), reading),
        "list": (lambda: storage.runs.list(TENANT), reading),
        "write": (lambda: storage.runs.create(make_run(TENANT, "written")), unknown),
        "session": (lambda: session.runs.get(TENANT, "row-1"), reading),
        "renew": (held.renew, None),
        "lock": (lambda: new("new", NOBODY, lease=timedelta(minutes=1), holder_id="me"), reading),
        "count": (lambda: storage.bulk.counts(RUNS), reading),
        "migrate": (storage.initializer.ensure_migrations, reading),
        "ready": (storage.check_ready, reading),
        "ready within": (lambda: storage.check_ready(timeout_ms=PROBE_MS), reading),
    }


@pytest.mark.usefixtures("narrow")
def test_a_stream_ends_when_the_server_freezes(postgres: PostgresServer) -> None:
    with open_at(postgres, StatementTimeoutMs=STATEMENT_MS) as storage:
        with storage.bulk.view() as view:
            batches = view.records(RUNS, KeyRange(), batch_size=10)
            next(batches)
            with frozen(postgres):
                ended = timed(lambda: [list(batch) for batch in batches])
        # Rows that the server sent before are read, and an error reports the rest.
        assert ended.error is None or outcome_of(ended) is Outcome.NOT_APPLIED
        assert ended.seconds < deadlines.MARGIN_SECONDS + 10 + LIMIT_SECONDS + SLACK_SECONDS


@pytest.mark.usefixtures("narrow")
def test_a_statement_without_limit_outlasts_all_limits_while_the_server_works(
    postgres: PostgresServer,
) -> None:
    """As those of bulk work and migrations, on connections of this kind."""
    settings = PostgresSettings(statement_timeout_ms=STATEMENT_MS)
    target = target_of(SecretStr(f"{postgres.app_url()}?connect_timeout=2"), settings, purpose="x")
    with target.connect(LongRunningConnection) as connection:
        connection.execute("SET statement_timeout = 0")
        slept = timed(lambda: connection.execute("SELECT pg_sleep(3)"))
        assert slept.error is None
        assert slept.seconds > LIMIT_SECONDS
        with frozen(postgres):
            silent = timed(lambda: connection.execute("SELECT pg_sleep(0)"))
        assert isinstance(silent.error, deadlines.NoAnswer)
        assert silent.seconds < LIMIT_SECONDS + CONNECT_SECONDS + SLACK_SECONDS
        assert connection.closed


@pytest.mark.usefixtures("narrow")
def test_an_answer_that_got_lost_is_not_waited_for(postgres: PostgresServer) -> None:
    """A statement without limit, whose server has long finished it, and which answers others."""
    with proxy_to(("127.0.0.1", postgres.port)) as line:
        settings = PostgresSettings(statement_timeout_ms=STATEMENT_MS)
        url = postgres.app_url().replace(f":{postgres.port}/", f":{line.port}/")
        target = target_of(SecretStr(url), settings, purpose="x")
        past = target_of(SecretStr(postgres.app_url()), settings, purpose="x")
        with target.connect(LongRunningConnection) as connection:
            assert isinstance(connection, deadlines.LongRunningConnection)
            connection.is_executing = past.is_executing
            with line.stalled():
                ended = timed(lambda: connection.execute("SELECT 1"))
    assert isinstance(ended.error, deadlines.NoAnswer)
    assert ended.seconds < LIMIT_SECONDS + SLACK_SECONDS


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("way", ["read", "write"])
def test_no_call_hangs_on_a_line_that_stalls(postgres: PostgresServer, way: str) -> None:
    with proxy_to(("127.0.0.1", postgres.port)) as line:
        url = f"{postgres.app_url()}?connect_timeout=2".replace(f":{postgres.port}/", f":{line.port}/")
        settings = settings_of(postgres, StatementTimeoutMs=STATEMENT_MS, ConnectionString=url)
        with twinstore.open_storage(settings) as opened:
            runs = opened.scheduler.runs
            runs.get(TENANT, "nobody")
            call = (
                (lambda: runs.get(TENANT, "nobody"))
                if way == "read"
                else (lambda: runs.create(make_run(TENANT, "over-a-stalled-line")))
            )
            with line.stalled():
                ended = timed(call)
            assert ended.seconds < LIMIT_SECONDS + SLACK_SECONDS
            assert outcome_of(ended) is (Outcome.NOT_APPLIED if way == "read" else Outcome.UNKNOWN)
            assert seconds_until(lambda: runs.get(TENANT, "nobody")) < SOON_SECONDS


def test_a_server_that_accepts_and_says_nothing_times_out(postgres: PostgresServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        url = f"{postgres.app_url()}?connect_timeout=2".replace(f":{postgres.port}/", f":{port}/")
        with twinstore.open_storage(settings_of(postgres, ConnectionString=url)) as opened:
            ended = timed(lambda: opened.scheduler.runs.get(TENANT, "nobody"))
    assert isinstance(ended.error, TimeoutExceededError)
    assert ended.seconds < CONNECT_SECONDS + SLACK_SECONDS


def test_those_who_meet_a_silent_server_first_share_one_attempt(server: PostgresServer | MongoServer) -> None:
    together = Barrier(CALLERS)

    def call() -> None:
        together.wait()
        storage.runs.get(TENANT, "nobody")

    with open_at(server) as storage:
        with frozen(server):
            ended = ended_together({str(number): call for number in range(CALLERS)})
        assert seconds_until(lambda: storage.runs.get(TENANT, "nobody")) < SOON_SECONDS
    errors = [one.error for one in ended.values()]
    assert all(isinstance(error, UnavailableError) for error in errors), list(map(str, ended.values()))
    assert len({id(error) for error in errors}) == CALLERS
    assert max(one.seconds for one in ended.values()) < CONNECT_SECONDS + SLACK_SECONDS


def slow_to_connect(server: PostgresServer | MongoServer) -> dict[str, object]:
    """Return settings that let an attempt to connect last for as long as anything here."""
    if isinstance(server, twinstore_embedded.PostgresServer):
        return {"ConnectionString": f"{server.app_url()}?connect_timeout=60"}
    return {"ServerSelectionTimeoutMs": 60_000}


@pytest.mark.parametrize("used", [True, False], ids=["used", "cold"])
def test_a_probe_is_answered_within_its_second(server: PostgresServer | MongoServer, *, used: bool) -> None:
    with open_at(server, **slow_to_connect(server)) as storage:
        if used:
            storage.check_ready()
        with frozen(server):
            probes = [timed(lambda: storage.check_ready(timeout_ms=PROBE_MS)) for _ in range(3)]
        assert seconds_until(lambda: storage.check_ready(timeout_ms=PROBE_MS)) < SOON_SECONDS
    assert all(outcome_of(one) is Outcome.NOT_APPLIED for one in probes)
    # A machine may be busy during one of them; what takes its second twice does so each time.
    assert min(one.seconds for one in probes) < 2 * PROBE_MS / 1000
    assert max(one.seconds for one in probes) < PROBE_MS / 1000 + SLACK_SECONDS


def test_whether_a_silent_server_is_ready_is_known_in_seconds(
    server: PostgresServer | MongoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the limit of a call, which is half a minute."""
    monkeypatch.setattr(backend_module, "READY_SECONDS", SELECTION_MS / 1000)
    with open_at(server) as storage:
        storage.check_ready()
        with frozen(server):
            ended = timed(storage.check_ready)
    assert outcome_of(ended) is Outcome.NOT_APPLIED
    assert ended.seconds < SELECTION_MS / 1000 + SLACK_SECONDS


@pytest.mark.parametrize("used", [True, False], ids=["used", "cold"])
def test_a_probe_of_a_server_that_is_gone_is_answered_too(mongo: MongoServer, *, used: bool) -> None:
    with proxy_to(("127.0.0.1", mongo.port)) as line:
        url = f"mongodb://127.0.0.1:{line.port}/?directConnection=true"
        with open_at(mongo, ConnectionString=url) as storage:
            if used:
                storage.check_ready()
            line.cut()
            ended = timed(lambda: storage.check_ready(timeout_ms=PROBE_MS))
    assert outcome_of(ended) is Outcome.NOT_APPLIED
    assert ended.seconds < PROBE_MS / 1000 + SLACK_SECONDS


def test_waiting_callers_open_no_connection_outside_the_pool_of_mongodb(mongo: MongoServer) -> None:
    open_now: list[int] = []

    def call() -> None:
        with storage.transaction(TENANT) as unit:
            unit.runs.get(TENANT, "nobody")
            open_now.append(connected_to(mongo))

    await_none_connected(mongo)
    with open_at(mongo, ConnectionString=f"{mongo.url}&maxPoolSize=2") as storage:
        ended = ended_together({str(number): call for number in range(20)})
    assert [str(one) for one in ended.values() if one.error is not None] == []
    # Two of each client look after the state of the server.
    assert max(open_now) <= 2 + 2


def test_a_probe_is_answered_while_the_pool_is_exhausted(postgres: PostgresServer) -> None:
    with open_at(postgres, PoolMax=1) as storage, storage.sessions.open(TENANT) as session:
        session.runs.get(TENANT, "nobody")
        ended = timed(lambda: storage.check_ready(timeout_ms=PROBE_MS))
    assert ended.seconds < PROBE_MS / 1000 + SLACK_SECONDS
    assert isinstance(ended.error, UnavailableError)
    assert "PoolMax" in ended.error.message


def test_a_call_waits_for_the_pool_as_long_as_the_settings_say(postgres: PostgresServer) -> None:
    with open_at(postgres, PoolMax=1, PoolTimeoutMs=1500) as storage, storage.sessions.open(TENANT):
        ended = timed(lambda: storage.runs.get(TENANT, "nobody"))
    assert isinstance(ended.error, UnavailableError)
    assert "PoolTimeoutMs" in ended.error.message
    assert 1.5 <= ended.seconds < 1.5 + SLACK_SECONDS


def test_a_storage_on_a_frozen_server_is_closed_soon(postgres: PostgresServer) -> None:
    opened = twinstore.open_storage(settings_of(postgres, PoolMin=2))
    storage = opened.scheduler
    storage.runs.get(TENANT, "nobody")
    with frozen(postgres):
        ended_together({str(number): lambda: storage.check_ready(timeout_ms=300) for number in range(4)})
        closed = timed(opened.close)
    assert closed.error is None
    assert closed.seconds < 2 * SLACK_SECONDS


def test_a_storage_is_closed_within_a_moment_although_mongodb_is_silent(mongo: MongoServer) -> None:
    opened = twinstore.open_storage(settings_of(mongo, ServerSelectionTimeoutMs=SELECTION_MS))
    opened.scheduler.runs.get(TENANT, "nobody")
    with frozen(mongo):
        ended = timed(opened.close)
    assert ended.error is None
    assert ended.seconds < CLOSE_SECONDS + SLACK_SECONDS
