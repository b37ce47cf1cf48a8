"""One transaction: begun with its first statement, set to a tenant, and ended in the last round trip."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, Self

import psycopg
from typing_extensions import override

from twinstore.errors import Outcome
from twinstore.forks import OwnProcess
from twinstore_postgres.batching import Result, Step
from twinstore_postgres.errors import NOWHERE, OF_PSYCOPG, Subject, loggable, translate, translated
from twinstore_postgres.transports import END, OWN, SET_TENANT, STEP, UNIT

if TYPE_CHECKING:
    from types import TracebackType

    from twinstore_postgres.connecting import Connection, ConnectionSource
    from twinstore_postgres.transports import Transport

__all__ = ["SET_TENANT", "STEP", "UNIT", "PooledTransaction", "Transaction", "TransactionSteps"]

log = logging.getLogger("twinstore.postgres")

# What a forked child may not go on with, in the words of a message.
TRANSACTION: Final = "This transaction"


class TransactionSteps(Protocol):
    """Statements inside one transaction."""

    __slots__ = ()

    @property
    def own(self) -> bool:
        """Whether the transaction was begun for these steps alone; otherwise somebody else ends it."""
        ...

    def run(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute statements in one round trip; ``subject`` says what they are about, if not the unit's."""
        ...

    def finish(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute the last statements; a transaction of their own is committed in the same round trip."""
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
        subject: Subject = NOWHERE,
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
        self._process = OwnProcess()

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
        self._process.check(TRANSACTION)
        before = self._before(tenant)
        try:
            return self._transport.send(self.connection, steps, before)
        except OF_PSYCOPG as error:
            raise translate(error, subject or self.subject, Outcome.NOT_APPLIED) from error

    @override
    def finish(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute the last statements and commit in one round trip; a failed one leaves nothing behind."""
        self._process.check(TRANSACTION)
        if not steps and not self._begun:  # nothing was sent, so there is nothing to commit
            return []
        before = self._before(None)
        try:
            results = self._transport.send(self.connection, steps, before, END)
        except OF_PSYCOPG as error:
            raise translate(error, subject or self.subject, Outcome.UNKNOWN) from error
        self._begun = False
        return results

    def commit(self) -> None:
        """Commit what was done; a transaction that never began, or is finished, needs nothing."""
        self._process.check(TRANSACTION)
        if self._begun:
            with translated(self.subject, outcome=Outcome.UNKNOWN):
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
        """Return what must be executed first: the begin, and the tenant where it is another one."""
        changed = tenant is not None and tenant != self._tenant
        if tenant is not None:
            self._tenant = tenant
        if not self._begun:
            # Before anything is sent: whatever becomes of the round trip, a rollback is due from now on.
            self._begun = True
            return self._transport.opening(self._begin, self._tenant)
        return [(SET_TENANT, (self._tenant,))] if changed else []


class PooledTransaction:
    """A transaction on a connection that is lent for it; a context manager."""

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
        """End the transaction, and give the connection back in any case."""
        try:
            self._transaction.__exit__(kind, error, trace)
        finally:
            self._pooled.__exit__(kind, error, trace)
