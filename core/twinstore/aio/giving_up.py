"""Cancelling the calls of tasks that do not wait for them any more."""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from twinstore.cancelling import RunningCall

__all__ = ["Canceller"]

THREAD_NAME: Final = "twinstore-cancel"
# A cancellation may come before the statement that it is meant for, so it is repeated.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0


class Canceller(Renewable):
    """Cancels calls until they have ended, in a thread that is there while there are some.

    Not in the event loop, because a cancellation waits for the server.
    """

    def __init__(self) -> None:
        """Start no thread yet."""
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Forget in a forked child the calls of the parent."""
        self._lock = Lock()
        self._calls: list[RunningCall] = []
        self._more = Event()
        self._working = False

    def end(self, call: RunningCall) -> None:
        """Cancel a call that was given up; returns at once."""
        with self._lock:
            self._calls.append(call)
            self._more.set()
            if self._working:
                return
            # A daemon, because a process that ends must not wait for it.
            thread = Thread(target=self._work, name=THREAD_NAME, daemon=True)
            # A process that is about to end may start none, and its calls end with it.
            with suppress(RuntimeError):
                thread.start()
                self._working = True

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while True:
            if self._more.is_set():
                pause = FIRST_PAUSE
                self._more.clear()
            with self._lock:
                calls = [*self._calls]
            over = {id(call) for call in calls if not call.cancel()}
            with self._lock:
                self._calls = [call for call in self._calls if id(call) not in over]
                if not self._calls:
                    self._working = False
                    return
            self._more.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
