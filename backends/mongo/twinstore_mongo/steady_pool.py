"""The pool of our own clients, which stays as it should be whatever the handler of a signal raises.

A condition of the standard library takes its lock by a method in Python. A handler that raises right after
that leaves the lock taken for ever: every later call would stand still, without any limit. A lock of the
interpreter is taken and given back without a step in between.

A connection on which something was asked whose answer was not read is closed: pymongo would lend it to the
next call, which would find the answer to another question. One that was lent and that nobody has any more
counts no longer, or the pool would have one place less for ever.
"""

from __future__ import annotations

from _thread import LockType
from collections import deque
from threading import Condition, local
from typing import TYPE_CHECKING, Any, Final

from pymongo.monitoring import ConnectionClosedReason
from pymongo.synchronous.pool import Connection, Pool
from typing_extensions import override

from twinstore.forks import ForkSafeLock

if TYPE_CHECKING:
    from bson import ObjectId
    from pymongo.pool_options import PoolOptions

__all__ = ["SteadyPool", "pool_class"]

REPLACED: Final = {"lock", "size_cond", "_max_connecting_cond"}


class SharingCondition:
    """A condition on a lock that others have, too; see :func:`condition_on` for its ``with`` statement."""

    def __init__(self, lock: ForkSafeLock) -> None:
        """Take the lock."""
        self._lock = lock
        self._condition = Condition(lock)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody notifies; return whether somebody has."""
        try:
            return self._condition.wait(timeout)
        except BaseException:
            # The standard library may have been interrupted after it gave the lock away for its pause.
            if not self._lock.is_mine:
                self._lock.acquire()
            # Perhaps it was this thread that was notified, and it will not look.
            self._condition.notify()
            raise

    def notify(self, n: int = 1) -> None:
        """Wake those who have waited longest."""
        self._condition.notify(n)

    def notify_all(self) -> None:
        """Wake all."""
        self._condition.notify_all()


def condition_on(lock: ForkSafeLock) -> SharingCondition:
    """Return a condition on a lock; its ``with`` statement is that of the lock, with no step in Python."""
    # Found on the class, as the interpreter looks for them; so each condition has one of its own.
    own = {"__enter__": lock.__enter__, "__exit__": lock.__exit__}
    made: type[SharingCondition] = type("ConditionOnLock", (SharingCondition,), own)
    return made(lock)


class SteadyConnection(Connection):
    """A connection that knows whether an answer is to come on it, and whether somebody should have it."""

    # Of the class: pymongo makes the connection, and its first messages are sent before it is one of ours.
    is_asked = False
    is_lent = False
    # How often it was lent; only of earlier releases.
    loans = 0

    def __del__(self) -> None:
        """Tell the pool of one that got lost on the way from it, or back."""
        # What the pool could not lend after all is closed, and counts no longer.
        if self.is_lent or (self.active and not self.closed):
            pool = self.pool_ref()
            if isinstance(pool, SteadyPool):
                # Not more: a finaliser may run in the middle of any step, also of one of the pool.
                pool.lost.append(self.cancel_context)
            self.close_conn(None)

    @override
    def send_message(self, message: bytes, max_doc_size: int) -> None:
        """Send a message."""
        self.is_asked = True
        super().send_message(message, max_doc_size)

    @override
    def receive_message(self, request_id: int | None) -> Any:
        """Return the next answer."""
        answer = super().receive_message(request_id)
        self.is_asked = False
        return answer


class SteadyPool(Pool):
    """A pool of pymongo with such a lock in the place of its lock, and two conditions on it."""

    def __init__(
        self,
        address: tuple[str, int | None],
        options: PoolOptions,
        is_sdam: bool = False,  # noqa: FBT001, FBT002  # of pymongo
        client_id: ObjectId | None = None,
    ) -> None:
        """Take what pymongo gives."""
        self.lost = deque[object]()
        super().__init__(address, options, is_sdam, client_id)
        locks = {name for name, value in vars(self).items() if isinstance(value, (Condition, LockType))}
        if locks != REPLACED:
            # Another release of pymongo, which must not get two locks for what it takes for one.
            return
        lock: Any = ForkSafeLock()
        size: Any = condition_on(lock)
        connecting: Any = condition_on(lock)
        self.lock, self.size_cond, self._max_connecting_cond = lock, size, connecting

    @override
    def connect(self, handler: Any = None) -> Connection:
        """Connect, and return a connection that knows what was asked on it."""
        made = super().connect(handler)
        if type(made) is Connection:
            made.__class__ = SteadyConnection
        return made

    @override
    def _get_conn(self, *given: Any, **named: Any) -> Connection:
        self._forget_lost()
        found = super()._get_conn(*given, **named)
        if isinstance(found, SteadyConnection):
            found.is_lent = True
        return found

    def _forget_lost(self) -> None:
        """Count what got lost no longer."""
        while self.lost:
            with self.size_cond:
                try:
                    context: Any = self.lost.popleft()
                except IndexError:  # another thread was faster
                    return
                self.active_contexts.discard(context)
                self.requests -= 1
                self.active_sockets -= 1
                self.operation_count -= 1
                self.size_cond.notify()

    @override
    def checkin(self, conn: Connection) -> None:
        """Take a connection back; one whose answer nobody has read is closed."""
        if getattr(conn, "is_asked", False):
            conn.close_conn(ConnectionClosedReason.ERROR)
        super().checkin(conn)
        if isinstance(conn, SteadyConnection):
            conn.is_lent = False

    @override
    def _checkin_apply(self, conn: Any, txn: bool, cursor: bool, forked: bool) -> Any:
        """Count a connection no longer; the lowest releases of pymongo have no such step."""
        # It does that also where it is interrupted, and nobody may do it once more.
        if isinstance(conn, SteadyConnection):
            conn.is_lent = False
        return super()._checkin_apply(conn, txn, cursor, forked)


class Returning(local):
    """What a thread gives back and what was not counted yet."""

    connection: SteadyConnection | None = None


class EarlierPool(SteadyPool):
    """The same for releases of pymongo that count a connection no longer in the course of a longer method.

    They give it to the next call first. Interrupted in between they would have one place less for ever, and
    interrupted after it nobody would know that it is counted.
    """

    _requests = 0

    def __init__(
        self,
        address: tuple[str, int | None],
        options: PoolOptions,
        is_sdam: bool = False,  # noqa: FBT001, FBT002  # of pymongo
        client_id: ObjectId | None = None,
    ) -> None:
        """Take what pymongo gives."""
        self._returning = Returning()
        super().__init__(address, options, is_sdam, client_id)

    @property
    def requests(self) -> int:
        """How many connections are lent or being made."""
        return self._requests

    @requests.setter
    def requests(self, number: int) -> None:
        returned = self._returning.connection
        if returned is not None and number < self._requests:
            returned.is_lent = False
            self._returning.connection = None
        self._requests = number

    @override
    def _get_conn(self, *given: Any, **named: Any) -> Connection:
        found = super()._get_conn(*given, **named)
        if isinstance(found, SteadyConnection):
            found.loans += 1
        return found

    @override
    def checkin(self, conn: Connection) -> None:
        """Take a connection back; one that was not counted then is counted as one that got lost."""
        if not isinstance(conn, SteadyConnection):
            super().checkin(conn)
            return
        loans = conn.loans
        self._returning.connection = conn
        try:
            super().checkin(conn)
        finally:
            if self._returning.connection is not None:
                self._returning.connection = None
                self._lose(conn, loans)

    def _lose(self, conn: SteadyConnection, loans: int) -> None:
        # It is not closed: another call may have it by now, and one that waits may go on waiting.
        self.lost.append(conn.cancel_context)
        if conn.loans == loans:
            conn.is_lent = False


def pool_class() -> type[SteadyPool]:
    """Return the class of pools for the release of pymongo that is installed."""
    return SteadyPool if hasattr(Pool, "_checkin_apply") else EarlierPool
