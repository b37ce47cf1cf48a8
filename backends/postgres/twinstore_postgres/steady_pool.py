"""The pool of our own connections, in which nothing stays locked whatever the handler of a signal raises.

Whoever waits for a connection has a condition, and whoever has one opened puts that into a queue. In the
standard library both take their lock by a method in Python. A handler that raises right after that leaves the
lock taken for ever: the thread of the pool stands still before it, with the lock of the pool, and every later
call stands still before that, without any limit.
"""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue
from threading import Condition
from typing import TYPE_CHECKING, Any

from psycopg_pool import ConnectionPool
from typing_extensions import override

from twinstore.forks import ForkSafeLock
from twinstore_postgres.connecting import Connection

if TYPE_CHECKING:
    from psycopg_pool.pool import WaitingClient

    class Waiting(deque[WaitingClient[Connection]]):
        """What the pool knows of those who wait."""

else:
    Waiting = deque

__all__ = ["SteadyPool"]


class OneCondition(ForkSafeLock):  # type: ignore[misc]  # final in the stubs only
    """A condition that is its own lock: its ``with`` statement is that of the interpreter's lock."""

    def __init__(self) -> None:
        """Start free."""
        super().__init__()
        self._condition = Condition(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody notifies; return whether somebody has."""
        try:
            return self._condition.wait(timeout)
        except BaseException:
            # It may have been interrupted after it gave the lock away for its pause.
            if not self.is_mine:
                self.acquire()
            raise

    def notify_all(self) -> None:
        """Wake all."""
        self._condition.notify_all()


class SteadyWaiting(Waiting):
    """Those who wait for a connection, each with such a condition."""

    @override
    def append(self, item: WaitingClient[Connection], /) -> None:
        """Let one wait who has not begun to."""
        one: Any = OneCondition()
        item._cond = one  # noqa: SLF001  # of psycopg, which gives no other way
        super().append(item)


class SteadyPool(ConnectionPool[Connection]):
    """A pool of psycopg with such conditions, and a queue of tasks that is the interpreter's."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # those of psycopg
        """Take what psycopg takes."""
        super().__init__(*args, **options)
        self._waiting = SteadyWaiting()

    @override
    def _start_workers(self) -> None:
        tasks: Any = SimpleQueue()
        self._tasks = tasks
        super()._start_workers()
