"""Calls that the server keeps waiting, perhaps for a transaction whose process was killed.

Only inside a transaction does a write fail when it meets the write of another one. Outside of any, the
server repeats it until the other transaction ends, and a command that changes a collection waits for all that
use it: no error comes, so only the time that passes tells.
"""

from __future__ import annotations

import time
from _thread import start_new_thread
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from twinstore.forks import ForkSafeLock
from twinstore_mongo.abandoned import LONG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["Waits", "Watched"]

THREAD_NAME: Final = "twinstore-mongo-waits"
# No call has a longer limit.
LONGEST_SECONDS: Final = 86_400.0


class Waits:
    """The calls of one store that have begun and not ended; while there are some, a thread looks at them.

    The thread looks once a second and ends where it finds none, so a store that is not used has no thread.
    """

    __slots__ = ("_begun", "_clock", "_lock", "_look", "_pause", "_watching")

    def __init__(
        self,
        look: Callable[[], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Take what to do while a call waits; it must not raise."""
        self._look = look
        self._clock = clock
        self._pause = pause
        self._begun: dict[object, float] = {}
        self._lock = ForkSafeLock()
        self._watching = False

    def begin(self, call: object) -> None:
        """Note that a call begins."""
        self._begun[call] = self._clock()
        # Noted before it is asked whether somebody looks; see _watch.
        if not self._watching:
            self._start()

    def end(self, call: object) -> None:
        """Note that it ended."""
        self._begun.pop(call, None)

    def _start(self) -> None:
        with self._lock:
            if self._watching:
                return
            # A daemon, because a process that ends must not wait for it.
            thread = Thread(target=self._watch, name=THREAD_NAME, daemon=True)
            # A process that is about to end may start none, and can do its last calls without.
            with suppress(RuntimeError):
                # Not from here: what the handler of a signal raises while a thread of the standard library is
                # started comes out as another error, or leaves a thread that never begins.
                start_new_thread(self._launch, (thread,))
                self._watching = True

    def _launch(self, thread: Thread) -> None:
        """Start the thread from one in which no handler of a signal runs."""
        try:
            thread.start()
        except RuntimeError:
            self._watching = False

    def _watch(self) -> None:
        """Look while calls take long; end where there are none."""
        while True:
            self._pause(LONG_SECONDS)
            with self._lock:
                # In this order: a call that begins now either is seen here or sees that nobody looks.
                self._watching = False
                self._forget_lost()
                begun = list(self._begun.values())
                self._watching = bool(begun)
            if not begun:
                return
            if self._clock() - min(begun) >= LONG_SECONDS:
                self._look()

    def _forget_lost(self) -> None:
        """Forget calls whose end was never told, because the handler of a signal raised before."""
        oldest = self._clock() - LONGEST_SECONDS
        # A copy, which is made at once: while a list of pairs is made others may end.
        for call, begun in self._begun.copy().items():
            if begun < oldest:
                self.end(call)


class Watched:
    """The limit of a call, inside of which it counts among those that wait."""

    __slots__ = ("_limit", "_waits")

    def __init__(self, waits: Waits, limit: AbstractContextManager[object] | None) -> None:
        """Take where it is noted, and what bounds its time; ``None`` where the client does by itself."""
        self._waits = waits
        self._limit = limit

    def __enter__(self) -> None:
        """Begin."""
        if self._limit is not None:
            self._limit.__enter__()
        self._waits.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; what was raised goes on."""
        self._waits.end(self)
        if self._limit is not None:
            self._limit.__exit__(kind, error, trace)
