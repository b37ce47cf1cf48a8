"""One attempt for all who need its outcome at the same time.

What takes long while a server is silent, such as the first connection of a storage, must not be tried by one
caller after the other: the last of many would wait for the sum of all attempts.
"""

from __future__ import annotations

import copy
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import ref

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore.forks import ForkSafeLock, Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SharedAttempt", "fresh"]

T = TypeVar("T")

# How often those who wait look whether the attempt is still made.
LOOK_SECONDS: Final = 0.5


class Hold:
    """What whoever makes an attempt has in hand until it has ended, one way or another."""

    __slots__ = ("__weakref__",)


class Attempt(Future[T]):
    """One attempt that is under way.

    Attributes:
        maker: the thread that makes it.
    """

    maker: int | None = None

    def __init__(self, hold: Hold) -> None:
        """Take what its maker holds."""
        super().__init__()
        self._hold = ref(hold)

    @property
    def is_given_up(self) -> bool:
        """Whether nobody makes it any more: the handler of a signal has raised, or no thread could start."""
        return self._hold() is None and not self.done()

    def error_until(self, end: float | None) -> BaseException | None:
        """Wait for its end and return its error; give up when nobody makes it any more.

        Raises:
            TimeoutError: the time is over, or nobody makes it.
        """
        while True:
            left = LOOK_SECONDS if end is None else min(LOOK_SECONDS, max(0.0, end - monotonic()))
            try:
                return self.exception(left)
            except TimeoutError:
                if self.is_given_up or (end is not None and monotonic() >= end):
                    raise


class SharedAttempt(Renewable, Generic[T]):
    """Lets those who come while an attempt is under way have its outcome.

    The handler of a signal may raise between any two steps, and it may call the storage itself. So an attempt
    counts only as long as somebody makes it, and its own thread never waits for it.
    """

    __slots__ = ("_current", "_lock")

    def __init__(self) -> None:
        """Nothing is attempted yet."""
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Wait for nothing in a forked child: the thread of the attempt stayed in the parent."""
        self._lock = ForkSafeLock()
        self._current: Attempt[T] | None = None

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
            hold = Hold()
            with self._lock:
                attempt = self._current
                first = attempt is None or attempt.is_given_up
                if attempt is None or first:
                    attempt = self._current = Attempt(hold)
            if first and end is None:
                return self._make(attempt, action)
            if first:
                self._start(attempt, action, hold)
            elif attempt.maker == get_ident():
                return action()
            del hold
            try:
                error = attempt.error_until(end)
            except TimeoutError:
                if attempt.is_given_up:
                    continue
                raise
            if error is None:
                return attempt.result()
            # An interrupted thread, or a mistake in the program: it says nothing to anybody else.
            if first or isinstance(error, TwinstoreError):
                raise fresh(error) if isinstance(error, TwinstoreError) else error

    def _make(self, attempt: Attempt[T], action: Callable[[], T]) -> T:
        attempt.maker = get_ident()
        try:
            result = action()
        except BaseException as error:
            self._end(attempt)
            attempt.set_exception(error)
            raise
        self._end(attempt)
        attempt.set_result(result)
        return result

    def _start(self, attempt: Attempt[T], action: Callable[[], T], hold: Hold) -> None:
        """Make the attempt on a thread of its own."""
        work = copy_context().run
        Thread(target=work, args=(self._settle, attempt, action, hold), daemon=True).start()

    def _settle(self, attempt: Attempt[T], action: Callable[[], T], hold: Hold) -> None:
        """Make the attempt; whoever waits is told how it ended."""
        try:
            self._make(attempt, action)
        except BaseException:  # noqa: BLE001  # told by the attempt; raised here it would only be printed
            return
        finally:
            del hold

    def _end(self, attempt: Attempt[T]) -> None:
        # Before the outcome is told: whoever comes after that makes another attempt.
        with self._lock:
            if self._current is attempt:
                self._current = None


def fresh(error: TwinstoreError) -> TwinstoreError:
    """Return an equal exception: one that several threads raise would collect the traces of all of them."""
    found = copy.copy(error)
    found.__cause__ = error.__cause__
    return found
