"""What the drivers do without is logged, by class and code alone."""

from __future__ import annotations

import logging
import socket
import struct
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from threading import Thread, get_ident
from typing import TYPE_CHECKING, Any, Final

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
    from collections.abc import Iterator

    from tests.support.databases import PostgresDatabase

LENGTH: Final = struct.Struct("!I")
NO_ENCRYPTION: Final = frozenset({80877103, 80877104})  # a client asks for TLS, or for GSSAPI
ASKS_PASSWORD: Final = 3
ACCEPTED: Final = 0


@contextmanager
def refusing(code: str, text: str) -> Iterator[int]:
    """Answer on a port for the length of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=serve, args=(listener, code, text), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket, code: str, text: str) -> None:
    """Refuse every client."""
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError):
                refuse(client, code, text)


def refuse(client: socket.socket, code: str, text: str) -> None:
    """Ask for the password, accept it, and refuse the connection all the same."""
    while LENGTH.unpack(foreign_message(client)[:4])[0] in NO_ENCRYPTION:
        client.sendall(b"N")
    say(client, b"R", LENGTH.pack(ASKS_PASSWORD))
    client.recv(1)
    foreign_message(client)
    say(client, b"R", LENGTH.pack(ACCEPTED))
    fields = {b"S": b"FATAL", b"V": b"FATAL", b"C": code.encode(), b"M": text.encode()}
    say(client, b"E", b"".join(name + value + b"\0" for name, value in fields.items()) + b"\0")


def foreign_message(client: socket.socket) -> bytes:
    """Return what the client sends, without its length."""
    (length,) = LENGTH.unpack(exactly(client, LENGTH.size))
    return exactly(client, length - LENGTH.size)


def exactly(client: socket.socket, size: int) -> bytes:
    """Return this many bytes of a client; a client that is cancelled meanwhile sends fewer."""
    found = client.recv(size, socket.MSG_WAITALL)
    if len(found) < size:
        raise ConnectionError("the client has gone")
    return found


def say(client: socket.socket, kind: bytes, body: bytes) -> None:
    """Send one message."""
    client.sendall(kind + LENGTH.pack(len(body) + 4) + body)


TENANT = "tenant-of-nobody"
PASSWORD = "hunter2"  # not a real one


def message(caplog: pytest.LogCaptureFixture, driver: str) -> tuple[int, str]:
    """Return level and text of the one message of a driver."""
    # Threads that other tests have left may also log something.
    (record,) = (
        record
        for record in caplog.records
        if (record.name, record.thread) == (f"twinstore.{driver}", get_ident())
    )
    return record.levelno, record.getMessage()


@pytest.mark.parametrize(("step", "level"), [("renew", logging.WARNING), ("release", logging.DEBUG)])
def test_a_lease_that_is_out_of_reach_is_logged(
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


def test_a_rollback_on_a_lost_connection_is_logged(
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
