"""One attempt at a time for all who need its outcome.

What takes long while a server is silent, such as the first connection of a storage, must not be tried by one
caller after the other: the last of many would wait for the sum of all attempts.
"""

from __future__ import annotations

import copy
from contextvars import copy_context
from threading import RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore.runtime.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class AttemptThread(Thread, Generic[T]):
    """An attempt in a separate thread, for callers that wait for a limited time."""

    def __init__(self, attempt: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._attempt = attempt
        self._context = copy_context()
        self._results: list[T] = []
        self._error: BaseException | None = None

    @override
    def run(self) -> None:
        try:
            self._results.append(self._context.run(self._attempt))
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            self._error = error

    def result(self, seconds: float) -> T:
        """Return what the attempt returned.

        Raises:
            TimeoutError: it has not ended within ``seconds``.
        """
        self.join(seconds)
        if self.is_alive():
            raise TimeoutError
        if self._error is not None:
            raise copy_error(self._error) if isinstance(self._error, TwinstoreError) else self._error
        return self._results[0]


class SingleFlight(Renewable, Generic[T]):
    """Runs one attempt at a time; callers that waited for it share its outcome."""

    __slots__ = ("_failed_at", "_failure", "_lock", "_thread", "_thread_lock")

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Wait for nothing in a forked child: the thread of the attempt stayed in the parent."""
        # Re-entrant: a signal handler may make a call during the attempt of the same thread.
        self._lock = RLock()
        self._thread_lock = RLock()
        self._failure: TwinstoreError | None = None
        self._failed_at = 0.0
        self._thread: AttemptThread[T] | None = None

    def run(self, action: Callable[[], T], seconds: float | None = None) -> T:
        """Return what ``action`` returns.

        Args:
            action: makes the attempt, unless an earlier one has made it unnecessary.
            seconds: how long to wait. The attempt itself goes on in a thread, for those who come next;
                without a limit it is made in the thread of the caller.

        Raises:
            TimeoutError: the attempt has not ended within ``seconds``.
            TwinstoreError: it failed, or the one did that was waited for.
        """
        if seconds is not None:
            return self._joined(action).result(seconds)
        begun = monotonic()
        with self._lock:
            if self._failure is not None and self._failed_at > begun:
                raise copy_error(self._failure)
            try:
                result = action()
            except TwinstoreError as error:
                self._failure, self._failed_at = copy_error(error), monotonic()
                raise
            self._failure = None
            return result

    def _joined(self, action: Callable[[], T]) -> AttemptThread[T]:
        """Return the attempt that is under way in a thread, or a new one."""
        with self._thread_lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = AttemptThread(lambda: self.run(action))
                self._thread.start()
            return self._thread


def copy_error(error: TwinstoreError) -> TwinstoreError:
    """Return an equal exception: one that several threads raise would collect the traces of all of them."""
    found = copy.copy(error)
    found.__cause__ = error.__cause__
    return found
