"""Connections past the pool, and past a transaction pooler: for bulk work, locks and migrations."""

from __future__ import annotations

from functools import partial
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakSet, finalize

from typing_extensions import override

from twinstore.errors import ConfigurationError, Outcome, UnavailableError
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.runtime.forks import Renewable, renew_in_child
from twinstore_postgres.connection.cursors import own_cursor
from twinstore_postgres.connection.errors import NO_SUBJECT, OF_PSYCOPG, translate, translated
from twinstore_postgres.connection.idle import IdleConnections
from twinstore_postgres.connection.roles import RoleGuard, check_role, refuse_unsafe
from twinstore_postgres.connection.target import BULK, LOCKS, MIGRATIONS, check_version, direct_target
from twinstore_postgres.connection.undocumented import bulk_connection
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import SecretStr

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.connection.errors import Subject
    from twinstore_postgres.connection.target import Target, Use
    from twinstore_postgres.mapping.codec import Values
    from twinstore_postgres.settings import PostgresSettings


class Direct:
    """Where the server itself is, as the settings give it."""

    def __init__(self, settings: PostgresSettings, pooled: Target, *, read_only: bool) -> None:
        """Take the settings and where the pool connects to.

        Raises:
            ConfigurationError: a connection string that cannot be read, or that leads to the pooler.
        """
        self._settings = settings
        self._pooled = pooled
        self._guard = RoleGuard()
        self._bulk = self.target_for(BULK, None, read_only=read_only)

    @property
    def place(self) -> str:
        """Host and database of bulk work, without anything secret; those of the pool where it has none."""
        settings = self._settings
        given = not settings.transaction_pooler or settings.direct_connection_string is not None
        return (self._bulk() if given else self._pooled).place

    def guard(self, module: ModuleSpec[object]) -> None:
        """Check before the next use that row-level security of a module is in force and binds the role."""
        # Also where it is the role of the pool: what the pool has checked may have been another module.
        self._guard.add(module)

    def target_for(self, use: Use, own: SecretStr | None, *, read_only: bool = False) -> Callable[[], Target]:
        """Return a function that gives the target of connections that a transaction pooler cannot carry.

        A given address is checked here. A missing one is reported only when a caller asks for it: a service
        without locks needs no address for them.

        Raises:
            ConfigurationError: a connection string that cannot be read, or that leads to the pooler.
        """
        settings = self._settings
        if own is None and settings.direct_connection_string is None:
            # Not for migrations, because the pool may be that of a source, which is only read.
            shared = use is not MIGRATIONS or settings.connection_string is None
            if shared and not settings.transaction_pooler:
                return lambda: self._pooled
            return partial(direct_target, use, settings, None, pooled=self._pooled)
        target = direct_target(use, settings, own, pooled=self._pooled, read_only=read_only)
        return lambda: target

    def refuse_missing(self) -> None:
        """Refuse bulk work before anything is done.

        Raises:
            ConfigurationError: behind a transaction pooler no other address is given.
        """
        self._bulk()

    def connect(self) -> Connection:
        """Open a connection for bulk work; the caller closes it."""
        connection = bulk_connection(self._bulk(), pipeline=self._settings.pipeline)
        if self._guard.schemas:
            try:
                with translated(outcome=Outcome.NOT_APPLIED):
                    self._guard.check(connection)
                refuse_unsafe(self._guard.unsafe)
            except BaseException:
                connection.close()
                raise
        return connection


# Connections outside the pool, each with one owner, for state that lasts as long as its connection.
#
#     open -> an idle connection, or a new one -> its owner -> give_back -> idle
#
# They bypass a transaction pooler, which would give the connection to another client between two statements.
# Their number is bounded: requests must never lack a connection of the server because of them.


Slots: TypeAlias = SimpleQueue[None]
# When the server ends an idle connection, and logs an error: longer than a running process keeps one.
IDLE_MS: Final = 90_000
# A copy that writes the row right now must not keep a caller waiting who wants one attempt.
ROW_WAIT_MS: Final = 500
SETTINGS: Final = {
    "app.tenant_id": SYSTEM_TENANT,
    "idle_session_timeout": IDLE_MS,
    "lock_timeout": ROW_WAIT_MS,
}


