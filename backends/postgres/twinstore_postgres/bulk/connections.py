"""Connections of bulk work: beside the pool, without a limit on statements, reused one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from psycopg.pq import TransactionStatus

from twinstore.forks import ForkSafeLock, ending, keep, renew_in_child
from twinstore.scope import SYSTEM_TENANT, note_system_scope
from twinstore_postgres.errors import translated

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.server import PostgresServer

__all__ = ["BulkConnections", "Reading", "begin_system"]

# A statement that streams lasts as long as its reader takes, which no limit of the server can know.
BEGIN_SYSTEM: Final = (
    b"SELECT set_config('app.tenant_id', %s, true), set_config('statement_timeout', '0', true)"
)


# The same, and whether there is anything to read, and whether part of its key may be null.
BEGIN_READING: Final = b"""
SELECT set_config('app.tenant_id', %s, true), set_config('statement_timeout', '0', true),
       c.oid IS NOT NULL,
       EXISTS (SELECT FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attname = ANY (%s) AND NOT a.attnotnull)
  FROM (VALUES (1)) AS one
  LEFT JOIN pg_class c ON c.relname = %s AND c.relnamespace = to_regnamespace(%s)
                      AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """A connection inside a transaction in system scope, and what is known of the table to read.

    Attributes:
        nullable: part of the key may be null, as in a view, or in a table that somebody else made.
    """

    connection: Connection
    nullable: bool


class BulkConnections:
    """Connections that were opened for bulk work; those at rest are lent again."""

    def __init__(self, server: PostgresServer) -> None:
        """Take the server; nothing is opened yet."""
        self._server = server
        self._idle: list[Connection] = []
        self._lock = ForkSafeLock()
        renew_in_child(self)

    @property
    def place(self) -> str:
        """Host and database, without anything secret."""
        return self._server.place

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """Lend a connection outside any transaction; one that is left in another state is closed."""
        connection = self._take()
        with ending(partial(self._give_back, connection)):
            yield connection

    @contextmanager
    def system(self, purpose: str) -> Iterator[Connection]:
        """Lend a connection inside a transaction in system scope."""
        with self.lend() as connection, translated(), connection.transaction():
            begin_system(connection, purpose)
            yield connection

    @contextmanager
    def reading(self, purpose: str, entity: Entity, key: Sequence[str]) -> Iterator[Reading | None]:
        """Lend a connection for reading the table of an entity; ``None`` where there is no such table."""
        with self.lend() as connection, translated(), connection.transaction():
            note_system_scope(purpose)
            values = [SYSTEM_TENANT, list(key), entity.name, entity.module]
            row = connection.execute(BEGIN_READING, values).fetchone()
            there, nullable = (row or (None, None, False, False))[2:]
            yield Reading(connection, nullable) if there else None

    def open(self) -> Connection:
        """Open a connection that the caller closes."""
        return self._server.connect()

    def renew(self) -> None:
        """Start without a connection in a forked child; those at rest are the parent's."""
        keep(self._idle)
        self._idle = []

    def close(self) -> None:
        """Close the connections at rest."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        return self._server.connect()

    def _give_back(self, connection: Connection) -> None:
        if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)


def begin_system(connection: Connection, purpose: str) -> None:
    """Open system scope for the transaction that has just begun."""
    note_system_scope(purpose)
    connection.execute(BEGIN_SYSTEM, [SYSTEM_TENANT])
