"""How the statements of a source of connections are sent, and what surrounds those of a transaction.

Behind a pooler in transaction mode each transaction may get another connection of the server, and none knows
what this process has set or prepared. So every transaction begins explicitly and sends its settings with the
tenant. All of these end with the transaction, and the next client of the connection does not see them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, Self

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from typing_extensions import override

from twinstore.errors import Outcome
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.runtime.forks import ProcessGuard
from twinstore_postgres.connection.batch import PipelinedConnection, Result, Step, batch, by_cursors
from twinstore_postgres.connection.deadlines import Connection
from twinstore_postgres.connection.errors import (
    NO_SUBJECT,
    OF_PSYCOPG,
    Subject,
    loggable,
    translate,
    translated,
)
from twinstore_postgres.mapping.codec import Unprepared

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from twinstore_postgres.settings import PostgresSettings

log = logging.getLogger("twinstore.postgres")

SET_TENANT: Final = b"SELECT set_config('app.tenant_id', %s, true)"
# A step of a repository locks its row and then reads what is committed by now, so it waits and goes on where
# a snapshot would only let it fail. A caller reads, decides and writes in several calls without locks: only a
# snapshot makes the server refuse a write that rests on what others have changed meanwhile.
# Neither begin nor end is prepared: there is no plan to keep, and looking for one costs more than parsing. To
# make room for a prepared one, the server would forget another before it, and then refuse the isolation.
STEP: Final = Unprepared(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
READING: Final = Unprepared(b"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
UNIT: Final = {
    False: Unprepared(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE"),
    True: Unprepared(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
}
# On connections of others, whose isolation is theirs.
BEGIN: Final = Unprepared(b"BEGIN")
END: Final = ((Unprepared(b"COMMIT"), ()),)
SAVEPOINT: Final = (Unprepared(b"SAVEPOINT twinstore"), ())
ROLL_BACK_TO: Final = (Unprepared(b"ROLLBACK TO twinstore"), ())
RELEASE: Final = (Unprepared(b"RELEASE twinstore"), ())


class Transport:
    """Connections whose settings were made when they were opened.

    Attributes:
        setup: the statement that sets a transaction to a tenant, its one parameter.
        behind_pooler: whether a pooler gives the connections of the server away between two transactions.
    """

    setup: bytes = SET_TENANT
    behind_pooler: bool = False

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

    def finish(self, connection: Connection, steps: Sequence[Step], before: Sequence[Step]) -> list[Result]:
        """Execute the last statements of a transaction and commit it, in one round trip where possible."""
        if self.behind_pooler and not isinstance(connection, PipelinedConnection):
            # The pipeline of psycopg may send a Flush behind its end. A pooler that has given the connection
            # of the server away takes another one for it, and keeps that until the client sends more.
            results = self.send(connection, steps, before)
            connection.commit()
            return results
        return self.send(connection, steps, before, END)

    def begin_steps(self, begin: bytes, tenant: str) -> list[Step]:
        """Return what begins a transaction of several round trips."""
        return [(begin, ()), (self.setup, (tenant,))]

    @contextmanager
    def with_our_settings(self, connection: Connection) -> Iterator[None]:
        """Let statements of another kind find the settings of this library."""
        del connection
        yield


class ForeignTransport(Transport):
    """Connections of a host or a caller: they do not know our types and have their own settings."""

    # As psycopg takes it: ``None`` leaves it to the connection.
    prepare: bool | None = None

    @override
    def send(
        self,
        connection: Connection,
        steps: Sequence[Step],
        before: Sequence[Step] = (),
        after: Sequence[Step] = (),
    ) -> list[Result]:
        return by_cursors(connection, steps, before, after, prepare=self.prepare)


class ForeignPoolerTransport(ForeignTransport):
    """The same to a transaction pooler: nothing is prepared, and each call has an explicit begin and end."""

    behind_pooler = True
    prepare = False

    @override
    def call(self, connection: Connection, tenant: str, steps: Sequence[Step]) -> list[Result]:
        return whole(self, connection, steps, self.begin_steps(BEGIN, tenant))


class PoolerTransport(Transport):
    """Our own connections to a transaction pooler.

    Each call has an explicit begin and end: a statement before an implicit transaction could not set its
    isolation. The pooler keeps the connection of the server until the transaction has ended.
    """

    behind_pooler = True

    def __init__(self, settings: PostgresSettings, *, read_only: bool) -> None:
        """Take the limits; ``read_only`` calls take no write."""
        self.setup = setup_of({**FORMS, "statement_timeout": str(settings.statement_timeout_ms)})
        self._begin = READING if read_only else STEP

    @override
    def call(self, connection: Connection, tenant: str, steps: Sequence[Step]) -> list[Result]:
        return whole(self, connection, steps, self.begin_steps(self._begin, tenant))

    @contextmanager
    @override
    def with_our_settings(self, connection: Connection) -> Iterator[None]:
        with connection.transaction():
            connection.execute(self.setup, (SYSTEM_TENANT,))
            yield


def whole(
    transport: Transport, connection: Connection, steps: Sequence[Step], begin: Sequence[Step]
) -> list[Result]:
    """Execute a whole transaction; a failed one is rolled back, so that a pooler can use its connection."""
    try:
        return transport.finish(connection, steps, begin)
    except BaseException:
        undo(connection)
        raise


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
FOREIGN_POOLER: Final = ForeignPoolerTransport()


def transport_of(settings: PostgresSettings, *, application_owned: bool, read_only: bool) -> Transport:
    """Return how statements travel on the connections of a pool."""
    if application_owned:
        return joined_transport(settings)
    return PoolerTransport(settings, read_only=read_only) if settings.transaction_pooler else OWN


def joined_transport(settings: PostgresSettings) -> Transport:
    """Return how statements travel on connections that a caller has."""
    return FOREIGN_POOLER if settings.transaction_pooler else FOREIGN


# What a forked child may not go on with, in the words of a message.
TRANSACTION: Final = "This transaction"


class TransactionSteps(Protocol):
    """Statements inside one transaction."""

    __slots__ = ()

    @property
    def own(self) -> bool:
        """Whether the transaction was begun for these steps alone; otherwise the caller ends it."""
        ...

    def run(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute statements in one round trip; ``subject`` says what they are about, if not the unit's."""
        ...

    def finish(self, *steps: Step, subject: Subject | None = None, unread: bool = False) -> list[Result]:
        """Execute the last statements; our own transaction is committed in the same round trip.

        If the answers are ``unread``, a transaction that goes on may execute them with its next ones.
        """
        ...


