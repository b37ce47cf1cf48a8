"""What happens to connections: wrong settings, servers that go away, statements that take too long."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import twinstore
from tests.support.servers import postgres_url
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    Outcome,
    TimeoutExceededError,
    UnavailableError,
    ValidationError,
)
from twinstore.testing.scheduler.builders import make_run, make_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage


def open_at(url: str, **settings: object) -> SchedulerStorage:
    return twinstore.add_scheduler_postgres_storage(
        {"Persistence": {"Postgres": {"ConnectionString": url, **settings}}}
    )


@pytest.fixture
def admin(module_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def storage(module_postgres_database: PostgresDatabase) -> Iterator[SchedulerStorage]:
    with open_at(module_postgres_database.app_url) as opened:
        yield opened


def test_a_missing_database_is_named(module_postgres_database: PostgresDatabase) -> None:
    with (
        open_at(postgres_url(module_postgres_database.app_url, dbname="nowhere")) as storage,
        pytest.raises(ConfigurationError, match="nowhere"),
    ):
        storage.runs.get("tenant", "run")


def test_no_server_at_the_port_means_nothing_was_applied() -> None:
    with closing(socket.socket()) as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with (
            open_at(f"postgresql://app:PLANTED@127.0.0.1:{port}/x") as storage,
            pytest.raises(UnavailableError) as caught,
        ):
            storage.runs.create(make_run("tenant", "run"))
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert "PLANTED" not in caught.value.message


def test_the_server_ends_a_statement_that_takes_too_long(
    module_postgres_database: PostgresDatabase, admin: psycopg.Connection[Any], tenant: str
) -> None:
    with open_at(module_postgres_database.app_url, StatementTimeoutMs=2500) as storage:
        storage.schedules.upsert(make_schedule(tenant, f"s@{tenant}"))
        with admin.transaction():
            admin.execute("SELECT FROM scheduler.schedules WHERE id = %s FOR UPDATE", [f"s@{tenant}"])
            with pytest.raises(TimeoutExceededError) as caught:
                storage.schedules.upsert(make_schedule(tenant, f"s@{tenant}"))
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_every_connection_is_set_up(
    storage: SchedulerStorage, admin: psycopg.Connection[Any], tenant: str
) -> None:
    with storage.sessions.open(tenant) as session:
        session.runs.get(tenant, "run")
        names = admin.execute(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
        )
        assert ("twinstore",) in names.fetchall()
    backend: Any = storage
    connection = backend._backend._server.connect()  # noqa: SLF001  # the setting of a connection is not part of a contract
    with connection:
        shown = [
            connection.execute(f"SHOW {name}".encode()).fetchone()[0]
            for name in ("timezone", "statement_timeout", "client_encoding", "transaction_isolation")
        ]
    assert shown == ["UTC", "30s", "UTF8", "read committed"]


def test_a_read_only_unit_refuses_to_write_and_stays_usable(storage: SchedulerStorage, tenant: str) -> None:
    with storage.transaction(tenant, read_only=True) as unit:
        for write in (
            lambda: unit.runs.create(make_run(tenant, f"r@{tenant}")),
            lambda: unit.schedules.upsert(make_schedule(tenant, f"s@{tenant}")),
        ):
            with pytest.raises(ValidationError, match="read-only"):
                write()
        assert unit.runs.get(tenant, f"r@{tenant}") is None


def test_units_that_wait_for_each_other_end_with_a_concurrency_error(
    storage: SchedulerStorage, tenant: str
) -> None:
    names = ("a", "b")
    for name in names:
        storage.schedules.upsert(make_schedule(tenant, f"{name}@{tenant}", name=name))
    both = threading.Barrier(2)
    results: list[object] = []

    def cross(first: str, second: str) -> None:
        try:
            with storage.transaction(tenant) as unit:
                unit.schedules.upsert(make_schedule(tenant, f"{first}@{tenant}", name=first))
                both.wait(30)
                unit.schedules.upsert(make_schedule(tenant, f"{second}@{tenant}", name=second))
            results.append("done")
        except ConcurrencyError as error:
            results.append(error.code)

    threads = [threading.Thread(target=cross, args=pair) for pair in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, results)) == ["concurrency", "done"]


def test_an_instant_outside_the_calendar_is_met_by_its_own_row(
    storage: SchedulerStorage, admin: psycopg.Connection[Any], tenant: str
) -> None:
    storage.runs.create(make_run(tenant, f"r@{tenant}"))
    storage.runs.create(make_run(tenant, f"q@{tenant}"))
    admin.execute("UPDATE scheduler.runs SET created_at = 'infinity' WHERE id = %s", [f"r@{tenant}"])
    with pytest.raises(twinstore.DocumentDecodeError, match="r@"):
        storage.runs.list(tenant)
    assert storage.runs.get(tenant, f"q@{tenant}") is not None


def test_modules_with_equal_settings_share_a_pool(module_postgres_database: PostgresDatabase) -> None:
    user = conninfo_to_dict(module_postgres_database.app_url)["user"]
    assert user == "twinstore_test_app"
    with twinstore.open_storage(module_postgres_database.config) as storage:
        assert storage.scheduler is storage.scheduler
