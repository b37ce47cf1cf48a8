"""How repositories reach the server: call by call, in a session, in a unit, in a caller's transaction.

The tenant is the setting ``app.tenant_id`` of one transaction and never outlives it. A call that is made of
known statements costs one round trip: outside an explicit transaction, everything between two
synchronisation points of a pipeline is one transaction.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from typing_extensions import override

from twinstore.access import Binding
from twinstore.backend import UnitState
from twinstore.errors import Outcome, TwinstoreError
from twinstore.forks import OwnProcess
from twinstore.retrying import repeat
from twinstore_postgres.batching import Result, Step, batch
from twinstore_postgres.codec import Unprepared
from twinstore_postgres.errors import NOWHERE, OF_PSYCOPG, Subject, loggable, translate, translated
from twinstore_postgres.roles import check_role
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from twinstore.scope import Scope
    from twinstore_postgres.codec import Row
    from twinstore_postgres.connecting import Connection, Lender

__all__ = [
    "UNIT",
    "Execution",
    "JoinedExecution",
    "Result",
    "SessionExecution",
    "Step",
    "Transaction",
    "TransactionSteps",
    "UnboundExecution",
    "UnitExecution",
]

R = TypeVar("R")

log = logging.getLogger("twinstore.postgres")

SET_TENANT: Final = b"SELECT set_config('app.tenant_id', %s, true)"
# What the caller of a joined transaction had set is put back after each call.
PUSH_TENANT: Final = (
    b"SELECT set_config('twinstore.caller_tenant',"
    b" coalesce(current_setting('app.tenant_id', true), ''), true),"
    b" set_config('app.tenant_id', %s, true)"
)
POP_TENANT: Final = (
    b"SELECT set_config('app.tenant_id', current_setting('twinstore.caller_tenant', true), true)"
)
# A step of a repository locks its row and then reads what is committed by now, so it waits and goes on where
# a snapshot would only let it fail. A caller reads, decides and writes in several calls without locks: only a
# snapshot makes the server refuse a write that rests on what others have changed meanwhile.
# Neither begin nor end is prepared: there is no plan to keep, and looking for one costs more than parsing.
STEP: Final = Unprepared(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
UNIT: Final = {
    False: b"BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
    True: b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
END: Final = ((Unprepared(b"COMMIT"), ()),)
# What a forked child may not go on with, in the words of a message.
TRANSACTION: Final = "This transaction"


class TransactionSteps(Protocol):
    """Statements inside one transaction."""

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


class Execution(ABC):
    """The access of one set of repositories to the server."""

    def __init__(self, binding: Binding) -> None:
        """Take what the calls are bound to; in a unit, only its whole transaction can be repeated."""
        self._binding = binding

    @property
    def binding(self) -> Binding:
        """What the calls are bound to."""
        return self._binding

    def repeat(self, action: Callable[[], R]) -> R:
        """Return the result of a unit, repeated after it lost against other writers."""
        return action() if self.binding.in_unit else repeat(action)

    def one(self, tenant: str, subject: Subject, step: Step) -> Row | None:
        """Return the first row of a query."""
        return self._run(tenant, subject, (step,), Outcome.NOT_APPLIED)[0].first

    def read(self, tenant: str, subject: Subject, step: Step) -> Result:
        """Execute a query in one round trip."""
        return self._run(tenant, subject, (step,), Outcome.NOT_APPLIED)[0]

    def write(self, tenant: str, subject: Subject, *steps: Step) -> list[Result]:
        """Execute statements as one transaction (or as part of the unit) in one round trip."""
        return self._run(tenant, subject, steps, Outcome.UNKNOWN)

    @abstractmethod
    def unit(self, tenant: str, subject: Subject) -> AbstractContextManager[TransactionSteps]:
        """Open a transaction of several round trips, or go on in the one that is open."""

    @contextmanager
    def opened(self, tenant: str) -> Iterator[Execution]:
        """Open a transaction for several calls, or go on in the one that is open."""
        with self.unit(tenant, NOWHERE) as steps:
            if not isinstance(steps, Transaction):
                yield self
                return
            state = UnitState()
            try:
                yield UnitExecution(steps, self.binding.scope, state, read_only=False)
                state.check_commit()
            finally:
                state.closed = True

    @abstractmethod
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        """Execute statements with the tenant set, as one transaction where none is open."""


class UnboundExecution(Execution):
    """Each call on a connection that is lent for it."""

    def __init__(self, server: Lender, scope: Scope) -> None:
        """Take what lends the connections."""
        super().__init__(Binding(DRIVER, scope, UnitState(unbound=True)))
        self._server = server

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        before = ((SET_TENANT, (tenant,)),)
        with self._server.connection() as connection:
            try:
                return batch(connection, steps, foreign=self._server.host_owned, before=before)
            except OF_PSYCOPG as error:
                raise translate(error, subject, outcome) from error

    @override
    def unit(self, tenant: str, subject: Subject) -> AbstractContextManager[TransactionSteps]:
        return LentTransaction(self._server, tenant, subject)


class SessionExecution(Execution):
    """Each call on the one connection of a session."""

    def __init__(self, connection: Connection, scope: Scope, state: UnitState, *, foreign: bool) -> None:
        """Take the connection; it is in autocommit mode."""
        super().__init__(Binding(DRIVER, scope, state))
        self._connection = connection
        self._foreign = foreign

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        with translated(subject, outcome=outcome):
            before = ((SET_TENANT, (tenant,)),)
            return batch(self._connection, steps, foreign=self._foreign, before=before)

    @override
    def unit(self, tenant: str, subject: Subject) -> AbstractContextManager[TransactionSteps]:
        return Transaction(self._connection, tenant, subject, foreign=self._foreign)


class Transaction:
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
        foreign: bool = False,
    ) -> None:
        """Take a connection in autocommit mode that is in no transaction, and how to begin one."""
        self.connection = connection
        self.subject = subject
        self._tenant = tenant
        self._begin = begin
        self._foreign = foreign
        self._begun = False
        self._process = OwnProcess()

    @property
    def own(self) -> bool:
        """It ends with the steps it was begun for."""
        return True

    def run(self, *steps: Step, subject: Subject | None = None, tenant: str | None = None) -> list[Result]:
        """Execute statements in one round trip; the first call also begins the transaction.

        ``tenant`` is set for these statements and the later ones, if it is another one.
        """
        self._process.check(TRANSACTION)
        before = self._before(tenant)
        try:
            return batch(self.connection, steps, foreign=self._foreign, before=before)
        except OF_PSYCOPG as error:
            raise translate(error, subject or self.subject, Outcome.NOT_APPLIED) from error

    def finish(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute the last statements and commit in one round trip; a failed one leaves nothing behind."""
        self._process.check(TRANSACTION)
        if not steps and not self._begun:
            return []
        before = self._before(None)
        try:
            results = batch(self.connection, steps, foreign=self._foreign, before=before, after=END)
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
            self._begun = True
            return [(self._begin, ()), (SET_TENANT, (self._tenant,))]
        return [(SET_TENANT, (self._tenant,))] if changed else []