class Transaction(TransactionSteps):
    """A transaction of our own that begins with its first statement.

    As a context manager it commits at normal exit and rolls back on any exception. A class, because every
    step that decides passes here and a generator would cost it three times as much.
    """

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        subject: Subject = NO_SUBJECT,
        *,
        begin: bytes = STEP,
        transport: Transport = OWN,
    ) -> None:
        """Take a connection in autocommit mode that is in no transaction, and how to begin one on it."""
        self.connection = connection
        self.subject = subject
        self._tenant = tenant
        self._begin = begin
        self._transport = transport
        self._begun = False
        self._later: list[Step] = []
        self._process = ProcessGuard()

    @property
    @override
    def own(self) -> bool:
        """It ends with the steps it was begun for."""
        return True

    @override
    def run(self, *steps: Step, subject: Subject | None = None, tenant: str | None = None) -> list[Result]:
        """Execute statements in one round trip; the first call also begins the transaction.

        ``tenant`` is set for these statements and the later ones, if it is another one.
        """
        try:
            return self.send(*steps, tenant=tenant)
        except OF_PSYCOPG as error:
            raise translate(error, subject or self.subject, Outcome.NOT_APPLIED) from error

    def send(self, *steps: Step, tenant: str | None = None) -> list[Result]:
        """Do the same; without statements, execute what was left for later.

        Raises:
            psycopg.Error: of the first that failed.
        """
        self._process.check(TRANSACTION)
        before = self._before(tenant)
        if not steps and not before:
            return []
        try:
            return self._transport.send(self.connection, steps, before)
        except psycopg.DataError as error:
            if error.sqlstate is None:  # a value cannot be written, so nothing was sent
                self._later = before
            raise

    def later(self, *steps: Step) -> None:
        """Execute statements in the round trip of the next ones; their answers are not read."""
        if isinstance(self.connection, PipelinedConnection):
            self._later += steps
        else:
            self.run(*steps)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the statements of the block alone if it fails; such blocks do not nest."""
        self.later(SAVEPOINT)
        try:
            yield
        except BaseException:
            if not self.connection.closed:
                self.later(ROLL_BACK_TO, RELEASE)
            raise
        self.later(RELEASE)

    @override
    def finish(self, *steps: Step, subject: Subject | None = None, unread: bool = False) -> list[Result]:
        """Execute the last statements and commit in one round trip; a failed one leaves nothing behind."""
        self._process.check(TRANSACTION)
        if not steps and not self._begun:  # nothing was sent, so there is nothing to commit
            return []
        before = self._before(None)
        try:
            results = self._transport.finish(self.connection, steps, before)
        except OF_PSYCOPG as error:
            raise translate(error, subject or self.subject, Outcome.UNKNOWN) from error
        self._begun = False
        return results

    def commit(self) -> None:
        """Commit what was done; a transaction that never began, or is finished, needs nothing."""
        self._process.check(TRANSACTION)
        if self._begun:
            with translated(self.subject, outcome=Outcome.UNKNOWN):
                if self._later:
                    self._transport.finish(self.connection, (), self._before(None))
                else:
                    self.connection.commit()

    def roll_back(self) -> None:
        """Undo everything; a broken connection has done so already, and a forked child must not."""
        if self._process.forked:
            return
        try:
            self.connection.rollback()
        except psycopg.Error as error:
            # The error that ended the transaction is on its way; this one must not take its place.
            log.debug("A rollback failed (%s); the server undoes it with the connection.", loggable(error))

    def __enter__(self) -> Self:
        """Return the transaction; its first statement begins it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back what failed."""
        if error is not None:
            self.roll_back()
            return
        try:
            self.commit()
        except BaseException:
            self.roll_back()
            raise

    def _before(self, tenant: str | None) -> list[Step]:
        """Return what must be executed first: the begin, the tenant where it is another one, and the rest."""
        later, self._later = self._later, []
        changed = tenant is not None and tenant != self._tenant
        if tenant is not None:
            self._tenant = tenant
        if not self._begun:
            # Before anything is sent: whatever becomes of the round trip, a rollback is due from now on.
            self._begun = True
            return [*self._transport.begin_steps(self._begin, self._tenant), *later]
        return [*later, *([(SET_TENANT, (self._tenant,))] if changed else [])]


class PooledTransaction:
    """A transaction on a connection that is checked out for it; a context manager."""

    __slots__ = ("_pooled", "_subject", "_tenant", "_transaction", "_transport")

    def __init__(self, server: ConnectionSource, tenant: str, subject: Subject) -> None:
        self._pooled = server.connection()
        self._transport = server.transport
        self._tenant = tenant
        self._subject = subject

    def __enter__(self) -> Transaction:
        """Take a connection; nothing is sent yet."""
        connection = self._pooled.__enter__()
        self._transaction = Transaction(connection, self._tenant, self._subject, transport=self._transport)
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._transaction.__exit__(kind, error, trace)
        finally:
            self._pooled.__exit__(kind, error, trace)


class ConnectionSource(Protocol):
    """Hands out connections in autocommit mode, each outside any transaction."""

    @property
    def transport(self) -> Transport:
        """How statements travel on its connections."""
        ...

    def connection(self) -> AbstractContextManager[Connection]:
        """Check out a connection until the block ends."""
        ...


# How values are shown and read, and that policies hide rows instead of failing.
FORMS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    "row_security": "on",
}
