"""How the statements of a source of connections travel, and what stands around those of a transaction.

Behind a pooler in transaction mode each transaction may meet another connection of the server, and none knows
what this process has set or prepared. So every transaction begins by name and sends its settings with the
tenant; all of it ends with the transaction, and whoever has the connection next finds nothing of it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from typing_extensions import override

from twinstore.scope import SYSTEM_TENANT
from twinstore_postgres.batching import Result, Step, batch, by_cursors
from twinstore_postgres.codec import Unprepared
from twinstore_postgres.errors import loggable
from twinstore_postgres.targets import FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.settings import PostgresSettings

__all__ = [
    "END",
    "FOREIGN",
    "OWN",
    "SET_TENANT",
    "STEP",
    "UNIT",
    "Transport",
    "joined_transport",
    "transport_of",
]

log = logging.getLogger("twinstore.postgres")

SET_TENANT: Final = b"SELECT set_config('app.tenant_id', %s, true)"
# A step of a repository locks its row and then reads what is committed by now, so it waits and goes on where
# a snapshot would only let it fail. A caller reads, decides and writes in several calls without locks: only a
# snapshot makes the server refuse a write that rests on what others have changed meanwhile.
# Neither begin nor end is prepared: there is no plan to keep, and looking for one costs more than parsing.
STEP: Final = Unprepared(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
READING: Final = Unprepared(b"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
UNIT: Final = {
    False: b"BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
    True: b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
END: Final = ((Unprepared(b"COMMIT"), ()),)


class Transport:
    """Connections whose settings were made when they were opened.

    Attributes:
        setup: the statement that sets a transaction to a tenant, its one parameter.
    """

    setup: bytes = SET_TENANT

    def send(
        self,
        connection: Connection,
        steps: Sequence[Step],
        before: Sequence[Step] = (),
        after: Sequence[Step] = (),
    ) -> list[Result]:
        """Execute statements in one round trip, and return what each of ``steps`` answered."""
        return batch(connection, steps, before, after)

    def call(self, connection: Connection, tenant: str, steps: Sequence[Step]) -> list[Result]:
        """Execute statements as one transaction of a tenant, in one round trip.

        Outside an explicit transaction, everything between two synchronisation points is one.
        """
        return self.send(connection, steps, ((SET_TENANT, (tenant,)),))

    def opening(self, begin: bytes, tenant: str) -> list[Step]:
        """Return what begins a transaction of several round trips."""
        return [(begin, ()), (self.setup, (tenant,))]

    @contextmanager
    def settled(self, connection: Connection) -> Iterator[None]:
        """Let statements of another kind find the settings of this library."""
        del connection
        yield


class ForeignTransport(Transport):
    """Connections of a host or a caller: they know nothing of our types and have settings of their own."""

    def __init__(self, *, prepare: bool | None = None) -> None:
        """Take what psycopg is told of preparing: ``None`` leaves it to the connection."""
        self._prepare = prepare

    @override
    def send(
        self,
        connection: Connection,
        steps: Sequence[Step],
        before: Sequence[Step] = (),
        after: Sequence[Step] = (),
    ) -> list[Result]:
        return by_cursors(connection, steps, before, after, prepare=self._prepare)


class PoolerTransport(Transport):
    """Connections of our own to a transaction pooler.

    Each call has a begin and an end of its own: what comes before an implicit transaction could not say how
    isolated it is. The pooler keeps the connection of the server until the transaction has ended.
    """

    def __init__(self, settings: PostgresSettings, *, read_only: bool) -> None:
        """Take the limits; ``read_only`` calls take no write."""
        self.setup = setup_of({**FORMS, "statement_timeout": str(settings.statement_timeout_ms)})
        self._begin = READING if read_only else STEP

    @override
    def call(self, connection: Connection, tenant: str, steps: Sequence[Step]) -> list[Result]:
        try:
            return batch(connection, steps, self.opening(self._begin, tenant), END)
        except BaseException:
            undo(connection)
            raise

    @contextmanager
    @override
    def settled(self, connection: Connection) -> Iterator[None]:
        with connection.transaction():
            connection.execute(self.setup, (SYSTEM_TENANT,))
            yield


def undo(connection: Connection) -> None:
    """Roll back what failed; a broken connection has done so already."""
    try:
        if connection.info.transaction_status != TransactionStatus.IDLE:
            connection.rollback()
    except psycopg.Error as error:
        # The error that ended the transaction is on its way; this one must not take its place.
        log.debug("A rollback failed (%s); the server undoes it with the connection.", loggable(error))


def setup_of(values: dict[str, str]) -> Unprepared:
    """Return the statement that sets a tenant and some settings for the rest of the transaction."""
    more = [
        sql.SQL("set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
        for name, value in values.items()
    ]
    return Unprepared(b", ".join([SET_TENANT, *(part.as_bytes() for part in more)]))


OWN: Final = Transport()
FOREIGN: Final = ForeignTransport()
FOREIGN_UNPREPARED: Final = ForeignTransport(prepare=False)


def transport_of(settings: PostgresSettings, *, host_owned: bool, read_only: bool) -> Transport:
    """Return how statements travel on the connections of a pool."""
    if host_owned:
        return joined_transport(settings)
    return PoolerTransport(settings, read_only=read_only) if settings.transaction_pooler else OWN


def joined_transport(settings: PostgresSettings) -> Transport:
    """Return how statements travel on connections that a caller has."""
    return FOREIGN_UNPREPARED if settings.transaction_pooler else FOREIGN
