"""The pool of our own clients, whose lock is given back whatever the handler of a signal raises.

A condition of the standard library takes its lock by a method in Python. A handler that raises right after
that leaves the lock taken for ever: every later call would stand still, without any limit. A lock of the
interpreter is taken and given back without a step in between.
"""

from __future__ import annotations

from _thread import LockType
from contextlib import suppress
from threading import Condition
from typing import TYPE_CHECKING, Any, Final

from pymongo.synchronous.pool import Pool

from twinstore.forks import ForkSafeLock

if TYPE_CHECKING:
    from bson import ObjectId
    from pymongo.pool_options import PoolOptions

__all__ = ["SteadyPool"]

REPLACED: Final = {"lock", "size_cond", "_max_connecting_cond"}


class SharingCondition:
    """A condition on a lock that others have, too; see :func:`condition_on` for its ``with`` statement."""

    def __init__(self, lock: ForkSafeLock) -> None:
        """Take the lock."""
        self._condition = Condition(lock)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody notifies; return whether somebody has."""
        try:
            return self._condition.wait(timeout)
        except BaseException:
            # Perhaps it was this thread that was notified, and it will not look.
            with suppress(RuntimeError):
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
        super().__init__(address, options, is_sdam, client_id)
        locks = {name for name, value in vars(self).items() if isinstance(value, (Condition, LockType))}
        if locks != REPLACED:
            # Another release of pymongo, which must not get two locks for what it takes for one.
            return
        lock: Any = ForkSafeLock()
        size: Any = condition_on(lock)
        connecting: Any = condition_on(lock)
        self.lock, self.size_cond, self._max_connecting_cond = lock, size, connecting
