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
from twinstore.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SharedAttempt"]

T = TypeVar("T")


class SharedAttempt(Renewable, Generic[T]):
    """Lets callers make an attempt one after the other; one that fails fails for all that waited for it."""

    __slots__ = ("_failed", "_failure", "_lock", "_thread")

    def __init__(self) -> None:
        """Nothing is attempted yet."""
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Wait for nothing in a forked child: the thread of the attempt stayed in the parent."""
        # Re-entrant: the handler of a signal may make a call during the attempt of its own thread.
        self._lock = RLock()
        self._failure: TwinstoreError | None = None
        self._failed = 0.0
        self._thread: Thread | None = None

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
            return self._run_aside(action, seconds)
        begun = monotonic()
        with self._lock:
            if self._failure is not None and self._failed > begun:
                raise fresh(self._failure)
            try:
                result = action()
            except TwinstoreError as error:
                self._failure, self._failed = fresh(error), monotonic()
                raise
            self._failure = None
            return result

    def _run_aside(self, action: Callable[[], T], seconds: float) -> T:
        end = monotonic() + seconds
        if self._thread is not None:
            ended(self._thread, seconds)
        results: list[T] = []
        errors: list[BaseException] = []

        def attempt() -> None:
            try:
                results.append(self.run(action))
            except BaseException as error:  # noqa: BLE001  # raised where it is waited for
                errors.append(error)

        thread = Thread(target=copy_context().run, args=(attempt,), daemon=True)
        thread.start()
        self._thread = thread
        ended(thread, max(0.0, end - monotonic()))
        if errors:
            raise errors.pop()
        return results[0]


def ended(thread: Thread, seconds: float) -> None:
    """Wait for the end of a thread.

    Raises:
        TimeoutError: it has not ended within ``seconds``.
    """
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError


def fresh(error: TwinstoreError) -> TwinstoreError:
    """Return an equal exception: one that several threads raise would collect the traces of all of them."""
    found = copy.copy(error)
    found.__cause__ = error.__cause__
    return found
