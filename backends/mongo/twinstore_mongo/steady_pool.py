"""The pool of our own clients, whose lock is given back whatever the handler of a signal raises.

A condition of the standard library takes its lock by a method in Python. A handler that raises right after
that leaves the lock taken for ever: every later call would stand still, without any limit. A lock of the
interpreter is taken and given back without a step in between.
"""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, Any

from pymongo.synchronous.pool import Pool

from twinstore.forks import ForkSafeLock

if TYPE_CHECKING:
    from bson import ObjectId
    from pymongo.pool_options import PoolOptions

__all__ = ["SteadyPool"]


class LockWithCondition(ForkSafeLock):  # type: ignore[misc]  # final in the stubs only
    """A lock that is a condition, too, for all who wait for whatever reason."""

    def __init__(self) -> None:
        """Start free."""
        super().__init__()
        self._condition = Condition(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody notifies; return whether somebody has."""
        return self._condition.wait(timeout)

    def notify(self, n: int = 1) -> None:
        """Wake all, because those who wait do so for different reasons; each looks anew."""
        del n
        self._condition.notify_all()

    def notify_all(self) -> None:
        """Wake all."""
        self._condition.notify_all()


class SteadyPool(Pool):
    """A pool of pymongo with such a lock in the place of its lock and of the two conditions on it."""

    def __init__(
        self,
        address: tuple[str, int | None],
        options: PoolOptions,
        is_sdam: bool = False,  # noqa: FBT001, FBT002  # of pymongo
        client_id: ObjectId | None = None,
    ) -> None:
        """Take what pymongo gives."""
        super().__init__(address, options, is_sdam, client_id)
        lock: Any = LockWithCondition()
        self.lock = self.size_cond = self._max_connecting_cond = lock
