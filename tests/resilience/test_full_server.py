"""A PostgreSQL without a free slot: the error allows a retry and does not blame the password."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

import twinstore
from tests.resilience.test_logs import refusing
from tests.resilience.test_silence import postgres_of_its_own, settings_of, timed
from tests.support.outages import eventually
from twinstore.errors import ConfigurationError, Outcome, TwinstoreError, UnavailableError
from twinstore.scheduler.catalog import RUNS
from twinstore_embedded import Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_embedded import PostgresServer

TENANT: Final = "acme"
SLOTS: Final = 12
# One may have been for a connection that was just ending.
REFUSALS: Final = 5
MINUTE: Final = timedelta(minutes=1)
ROLE: Final = "twinstore_app"
DATABASE: Final = "twinstore"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_of_its_own() as found:
        with twinstore.open_storage(settings_of(found)) as opened:
            opened.scheduler.initializer.ensure_migrations()
        with psycopg.connect(found.superuser_url(), autocommit=True) as admin:
            # The server takes no parameter in a statement of this kind.
            admin.execute(f"ALTER SYSTEM SET max_connections = {SLOTS}".encode())
        found.halt(Shutdown.FAST)
        found.resume(durable=False)
        yield found


@contextmanager
def open_at(server: PostgresServer, **changes: object) -> Iterator[SchedulerStorage]:
    # Long enough for a machine that is busy: a server that refuses is not waited for.
    settings = settings_of(server, **{"PoolMin": 0, "PoolTimeoutMs": 10_000, **changes})
    with twinstore.open_storage(settings) as opened:
        yield opened.scheduler


@contextmanager
def all_slots_of(url: str) -> Iterator[None]:
    """Take every slot that a role can have, also of connections that are still ending."""
    with ExitStack() as stack:
        refused = 0
        while refused < REFUSALS:
            try:
                stack.enter_context(psycopg.connect(url))
                refused = 0
            except psycopg.OperationalError:
                refused += 1
                time.sleep(0.02)
        yield


@contextmanager
def limited(server: PostgresServer, what: str) -> Iterator[None]:
    """Let a role, or a database, have one connection and no more, and take that."""
    with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
        admin.execute(f"ALTER {what} CONNECTION LIMIT 1".encode())
        try:
            with all_slots_of(server.app_url()):
                yield
        finally:
            admin.execute(f"ALTER {what} CONNECTION LIMIT -1".encode())


def has_slots(server: PostgresServer) -> bool:
    """Whether the server has ended the sessions that were closed; on a busy machine it takes a while."""
    try:
        with psycopg.connect(server.superuser_url()) as admin:
            found = admin.execute("SELECT FROM pg_stat_activity WHERE backend_type = 'client backend'")
            return found.rowcount < SLOTS // 2
    except psycopg.OperationalError:
        return False


@contextmanager
def full(server: PostgresServer, how: str) -> Iterator[None]:
    """Leave no slot, in one of the ways in which a server refuses for that reason."""
    with _full(server, how):
        yield
    assert eventually(lambda: has_slots(server))


@contextmanager
def _full(server: PostgresServer, how: str) -> Iterator[None]:
    if how == "reserved":
        with all_slots_of(server.app_url()):
            yield
    elif how == "all":
        with all_slots_of(server.app_url()), all_slots_of(server.superuser_url()):
            yield
    else:
        with limited(server, f"{how.upper()} {ROLE if how == 'role' else DATABASE}"):
            yield


def paths(storage: SchedulerStorage) -> dict[str, Callable[[], object]]:
    """Return a call for each way in which a connection is opened."""
    locks = storage.locks
    return {
        "pool": lambda: storage.runs.get(TENANT, "nobody"),
        "ready": storage.check_ready,
        "ready within": lambda: storage.check_ready(timeout_ms=1000),
        "direct": lambda: storage.bulk.counts(RUNS),
        "dedicated": lambda: locks.acquire("lock", timedelta(0), lease=MINUTE, holder_id="me"),
        "migrations": storage.initializer.ensure_migrations,
    }


@pytest.mark.parametrize(
    ("how", "used"),
    [
        *(("reserved", False), ("all", True), ("role", False), ("database", True)),
        *(
            pytest.param(how, used, marks=pytest.mark.long)
            for how, used in (("reserved", True), ("all", False), ("role", True), ("database", False))
        ),
    ],
)
def test_a_full_server_is_a_reason_to_try_again(server: PostgresServer, how: str, *, used: bool) -> None:
    with open_at(server, PoolMax=2) as storage:
        if used:
            storage.runs.get(TENANT, "nobody")
            end_all_of(server)
        with full(server, how):
            ended = {name: timed(call) for name, call in paths(storage).items()}
        assert storage.runs.get(TENANT, "nobody") is None
    if how == "role":  # which is not that of the migrations
        assert ended.pop("migrations").error is None
    for name, one in ended.items():
        assert isinstance(one.error, UnavailableError), f"{name}: {one}"
        assert one.error.outcome is Outcome.NOT_APPLIED
        assert "Try again later" in one.error.message, name
        assert "password" not in one.error.message


def end_all_of(server: PostgresServer) -> None:
    """End all connections of the application."""
    with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", (ROLE,)
        )


def test_a_pool_that_cannot_grow_goes_on_with_what_it_has(server: PostgresServer) -> None:
    """The server refuses more; those who wait get a connection as soon as it comes back."""
    with open_at(server, PoolMax=4, PoolTimeoutMs=3000) as storage, ExitStack() as stack:
        session = stack.enter_context(storage.sessions.open(TENANT))
        session.runs.get(TENANT, "nobody")
        with full(server, "reserved"):
            refused = timed(lambda: storage.runs.get(TENANT, "nobody"))
            stack.close()
            served = timed(lambda: storage.runs.get(TENANT, "nobody"))
    assert isinstance(refused.error, UnavailableError)
    assert "Try again later" in refused.error.message
    assert served.error is None


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        ("53300", "die verbleibenden Verbindungen sind reserviert", UnavailableError),
        ("57P03", "das Datenbanksystem startet", UnavailableError),
        ("28P01", "Passwort-Authentifizierung für Benutzer »app« fehlgeschlagen", ConfigurationError),
        ("3D000", "Datenbank »things« existiert nicht", ConfigurationError),
    ],
)
def test_a_refusal_is_judged_by_its_code_where_its_language_is_not_known(
    code: str, text: str, kind: type[TwinstoreError]
) -> None:
    with refusing(code, text) as port:
        url = f"postgresql://app:hunter2@127.0.0.1:{port}/things"
        settings = {"Persistence": {"Scheduler": "Postgres", "Postgres": {"ConnectionString": url}}}
        with twinstore.open_storage(settings) as opened, pytest.raises(TwinstoreError) as caught:
            opened.scheduler.runs.get(TENANT, "nobody")
    assert type(caught.value) is kind
    assert caught.value.retryable == (kind is UnavailableError)
    assert text in caught.value.message
    assert "hunter2" not in caught.value.message
