"""Features that a transaction pooler does not support are refused, with the setting that is missing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from pydantic import SecretStr

import twinstore
from tests.support.pgbouncer import pooler_before
from tests.support.servers import postgres_url
from twinstore.errors import ConfigurationError
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_postgres.bulk.corruption import open_corruption_writer
from twinstore_postgres.connection.errors import translate
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.databases import PostgresDatabase, PostgresServer
    from tests.support.pgbouncer import Pooler
    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerStorage

pytestmark = pytest.mark.pgbouncer

SETTING: Final = "Persistence:Postgres:TransactionPooler"
DIRECT: Final = "Persistence:Postgres:DirectConnectionString"


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[Pooler]:
    """Run a pooler that refuses what it cannot pass on."""
    with pooler_before(postgres_server.url) as pooler:
        yield pooler


@pytest.fixture(scope="module")
def silent_pooler(postgres_server: PostgresServer) -> Iterator[Pooler]:
    """Run a pooler that drops options in silence, with one connection of the server for all clients."""
    options = {"ignore_startup_parameters": "options", "default_pool_size": 1, "reserve_pool_size": 0}
    with pooler_before(postgres_server.url, **options) as pooler:
        yield pooler


def unprepared(pooler: Pooler, database: PostgresDatabase) -> Settings:
    """Return the settings of a user who does not know of the pooler."""
    return pooler.before(database).config


def lock(storage: SchedulerStorage) -> object:
    return storage.locks.acquire(str(uuid4()), timedelta(seconds=1))


def count(storage: SchedulerStorage) -> object:
    return storage.bulk.counts(RUNS)


def write(storage: SchedulerStorage) -> object:
    with storage.bulk.writer(RUNS) as writer:
        return writer.take_rejected()


def look(storage: SchedulerStorage) -> object:
    with storage.bulk.view() as view:
        return view.position


def ensure(storage: SchedulerStorage) -> object:
    return storage.initializer.ensure_migrations()


def status(storage: SchedulerStorage) -> object:
    return storage.initializer.status()


def ledger(storage: SchedulerStorage) -> object:
    return storage.bulk.ledger_initializer.effects()


@pytest.mark.parametrize("use", [lock, count, write, look, ensure, status, ledger])
def test_locks_migrations_and_bulk_work_are_refused_without_the_server_itself(
    pooler: Pooler,
    module_postgres_database: PostgresDatabase,
    use: Callable[[SchedulerStorage], object],
) -> None:
    settings = pooler.config(
        module_postgres_database, DirectConnectionString=None, OwnerConnectionString=None
    )
    with twinstore.add_scheduler_postgres_storage(settings) as storage:
        storage.check_ready()
        assert module_postgres_database.name in storage.bulk.place
        with pytest.raises(ConfigurationError, match=DIRECT):
            use(storage)
    with twinstore.add_scheduler_postgres_storage(pooler.config(module_postgres_database)) as storage:
        use(storage)


def test_planting_is_refused_without_the_server_itself(
    pooler: Pooler, module_postgres_database: PostgresDatabase
) -> None:
    settings = PostgresSettings(
        connection_string=SecretStr(pooler.url(module_postgres_database.app_url)), transaction_pooler=True
    )
    with pytest.raises(ConfigurationError, match=DIRECT), open_corruption_writer(settings):
        pass


@pytest.mark.parametrize("key", ["DirectConnectionString", "LockConnectionString"])
def test_the_address_of_the_pooler_is_not_that_of_the_server(
    pooler: Pooler, module_postgres_database: PostgresDatabase, key: str
) -> None:
    pooled = pooler.url(module_postgres_database.app_url)
    with pytest.raises(ConfigurationError, match=rf"{key}\) leads to .* pooler"):
        twinstore.add_scheduler_postgres_storage(pooler.config(module_postgres_database, **{key: pooled}))


@pytest.mark.parametrize("kind", ["pooler", "silent_pooler"])
def test_a_pooler_under_another_name_is_met_at_the_first_use(
    request: pytest.FixtureRequest, module_postgres_database: PostgresDatabase, kind: str
) -> None:
    """It refuses our options, or it drops them and the server never receives them."""
    pooler: Pooler = request.getfixturevalue(kind)
    named = postgres_url(pooler.url(module_postgres_database.app_url), host="localhost")
    settings = pooler.config(module_postgres_database, DirectConnectionString=named)
    with twinstore.add_scheduler_postgres_storage(settings) as storage:
        for use in (lock, count):
            with pytest.raises(ConfigurationError, match="the server itself"):
                use(storage)


def test_a_refused_parameter_names_the_setting(
    pooler: Pooler, module_postgres_database: PostgresDatabase
) -> None:
    settings = unprepared(pooler, module_postgres_database)
    with (
        twinstore.add_scheduler_postgres_storage(settings) as storage,
        pytest.raises(ConfigurationError, match=f"unsupported startup parameter.*{SETTING}"),
    ):
        storage.runs.get("t", "r")


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_options_that_are_dropped_in_silence_name_the_setting(
    postgres_server: PostgresServer, module_postgres_database: PostgresDatabase, mode: str
) -> None:
    """Without them no statement has a limit, and a lock has no tenant."""
    with pooler_before(postgres_server.url, pool_mode=mode, ignore_startup_parameters="options") as pooler:
        for use in (lock, write_run):
            with (
                twinstore.add_scheduler_postgres_storage(
                    unprepared(pooler, module_postgres_database)
                ) as storage,
                pytest.raises(ConfigurationError, match=f"did not reach the server.*{SETTING}"),
            ):
                use(storage)
        with twinstore.add_scheduler_postgres_storage(pooler.config(module_postgres_database)) as storage:
            lock(storage)
            write_run(storage)


def unit(storage: SchedulerStorage) -> object:
    with storage.transaction("shared") as session:
        return session.runs.get("shared", "none")


def write_run(storage: SchedulerStorage) -> object:
    tenant = "dropped"
    storage.runs.create(make_run(tenant, f"{tenant}-{uuid4()}"))
    return storage.runs.list(tenant)


@pytest.mark.parametrize("ignored", ["", "options"])
@pytest.mark.parametrize("mode", ["transaction", "session", "statement"])
def test_a_pooler_without_the_setting_is_refused_before_a_service_is_ready(
    postgres_server: PostgresServer, module_postgres_database: PostgresDatabase, mode: str, ignored: str
) -> None:
    with (
        pooler_before(postgres_server.url, pool_mode=mode, ignore_startup_parameters=ignored) as pooler,
        twinstore.add_scheduler_postgres_storage(unprepared(pooler, module_postgres_database)) as storage,
        pytest.raises(ConfigurationError, match=SETTING),
    ):
        storage.check_ready()


def test_a_pooler_that_shares_connections_between_statements_is_refused(
    postgres_server: PostgresServer, module_postgres_database: PostgresDatabase
) -> None:
    with (
        pooler_before(postgres_server.url, pool_mode="statement") as pooler,
        twinstore.add_scheduler_postgres_storage(pooler.config(module_postgres_database)) as storage,
    ):
        with pytest.raises(ConfigurationError, match="pool_mode"):
            storage.check_ready()
        with pytest.raises(ConfigurationError, match="pool_mode"):
            unit(storage)


@pytest.mark.parametrize("error", [DuplicatePreparedStatement, InvalidSqlStatementName])
def test_a_prepared_statement_of_another_client_names_the_setting(error: type[psycopg.Error]) -> None:
    """As a pooler answers that passes the options on."""
    translated = translate(error("prepared statement"))
    assert isinstance(translated, ConfigurationError)
    assert error.__name__ in translated.message
    assert SETTING in translated.message


def test_options_of_the_connection_string_are_refused(
    pooler: Pooler, module_postgres_database: PostgresDatabase
) -> None:
    url = make_conninfo(pooler.url(module_postgres_database.app_url), options="-c work_mem=8MB")
    with pytest.raises(ConfigurationError, match="ALTER ROLE"):
        twinstore.add_scheduler_postgres_storage(
            pooler.config(module_postgres_database, ConnectionString=url)
        )


def test_an_unsafe_role_past_the_pooler_is_refused(
    pooler: Pooler, module_postgres_database: PostgresDatabase
) -> None:
    settings = pooler.config(
        module_postgres_database, DirectConnectionString=module_postgres_database.owner_url
    )
    with twinstore.add_scheduler_postgres_storage(settings) as storage:
        for use in (lock, count):
            with pytest.raises(ConfigurationError, match="owns the tables"):
                use(storage)
