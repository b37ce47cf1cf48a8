"""An application's own connections: row-level security shows one tenant, and no setting stays behind."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

import twinstore
import twinstore_postgres
from tests.support.distributions import LIBRARY, install_distribution
from twinstore.access.scope import system_scope_openings
from twinstore.errors import ConfigurationError, TenantScopeError, UnavailableError, ValidationError
from twinstore.testing.scheduler.builders import make_run
from twinstore_postgres.connection import data_source
from twinstore_postgres.connection.data_source import PostgresDataSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage

RUNS = "SELECT id FROM scheduler.runs ORDER BY id"
SETTING = "SELECT coalesce(current_setting('app.tenant_id', true), '')"


@pytest.fixture
def storage(module_postgres_database: PostgresDatabase) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_postgres_storage(module_postgres_database.config) as opened:
        yield opened


@pytest.fixture
def source(module_postgres_database: PostgresDatabase) -> Iterator[PostgresDataSource]:
    with data_source.SchedulerDataSource(module_postgres_database.config) as made:
        yield made


@pytest.fixture
def tenants(storage: SchedulerStorage) -> tuple[str, str]:
    """Store one run for each of two tenants."""
    names = (f"a-{uuid4().hex[:8]}", f"b-{uuid4().hex[:8]}")
    for name in names:
        storage.runs.create(make_run(name, f"run-of-{name}"))
    return names


def test_it_has_the_name_that_hosts_import_for_every_installed_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = data_source.SchedulerDataSource
    assert twinstore_postgres.SchedulerDataSource is made
    for package in (twinstore_postgres, data_source):
        for name in ("LibraryDataSource", "nothing"):
            with pytest.raises(AttributeError, match=name):
                getattr(package, name)
    install_distribution(monkeypatch, tmp_path, "acme-library", LIBRARY)
    made = data_source.LibraryDataSource
    assert twinstore_postgres.LibraryDataSource is made
    assert (made.__name__, issubclass(made, PostgresDataSource)) == ("LibraryDataSource", True)


def test_a_connection_sees_and_writes_the_rows_of_its_tenant_alone(
    source: PostgresDataSource, tenants: tuple[str, str]
) -> None:
    first, second = tenants
    with source.open_connection(first) as connection:
        assert connection.execute(RUNS).fetchall() == [(f"run-of-{first}",)]
        assert connection.execute("UPDATE scheduler.runs SET error = error").rowcount == 1
    with source.open_connection(f" {second} ") as connection:  # normalised as everywhere
        assert connection.execute(RUNS).fetchall() == [(f"run-of-{second}",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute("UPDATE scheduler.runs SET tenant_id = %s", [first])


def test_system_sees_the_rows_of_all_tenants_which_is_logged_and_counted(
    source: PostgresDataSource, tenants: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    before = system_scope_openings().get("open_connection", 0)
    with (
        caplog.at_level(logging.INFO, "twinstore.system_scope"),
        source.open_connection("system") as connection,
    ):
        found = {row[0] for row in connection.execute(RUNS).fetchall()}
    assert {f"run-of-{name}" for name in tenants} <= found
    assert system_scope_openings()["open_connection"] == before + 1
    assert "system scope opened: open_connection" in caplog.text


def change_and_fail(source: PostgresDataSource, tenant: str, change: LiteralString) -> None:
    with source.open_connection(tenant) as connection:
        assert connection.execute(change, ["lost"]).rowcount == 1
        raise LookupError


def test_it_commits_at_normal_exit_and_rolls_back_on_an_exception(
    source: PostgresDataSource, storage: SchedulerStorage, tenants: tuple[str, str]
) -> None:
    tenant = tenants[0]
    change = "UPDATE scheduler.runs SET schedule_id = %s"
    with source.open_connection(tenant) as connection:
        connection.execute(change, ["kept"])
    with pytest.raises(LookupError):
        change_and_fail(source, tenant, change)
    run = storage.runs.get(tenant, f"run-of-{tenant}")
    assert run is not None
    assert run.schedule_id == "kept"


def test_the_tenant_cannot_be_lost_by_a_commit_inside(
    source: PostgresDataSource, tenants: tuple[str, str]
) -> None:
    with (
        pytest.raises(psycopg.ProgrammingError, match="commit"),
        source.open_connection(tenants[0]) as connection,
    ):
        connection.commit()
    with source.open_connection(tenants[0]) as connection:
        with connection.transaction():
            assert len(connection.execute(RUNS).fetchall()) == 1
        assert connection.execute(SETTING).fetchone() == (tenants[0],)


def test_nothing_of_one_host_is_left_for_the_next(
    module_postgres_database: PostgresDatabase, tenants: tuple[str, str]
) -> None:
    config = {
        "Persistence": {"Postgres": {"ConnectionString": module_postgres_database.app_url, "PoolMax": 1}}
    }
    with data_source.SchedulerDataSource(config) as source:
        with source.open_connection(tenants[0]) as connection:
            backend = connection.info.backend_pid
            connection.row_factory = dict_row  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # what a host may do
            connection.execute("SET app.tenant_id = 'somebody'")
            connection.execute("SET statement_timeout = '7h'")
        with source.open_connection(tenants[1]) as connection:
            assert connection.info.backend_pid == backend
            assert connection.execute(RUNS).fetchall() == [(f"run-of-{tenants[1]}",)]
            assert connection.execute("SHOW statement_timeout").fetchone() == ("30s",)
            assert connection.execute("RESET app.tenant_id").statusmessage == "RESET"
            assert connection.execute(SETTING).fetchone() == ("",)


def test_values_are_read_as_psycopg_reads_them(source: PostgresDataSource, tenants: tuple[str, str]) -> None:
    with source.open_connection(tenants[0]) as connection:
        row = connection.execute("SELECT '{\"a\": 1}'::jsonb, gen_random_uuid()").fetchone()
    assert row is not None
    assert (row[0], type(row[1]).__name__) == ({"a": 1}, "UUID")


def test_a_pool_of_the_host_is_used_and_left_open(
    module_postgres_database: PostgresDatabase, tenants: tuple[str, str]
) -> None:
    with ConnectionPool(module_postgres_database.app_url, min_size=1, max_size=1) as pool:
        config = {"Persistence": {"Postgres": {"Pool": pool}}}
        source = data_source.SchedulerDataSource(config)
        with source, source.open_connection(tenants[0]) as connection:
            assert connection.execute(RUNS).fetchall() == [(f"run-of-{tenants[0]}",)]
        with pool.connection() as connection:
            assert connection.execute(SETTING).fetchone() == ("",)
            assert connection.autocommit is False


@pytest.mark.parametrize("tenant", ["", "a:b", "system\n"])
def test_a_text_that_is_no_tenant_is_refused(source: PostgresDataSource, tenant: str) -> None:
    with pytest.raises((ValidationError, TenantScopeError)), source.open_connection(tenant):
        pytest.fail("it was opened")


def test_a_role_that_no_policy_binds_is_refused(module_postgres_database: PostgresDatabase) -> None:
    config = {"Persistence": {"Postgres": {"ConnectionString": module_postgres_database.superuser_url}}}
    with (
        data_source.SchedulerDataSource(config) as source,
        pytest.raises(ConfigurationError, match="is a superuser"),
        source.open_connection("acme"),
    ):
        pytest.fail("it was opened")


def test_a_closed_source_and_one_without_settings_say_so(module_postgres_database: PostgresDatabase) -> None:
    source = data_source.SchedulerDataSource(module_postgres_database.config)
    source.close()
    source.close()
    with pytest.raises(ConfigurationError, match="closed"), source.open_connection("acme"):
        pytest.fail("it was opened")
    with pytest.raises(ConfigurationError, match="Persistence:Postgres:ConnectionString"):
        data_source.SchedulerDataSource({})


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    config = {"Persistence": {"Postgres": {"ConnectionString": "host=127.0.0.1 port=1 user=u dbname=d"}}}
    with (
        data_source.SchedulerDataSource(config) as source,
        pytest.raises(UnavailableError),
        source.open_connection("acme"),
    ):
        pytest.fail("it was opened")