class DedicatedConnections(Renewable):
    """Opens such connections, and closes them with the storage."""

    def __init__(self, settings: PostgresSettings, direct: Direct, module: ModuleSpec[object]) -> None:
        """Take the settings, the connections past the pool, and the module whose tables the role might own.

        Raises:
            ConfigurationError: a connection string that cannot be read.
        """
        self._target = direct.target_for(LOCKS, settings.lock_connection_string)
        self._module = module
        self._safe = settings.allow_unsafe_role
        self._most = settings.lock_connections_max
        self._closed = False
        self._open: WeakSet[DedicatedConnection] = WeakSet()
        self._free_slots = connection_slots(self._most)
        self._idle = IdleConnections()
        renew_in_child(self)

    def open(self, seconds: float) -> DedicatedConnection:
        """Return a new or an idle connection, in system scope and in autocommit mode.

        Args:
            seconds: how long to wait while as many are in use as may be.

        Raises:
            UnavailableError: as many as may be stayed in use, or the server does not answer.
            ConfigurationError: wrong password or database, unsafe role, closed storage.
        """
        self._refuse_closed()
        free_slots = self._free_slots
        try:
            # Nothing waits longer, and the interpreter refuses to.
            free_slots.get(timeout=min(max(0.0, seconds), TIMEOUT_MAX))
        except Empty:
            raise UnavailableError(
                f"All {self._most} connections for locks (LockConnectionsMax) stayed in use for "
                f"{seconds:g} s; raise LockConnectionsMax, or hold fewer locks at a time.",
                outcome=Outcome.NOT_APPLIED,
                driver=DRIVER,
            ) from None
        try:
            connection = self._idle.take() or self._new_connection()
        except BaseException:
            free_slots.put(None)
            raise
        opened = DedicatedConnection(connection, free_slots, self._keep)
        self._open.add(opened)
        if self._closed:  # meanwhile, and the thread that closed the others may have missed this one
            opened.close()
        self._refuse_closed()
        return opened

    @override
    def renew(self) -> None:
        """Start without a connection in a forked child; those that are open are the parent's."""
        self._open = WeakSet()
        self._free_slots = connection_slots(self._most)

    def close(self) -> None:
        """Close all of them, and open no others."""
        self._closed = True
        for connection in tuple(self._open):
            connection.close()
        self._idle.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConfigurationError("This storage is closed; open a new one.", driver=DRIVER)

    def _keep(self, connection: Connection) -> None:
        """Keep a connection for the next owner, unless the role must be checked again."""
        if self._safe:
            self._idle.give(connection)
        else:
            connection.close()
        if self._closed:  # meanwhile, and the thread that closed the others may have missed this one
            self._idle.close()

    def _new_connection(self) -> Connection:
        """Return a connection whose server is new enough and whose role is safe; the pool checks its own."""
        target = self._target().with_settings(**SETTINGS)
        connection = target.connect()
        # The first owner may be the last one, and to prepare is a round trip more.
        connection.prepare_threshold = 1
        if self._safe:
            return connection
        try:
            with translated(outcome=Outcome.NOT_APPLIED):
                check_version(connection)
                target.check_options(connection)
                # Its own options name a tenant, so the session does not show with what others begin.
                found = check_role(connection, self._module, fresh=False, own=False)
                refuse_unsafe(found.unsafe)
                self._safe = found.exist
        except BaseException:
            connection.close()
            raise
        return connection


class DedicatedConnection:
    """One connection with one owner; closed also when its owner forgets it."""

    def __init__(self, connection: Connection, free_slots: Slots, keep: Callable[[Connection], None]) -> None:
        self._connection = connection
        self._free_slots = free_slots
        self._keep = keep
        # Only by the first of: the owner, the storage, the garbage collector, the end of the process.
        self._end = finalize(self, close_and_release, connection, free_slots)

    def one(
        self, statement: bytes, values: Mapping[str, object], subject: Subject = NO_SUBJECT
    ) -> Values | None:
        """Execute a statement in one round trip, in a separate transaction; return its first row.

        Raises:
            UnavailableError: the connection was lost, and with it the state that it held; the outcome says
                ``UNKNOWN`` then, and otherwise that nothing was done.
        """
        cursor = own_cursor(self._connection)
        try:
            return cursor.execute(statement, values).fetchone()
        except OF_PSYCOPG as error:
            failure = translate(error, subject, Outcome.NOT_APPLIED)
            # Also where the server says that it did nothing: what the connection stood for is gone with it.
            if self._connection.closed and isinstance(failure, UnavailableError):
                failure.outcome = Outcome.UNKNOWN
            raise failure from error

    def give_back(self) -> None:
        """Keep it for another owner. Nothing of this one may remain on the server."""
        if self._end.detach() is not None:
            try:
                self._keep(self._connection)
            finally:
                self._free_slots.put(None)

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._end()


def close_and_release(connection: Connection, free_slots: Slots) -> None:
    """Close a connection and let another one be opened; in a forked child neither reaches the parent."""
    connection.close()
    free_slots.put(None)


def connection_slots(number: int) -> Slots:
    """Return what counts how many connections may still be opened.

    Not a semaphore: the handler of a signal could leave its lock taken for ever, and the collector, which
    gives connections up, could come in the middle of it.
    """
    free_slots: Slots = SimpleQueue()
    for _ in range(number):
        free_slots.put(None)
    return free_slots
