"""How repositories reach the server: call by call, in a session, in a unit, in a caller's transaction.

The tenant is the setting ``app.tenant_id`` of one transaction and never outlives it. A call that is made of
known statements costs one round trip; how it becomes one transaction is up to the transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from psycopg.pq import TransactionStatus
from typing_extensions import override

from twinstore.access.protocol import Binding
from twinstore.access.retry import retry
from twinstore.access.unit_state import UnitState
from twinstore.errors import Outcome, TwinstoreError
from twinstore_postgres.connection.batch import Result, Step
from twinstore_postgres.connection.errors import NO_SUBJECT, OF_PSYCOPG, Subject, translate, translated
from twinstore_postgres.connection.roles import check_role
from twinstore_postgres.connection.transaction import (
    SET_TENANT,
    PooledTransaction,
    Transaction,
    TransactionSteps,
)
from twinstore_postgres.connection.undocumented import check_application_connection
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.access.scope import Scope
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.connection.direct import DedicatedConnections
    from twinstore_postgres.connection.transaction import ConnectionSource, Transport
    from twinstore_postgres.mapping.codec import Values

__all__ = [
    "Execution",
    "JoinedExecution",
    "Result",
    "SessionExecution",
    "Step",
    "UnboundExecution",
    "UnitExecution",
]


R = TypeVar("R")

# What the caller of a joined transaction had set is put back after each call.
PUSH_TENANT: Final = (
    b"SELECT set_config('twinstore.caller_tenant',"
    b" coalesce(current_setting('app.tenant_id', true), ''), true),"
    b" set_config('app.tenant_id', %s, true)"
)
POP_TENANT: Final = (
    b"SELECT set_config('app.tenant_id', current_setting('twinstore.caller_tenant', true), true)"
)


class Execution(ABC):
    """The access of one set of repositories to the server.

    Attributes:
        dedicated: connections for what lasts as long as its connection does; ``None`` where calls are bound
            to a connection that they have.
    """

    dedicated: DedicatedConnections | None = None

    def __init__(self, binding: Binding) -> None:
        """Take what the calls are bound to; in a unit, only its whole transaction can be repeated."""
        self._binding = binding

    @property
    def binding(self) -> Binding:
        """What the calls are bound to."""
        return self._binding

    def retry(self, action: Callable[[], R]) -> R:
        """Return the result of a unit, repeated after it lost against other writers."""
        return action() if self.binding.in_unit else retry(action)

    def one(self, tenant: str, subject: Subject, step: Step) -> Values | None:
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
        with self.unit(tenant, NO_SUBJECT) as steps:
            if not isinstance(steps, Transaction):
                yield self
                return
            state = UnitState()
            try:
                yield UnitExecution(steps, self.binding.scope, state, read_only=False)
                state.check_commit()
            finally:
                state.closed = True

    def finish(self, tenant: str, subject: Subject, steps: Sequence[Step], *, unread: bool) -> list[Result]:
        """Execute the last statements of a step in a transaction that goes on."""
        del unread
        return self._run(tenant, subject, steps, Outcome.UNKNOWN) if steps else []

    @abstractmethod
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        """Execute statements with the tenant set, as one transaction where none is open."""


class UnboundExecution(Execution):
    """Each call on a connection that is checked out for it."""

    def __init__(
        self, server: ConnectionSource, scope: Scope, dedicated: DedicatedConnections | None = None
    ) -> None:
        super().__init__(Binding(DRIVER, scope, UnitState(unbound=True)))
        self._server = server
        self._transport = server.transport
        self.dedicated = dedicated

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        with self._server.connection() as connection:
            try:
                return self._transport.call(connection, tenant, steps)
            except OF_PSYCOPG as error:
                raise translate(error, subject, outcome) from error

    @override
    def unit(self, tenant: str, subject: Subject) -> AbstractContextManager[TransactionSteps]:
        return PooledTransaction(self._server, tenant, subject)


class SessionExecution(Execution):
    """Each call on the one connection of a session.

    Behind a transaction pooler that is a connection to the pooler: between two calls it holds none of the
    server, and a later call still sees what an earlier one wrote, because there is one primary.
    """

    def __init__(self, connection: Connection, scope: Scope, state: UnitState, transport: Transport) -> None:
        """Take the connection; it is in autocommit mode."""
        super().__init__(Binding(DRIVER, scope, state))
        self._connection = connection
        self._transport = transport

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        with translated(subject, outcome=outcome):
            if self._is_in_step:
                return self._transport.send(self._connection, steps, ((SET_TENANT, (tenant,)),))
            return self._transport.call(self._connection, tenant, steps)

    @override
    def unit(self, tenant: str, subject: Subject) -> AbstractContextManager[TransactionSteps]:
        if self._is_in_step:
            return nullcontext(NestedSteps(self, tenant, subject))
        return Transaction(self._connection, tenant, subject, transport=self._transport)

    @property
    def _is_in_step(self) -> bool:
        """Whether a rule calls the session in the middle of a step, whose transaction must not be ended."""
        return self._connection.pgconn.transaction_status != TransactionStatus.IDLE


class UnitExecution(Execution):
    """Every call inside one transaction of the caller; any error of the store ends its use."""

    def __init__(
        self,
        transaction: Transaction,
        scope: Scope,
        state: UnitState,
        *,
        read_only: bool,
        fails_at_once: bool = True,
    ) -> None:
        """Take the transaction; an error may be raised by a later call unless it ``fails_at_once``."""
        super().__init__(Binding(DRIVER, scope, state, read_only=read_only, in_unit=True))
        self._transaction = transaction
        self._fails_at_once = fails_at_once

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        try:
            return self._transaction.run(*steps, subject=subject, tenant=tenant)
        except TwinstoreError:
            # The server has given the transaction up, whatever the caller makes of the error.
            self.binding.state.abort()
            raise

    @override
    def finish(self, tenant: str, subject: Subject, steps: Sequence[Step], *, unread: bool) -> list[Result]:
        if self._fails_at_once or not unread:
            return super().finish(tenant, subject, steps, unread=unread)
        self._transaction.later(*steps)
        return []

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[TransactionSteps]:
        yield NestedSteps(self, tenant, subject)


@dataclass(frozen=True, slots=True)
class NestedSteps(TransactionSteps):
    """Statements that go on in the transaction that is open."""

    execution: Execution
    tenant: str
    subject: Subject

    @property
    @override
    def own(self) -> bool:
        """Whether these steps own the transaction: never, because the caller ends it."""
        return False

    @override
    def run(self, *steps: Step, subject: Subject | None = None) -> list[Result]:
        return self.execution._run(self.tenant, subject or self.subject, steps, Outcome.UNKNOWN)  # noqa: SLF001  # an execution and its steps are one unit

    @override
    def finish(self, *steps: Step, subject: Subject | None = None, unread: bool = False) -> list[Result]:
        """Execute the last statements; the transaction goes on."""
        return self.execution.finish(self.tenant, subject or self.subject, steps, unread=unread)


class JoinedExecution(Execution):
    """Every call inside the transaction of a caller, whose own tenant setting is put back each time.

    On a connection in autocommit mode outside a transaction each call is its own, as in a session.
    """

    def __init__(  # what joins two parties
        self,
        connection: Connection,
        scope: Scope,
        state: UnitState,
        transport: Transport,
        *,
        module: ModuleSpec[object],
        safe: bool,
    ) -> None:
        """Take the connection of the caller; its role is checked at the first call unless it is ``safe``."""
        super().__init__(Binding(DRIVER, scope, state))
        self._connection = connection
        self._transport = transport
        self._module = module
        self._safe = safe

    @property
    @override
    def binding(self) -> Binding:
        idle = self._connection.info.transaction_status == TransactionStatus.IDLE
        return replace(self._binding, in_unit=not (self._connection.autocommit and idle))

    @override
    def _run(self, tenant: str, subject: Subject, steps: Sequence[Step], outcome: Outcome) -> list[Result]:
        self._check_role()
        # In the same round trip: between two calls the caller's own statements see the caller's tenant.
        take, give_back = ((PUSH_TENANT, (tenant,)),), ((POP_TENANT, ()),)
        with translated(subject, outcome=outcome):
            if not self.binding.in_unit:
                return self._transport.call(self._connection, tenant, steps)
            return self._transport.send(self._connection, steps, take, give_back)

    @override
    @contextmanager
    def unit(self, tenant: str, subject: Subject) -> Iterator[TransactionSteps]:
        self._check_role()
        if self.binding.in_unit:
            yield NestedSteps(self, tenant, subject)
        else:
            with Transaction(self._connection, tenant, subject, transport=self._transport) as transaction:
                yield transaction

    def _check_role(self) -> None:
        with translated(outcome=Outcome.NOT_APPLIED):
            check_application_connection(self._connection)
        # Only here a role can be met that the pool has not checked: that of the caller's connection.
        if not self._safe:
            with translated(outcome=Outcome.NOT_APPLIED):
                found = check_role(self._connection, self._module)
            found.refuse()
            self._safe = found.exist
