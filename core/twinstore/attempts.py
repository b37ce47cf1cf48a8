"""One attempt for all who need its outcome at the same time.

What takes long while a server is silent, such as the first connection of a storage, must not be tried by one
caller after the other: the last of many would wait for the sum of all attempts.
"""

from __future__ import annotations

import copy
from concurrent.futures import Future
from contextvars import copy_context
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SharedAttempt", "fresh"]

T = TypeVar("T")


class SharedAttempt(Renewable, Generic[T]):
    """Lets those who come while an attempt is under way have its outcome."""

    __slots__ = ("_current", "_lock")

    def __init__(self) -> None:
        """Nothing is attempted yet."""
        self._lock = Lock()
        self._current: Future[T] | None = None
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Wait for nothing in a forked child: the thread of the attempt stayed in the parent."""
        self._lock = Lock()
        self._current = None

    def run(self, action: Callable[[], T], seconds: float | None = None) -> T:
        """Return what ``action`` returns, or the outcome of the attempt that is under way.

        Args:
            action: makes the attempt; it must not come back here.
            seconds: how long to wait. The attempt itself goes on, for those who come next; without a limit
                it is made in the thread of the caller.

        Raises:
            TimeoutError: the attempt has not ended within ``seconds``.
            TwinstoreError: it failed; each caller gets an exception of its own.
        """
        end = None if seconds is None else monotonic() + seconds
        while True:
            with self._lock:
                attempt = self._current
                first = attempt is None
                if attempt is None:
                    attempt = self._current = Future()
            if first and end is None:
                return self._make(attempt, action)
            if first:
                work = copy_context().run
                Thread(target=work, args=(self._settle, attempt, action), daemon=True).start()
            error = attempt.exception(None if end is None else max(0.0, end - monotonic()))
            if error is None:
                return attempt.result()
            if isinstance(error, TwinstoreError):
                raise fresh(error)
            # An interrupted thread, or a mistake in the program: it says nothing to anybody else.
            if first:
                raise error

    def _make(self, attempt: Future[T], action: Callable[[], T]) -> T:
        try:
            result = action()
        except BaseException as error:
            self._end(attempt)
            attempt.set_exception(error)
            raise
        self._end(attempt)
        attempt.set_result(result)
        return result

    def _settle(self, attempt: Future[T], action: Callable[[], T]) -> None:
        """Make the attempt on a thread of its own; whoever waits is told how it ended."""
        try:
            self._make(attempt, action)
        except BaseException:  # noqa: BLE001  # told by the attempt; raised here it would only be printed
            return

    def _end(self, attempt: Future[T]) -> None:
        # Before the outcome is told: whoever comes after that makes another attempt.
        with self._lock:
            if self._current is attempt:
                self._current = None


def fresh(error: TwinstoreError) -> TwinstoreError:
    """Return an equal exception: one that several threads raise would collect the traces of all of them."""
    found = copy.copy(error)
    found.__cause__ = error.__cause__
    return found
