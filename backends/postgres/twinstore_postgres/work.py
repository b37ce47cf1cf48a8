"""How repositories reach the server: call by call, in a session, in a unit, in a caller's transaction.

The tenant is the setting ``app.tenant_id`` of one transaction and never outlives it. A call that is made of
known statements costs one round trip: outside an explicit transaction, everything between two
synchronisation points of a pipeline is one transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from typing_extensions import override

from twinstore.backend import UnitState, write_refused
from twinstore.errors import DuplicateError, Outcome, TwinstoreError
from twinstore.forks import OwnProcess
from twinstore.retrying import repeat
from twinstore.scope import SYSTEM_TENANT, Scope
from twinstore_postgres.codec import Replanned, Row, register_loaders
from twinstore_postgres.errors import NOWHERE, Subject, translated
from twinstore_postgres.reading import rows_of
from twinstore_postgres.roles import check_role
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.server import PostgresServer

__all__ = [
    "UNIT",
    "Joined",
    "Result",
    "SessionWork",
    "Step",
    "Steps",
    "Transaction",
    "Unbound",
    "Unit",
    "Work",
    "own_unit",
]

E = TypeVar("E", bound=TwinstoreError)
R = TypeVar("R")

ATTEMPTS: Final = 10

SET_TENANT: Final = b"SELECT set_config('app.tenant_id', %s, true)"
# What the caller of a joined transaction had set is put back after each call.
LEND_TENANT: Final = (
    b"SELECT set_config('twinstore.caller_tenant',"
    b" coalesce(current_setting('app.tenant_id', true), ''), true),"
    b" set_config('app.tenant_id', %s, true)"
)
RETURN_TENANT: Final = (
    b"SELECT set_config('app.tenant_id', current_setting('twinstore.caller_tenant', true), true)"
)
# A step of a repository locks its row and then reads what is committed by now, so it waits and goes on where
# a snapshot would only let it fail. A caller reads, decides and writes in several calls without locks: only a
# snapshot makes the server refuse a write that rests on what others have changed meanwhile.
STEP: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
UNIT: Final = {
    False: b"BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
    True: b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
COMMIT: Final = b"COMMIT"

Step = tuple[bytes, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Result:
    """What one statement answered."""

    rows: list[Row]
    count: int

    @property
    def first(self) -> Row | None:
        """The first row, or ``None``."""
        return self.rows[0] if self.rows else None


class Steps(Protocol):
    """Statements inside one transaction."""

    def run(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute statements in one round trip; ``subject`` says what they are about, if not the unit's."""
        ...


class Work(ABC):
    """The access of one set of repositories to the server."""

    def __init__(self, scope: Scope, state: UnitState | None = None) -> None:
        """Take the scope, and the state of the unit when there is one."""
        self.scope = scope
        self.state = state

    def admit(self, tenant_id: str) -> str:
        """Return the tenant of a call after checking that the unit is usable."""
        self.check()
        return self.scope.admit(tenant_id)

    def admit_system(self, purpose: str) -> str:
        """Open system scope for a call; return the value of the setting that stands for it."""
        self.check()
        self.scope.admit_system(purpose)
        return SYSTEM_TENANT

    def admit_optional(self, tenant_id: str | None, purpose: str) -> str | None:
        """Return the tenant of a call, or ``None`` after opening system scope."""
        self.check()
        return self.scope.admit_optional(tenant_id, purpose)

    def check(self) -> None:
        """Raise ``TransactionAbortedError`` when the unit is no longer usable."""
        if self.state is not None:
            self.state.check()

    def refuse(self, error: E) -> E:
        """Note that a store error was found by reading; return it to be raised."""
        return error

    @property
    def repeatable(self) -> bool:
        """Whether a failed unit can be tried again here; otherwise only the whole transaction can."""
        return True

    def repeat(self, action: Callable[[], R]) -> R:
        """Return the result of a unit, repeated after it lost against other writers."""
        return repeat(action, attempts=ATTEMPTS if self.repeatable else 1)

    def one(
        self, tenant: str, subject: Subject, statement: bytes, parameters: Sequence[object]
    ) -> Row | None:
        """Return the first row of a query."""
        return self.read(tenant, subject, statement, parameters).first

    def read(self, tenant: str, subject: Subject, statement: bytes, parameters: Sequence[object]) -> Result:
        """Execute a query in one round trip."""
        return self._run(tenant, subject, [(statement, parameters)], Outcome.NOT_APPLIED)[0]

    def write(self, tenant: str, subject: Subject, *steps: Step) -> list[Result]:
        """Execute statements as one transaction (or as part of the unit) in one round trip."""
        return self._run(tenant, subject, steps, Outcome.UNKNOWN)

    @abstractmethod
    def unit(self, tenant: str, subject: Subject) -> AbstractContextManager[Steps]:
        """Open a transaction of several round trips, or go on in the one that is open."""

    @abstractmethod
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        """Execute statements with the tenant set, as one transaction where none is open."""


class Unbound(Work):
    """Each call on a connection of the pool."""

    def __init__(self, server: PostgresServer, scope: Scope) -> None:
        """Take the server."""
        super().__init__(scope)
        self._server = server

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        with self._server.connection() as connection, translated(subject, outcome=outcome):
            return batch(connection, [(SET_TENANT, (tenant,)), *steps], foreign=self._server.borrowed)[1:]

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[Steps]:
        with self._server.connection() as connection:
            yield from own_unit(Transaction(connection, tenant, subject, foreign=self._server.borrowed))


