"""What the drivers do without is told in a log, by class and code alone."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import timedelta
from threading import get_ident
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool
from pydantic import SecretStr
from pymongo import MongoClient

from twinstore_mongo.schema.lock import MigrationLease
from twinstore_postgres.connection.deadlines import Connection
from twinstore_postgres.connection.pool import ServerConnections
from twinstore_postgres.connection.target import Target
from twinstore_postgres.connection.transaction import Transaction
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from tests.databases import PostgresDatabase

TENANT = "tenant-of-nobody"
PASSWORD = "hunter2"  # of nobody


def message(caplog: pytest.LogCaptureFixture, driver: str) -> tuple[int, str]:
    """Return level and text of the one message of a driver."""
    # Threads that other tests have left may tell something, too.
    (record,) = (
        record
        for record in caplog.records
        if (record.name, record.thread) == (f"twinstore.{driver}", get_ident())
    )
    return record.levelno, record.getMessage()


@pytest.mark.parametrize(("step", "level"), [("renew", logging.WARNING), ("release", logging.DEBUG)])
def test_a_lease_that_is_out_of_reach_is_told(
    step: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"mongodb://user:{PASSWORD}@127.0.0.1:1/?serverSelectionTimeoutMS=1"
    with MongoClient[dict[str, Any]](url) as client, caplog.at_level(logging.DEBUG, "twinstore.mongo"):
        lease = MigrationLease(client["db"]["_migrations"], timedelta(minutes=1), TENANT)
        getattr(lease, step)()
    # The next renewal may succeed.
    assert not lease.lost
    found, text = message(caplog, "mongo")
    assert found == level
    assert "(ServerSelectionTimeoutError)" in text
    assert not any(value in text for value in (PASSWORD, TENANT, "127.0.0.1"))


def test_a_rollback_on_a_lost_connection_is_told(
    postgres_database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG, "twinstore.postgres"),
        closing(Target(SecretStr(postgres_database.app_url), SecretStr("")).connect()) as connection,
        pytest.raises(LookupError, match="of the caller"),
    ):
        fail_after_the_loss_of(connection, postgres_database)
    level, text = message(caplog, "postgres")
    assert level == logging.DEBUG
    assert "(AdminShutdown 57P01)" in text
    assert TENANT not in text


def fail_after_the_loss_of(connection: Connection, database: PostgresDatabase) -> None:
    """Begin a transaction, let the server end the connection, and fail."""
    with Transaction(connection, TENANT) as transaction:
        transaction.run((b"SELECT 1", ()))
        with psycopg.connect(database.superuser_url) as superuser:
            superuser.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
        raise LookupError("of the caller")


def test_a_connection_of_the_host_that_cannot_get_its_mode_back_is_replaced(
    postgres_database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    kind = psycopg.Connection[tuple[Any, ...]]
    with ConnectionPool[Connection](
        postgres_database.app_url,
        connection_class=kind,
        kwargs={"row_factory": tuple_row},
        min_size=1,
        max_size=1,
    ) as pool:
        server = ServerConnections(PostgresSettings(pool=pool))
        with caplog.at_level(logging.DEBUG, "twinstore.postgres"), server.connection() as lent:
            lent.execute("BEGIN")
        with pool.connection() as next_one:
            assert next_one is not lent
            assert not next_one.autocommit
    level, text = message(caplog, "postgres")
    assert (level, "(ProgrammingError)" in text) == (logging.DEBUG, True)