class LentTransaction:
    """A transaction on a connection that is lent for it; a context manager."""

    __slots__ = ("_foreign", "_loan", "_subject", "_tenant", "_transaction")

    def __init__(self, server: Lender, tenant: str, subject: Subject) -> None:
        """Take what lends the connection, and what the transaction gets."""
        self._loan = server.connection()
        self._foreign = server.host_owned
        self._tenant = tenant
        self._subject = subject

    def __enter__(self) -> Transaction:
        """Take a connection; nothing is sent yet."""
        connection = self._loan.__enter__()
        self._transaction = Transaction(connection, self._tenant, self._subject, foreign=self._foreign)
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the transaction, and give the connection back in any case."""
        try:
            self._transaction.__exit__(kind, error, trace)
        finally:
            self._loan.__exit__(kind, error, trace)


class UnitExecution(Execution):
    """Every call inside one transaction of the caller; any error of the store ends its use."""

    def __init__(self, transaction: Transaction, scope: Scope, state: UnitState, *, read_only: bool) -> None:
        """Take the transaction."""
        super().__init__(Binding(DRIVER, scope, state, read_only=read_only, in_unit=True))
        self._transaction = transaction

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        try:
            return self._transaction.run(*steps, subject=subject, tenant=tenant)
        except TwinstoreError:
            # The server has given the transaction up, whatever the caller makes of the error.
            self.binding.state.abort()
            raise

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[TransactionSteps]:
        yield NestedSteps(self, tenant, subject)


@dataclass(frozen=True, slots=True)
class NestedSteps:
    """Statements that go on in the transaction that is open."""

    execution: Execution
    tenant: str
    subject: Subject

    @property
    def own(self) -> bool:
        """Somebody else ends the transaction."""
        return False

    def run(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute statements in one round trip."""
        return self.execution._run(self.tenant, subject or self.subject, steps, Outcome.UNKNOWN)  # noqa: SLF001  # one family

    def finish(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute the last statements; the transaction goes on."""
        return self.run(*steps, subject=subject) if steps else []


class JoinedExecution(Execution):
    """Every call inside the transaction of a caller, whose own tenant setting is put back each time.

    On a connection in autocommit mode outside a transaction each call is its own, as in a session.
    """

    def __init__(  # what joins two parties
        self, connection: Connection, scope: Scope, state: UnitState, *, schema: str, safe: bool
    ) -> None:
        """Take the connection of the caller; its role is checked at the first call unless it is ``safe``."""
        super().__init__(Binding(DRIVER, scope, state))
        self._connection = connection
        self._schema = schema
        self._safe = safe

    @property
    @override
    def binding(self) -> Binding:
        idle = self._connection.info.transaction_status == TransactionStatus.IDLE
        return replace(self._binding, in_unit=not (self._connection.autocommit and idle))

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        self._check_role()
        lend, give_back = ((PUSH_TENANT, (tenant,)),), ((POP_TENANT, ()),)
        with translated(subject, outcome=outcome):
            return batch(self._connection, steps, foreign=True, before=lend, after=give_back)

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[TransactionSteps]:
        self._check_role()
        if self.binding.in_unit:
            yield NestedSteps(self, tenant, subject)
        else:
            with Transaction(self._connection, tenant, subject, foreign=True) as transaction:
                yield transaction

    def _check_role(self) -> None:
        if not self._safe:
            with translated(outcome=Outcome.NOT_APPLIED):
                self._safe = check_role(self._connection, self._schema)