class SessionWork(Work):
    """Each call on the one connection of a session."""

    def __init__(self, connection: Connection, scope: Scope, state: UnitState, *, foreign: bool) -> None:
        """Take the connection; it is in autocommit mode."""
        super().__init__(scope, state)
        self._connection = connection
        self._foreign = foreign

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        with translated(subject, outcome=outcome):
            return batch(self._connection, [(SET_TENANT, (tenant,)), *steps], foreign=self._foreign)[1:]

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[Steps]:
        yield from own_unit(Transaction(self._connection, tenant, subject, foreign=self._foreign))


class Transaction:
    """A transaction of our own that begins with its first statement."""

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

    def run(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute statements in one round trip; the first call also begins the transaction."""
        self._check_process()
        before: list[Step] = []
        if not self._begun:
            before = [(self._begin, ()), (SET_TENANT, (self._tenant,))]
            self._begun = True
        with translated(subject or self.subject, outcome=Outcome.NOT_APPLIED):
            return batch(self.connection, [*before, *steps], foreign=self._foreign)[len(before) :]

    def commit(self) -> None:
        """Commit what was done; a transaction that never began needs nothing."""
        self._check_process()
        if self._begun:
            with translated(self.subject, outcome=Outcome.UNKNOWN):
                self.connection.commit()

    def roll_back(self) -> None:
        """Undo everything; a broken connection has done so already, and a forked child must not."""
        if not self._process.forked:
            with suppress(psycopg.Error):
                self.connection.rollback()

    def _check_process(self) -> None:
        self._process.check("This transaction")


def own_unit(transaction: Transaction) -> Iterator[Steps]:
    """Yield the transaction; commit at normal exit, roll back on any exception."""
    try:
        yield transaction
    except BaseException:
        transaction.roll_back()
        raise
    try:
        transaction.commit()
    except BaseException:
        transaction.roll_back()
        raise


class Unit(Work):
    """Every call inside one transaction of the caller; any error of the store ends its use."""

    def __init__(self, transaction: Transaction, scope: Scope, state: UnitState, *, read_only: bool) -> None:
        """Take the transaction."""
        super().__init__(scope, state)
        self._transaction = transaction
        self._read_only = read_only

    @override
    def refuse(self, error: E) -> E:
        if self.state is not None:
            self.state.abort()
        return error

    @property
    @override
    def repeatable(self) -> bool:
        return False

    @override
    def write(self, tenant: str, subject: Subject, *steps: Step) -> list[Result]:
        self._check_writable()
        return super().write(tenant, subject, *steps)

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        try:
            return self._transaction.run(*steps, subject=subject)
        except TwinstoreError as error:
            raise self.refuse(error)  # noqa: B904  # the very error, noted on its way

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[Steps]:
        self._check_writable()
        try:
            yield StepsOf(self, tenant, subject)
        except DuplicateError as error:
            raise self.refuse(error)  # noqa: B904  # the very error, noted on its way

    def _check_writable(self) -> None:
        if self._read_only:
            raise write_refused(DRIVER)


@dataclass(frozen=True, slots=True)
class StepsOf:
    """Statements that go on in the transaction that is open."""

    work: Work
    tenant: str
    subject: Subject

    def run(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        """Execute statements in one round trip."""
        return self.work._run(self.tenant, subject or self.subject, steps, Outcome.UNKNOWN)  # noqa: SLF001  # one family


class Joined(Work):
    """Every call inside the transaction of a caller, whose own tenant setting is put back each time.

    On a connection in autocommit mode outside a transaction each call is its own, as in a session.
    """

    def __init__(self, connection: Connection, scope: Scope, state: UnitState, *, safe: bool) -> None:
        """Take the connection of the caller; its role is checked at the first call unless it is ``safe``."""
        super().__init__(scope, state)
        self._connection = connection
        self._safe = safe

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        self._check_role()
        lent = [(LEND_TENANT, (tenant,)), *steps, (RETURN_TENANT, ())]
        with translated(subject, outcome=outcome):
            return batch(self._connection, lent, foreign=True)[1:-1]

    @property
    @override
    def repeatable(self) -> bool:
        idle = self._connection.info.transaction_status == TransactionStatus.IDLE
        return self._connection.autocommit and idle

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[Steps]:
        self._check_role()
        if self.repeatable:
            yield from own_unit(Transaction(self._connection, tenant, subject, foreign=True))
        else:
            yield StepsOf(self, tenant, subject)

    def _check_role(self) -> None:
        if not self._safe:
            with translated(outcome=Outcome.NOT_APPLIED):
                self._safe = check_role(self._connection)


def batch(connection: Connection, steps: Sequence[Step], *, foreign: bool) -> list[Result]:
    """Execute statements in one round trip and return what each of them answered."""
    cursors = [psycopg.Cursor(connection, row_factory=tuple_row) for _ in steps]
    with connection.pipeline():
        for cursor, (statement, parameters) in zip(cursors, steps, strict=True):
            if foreign:
                register_loaders(cursor)
            prepare = False if isinstance(statement, Replanned) else None
            cursor.execute(statement, parameters, prepare=prepare, binary=True)
    return [Result(rows_of(cursor), cursor.rowcount) for cursor in cursors]
