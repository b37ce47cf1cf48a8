"""Turns of threads that compete for one row: whoever lost waits in a line instead of losing again and again.

Stores without locks let one of several rivals win and the others repeat. With many of them most attempts lose
once more, and the longer somebody waits the rarer he tries. In one process that can be spared: those who lost
against a row repeat one after the other, in the order in which they lost. Nothing depends on having the turn:
rivals of other processes are met as before, and nobody waits for it for long.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType

__all__ = ["TURNS", "Turns"]

# Whoever has the turn may be held up by a server that is silent; the others then go on without.
LONGEST_WAIT: Final = 2.0


class Own(threading.local):
    """What a thread has: how deep its repetitions are nested, and its one place in a line."""

    depth = 0
    place: Place | None = None


class Place:
    """A place in the line of a row."""

    def __init__(self, row: Hashable) -> None:
        """Take the row."""
        self.row = row
        # Not an event: where the handler of a signal raises while somebody waits for one, its lock may stay
        # taken, and whoever grants the turn would stand still with the lock of all lines.
        self._granted = threading.Lock()
        self._granted.acquire()

    def grant(self) -> None:
        """Let whoever waits go on; he may have been told before."""
        with suppress(RuntimeError):
            self._granted.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the turn is granted; return whether it was."""
        return self._granted.acquire(timeout=max(0.0, seconds))


class Repetition:
    """The block of one repetition; a class, because every write passes here."""

    __slots__ = ("_leave", "_own")

    def __init__(self, own: Own, leave: Callable[[Place], None]) -> None:
        """Take what the thread has, and what gives up a place in a line."""
        self._own = own
        self._leave = leave

    def __enter__(self) -> None:
        """Begin."""
        self._own.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; the outermost one gives up the turn."""
        own = self._own
        own.depth -= 1
        if not own.depth and own.place is not None:
            place, own.place = own.place, None
            self._leave(place)


class Turns(Renewable):
    """The lines of this process."""

    def __init__(self, longest: float = LONGEST_WAIT) -> None:
        """Start without any; nobody waits longer than so many seconds."""
        self._longest = longest
        self._own = Own()
        self._lock = threading.Lock()
        self._lines: dict[Hashable, deque[Place]] = {}
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Forget the threads of the parent in a forked child."""
        self._own, self._lock, self._lines = Own(), threading.Lock(), {}

    def repetition(self) -> Repetition:
        """Keep the turn that is taken inside until the outermost block of this thread ends.

        A step of a step keeps it for the whole: what lost once begins again at the outer one.
        """
        return Repetition(self._own, self._leave)

    def wait(self, row: Hashable, seconds: float) -> bool:
        """Wait for a turn, at most so many seconds; return whether somebody else was first.

        A thread has one turn at most: with two of them, two threads could wait for each other.
        """
        own = self._own
        if own.place is not None:
            return False
        own.place = place = Place(row)
        with self._lock:
            line = self._lines.setdefault(row, deque())
            line.append(place)
            is_first = line[0] is place
        return not is_first and place.wait(min(seconds, self._longest))

    def _leave(self, place: Place) -> None:
        """Let the next one of a line go on, also where this turn was never granted."""
        with self._lock:
            line = self._lines.get(place.row)
            if line is None or place not in line:
                return  # it was taken before a fork
            line.remove(place)
            if line:
                line[0].grant()
            else:
                del self._lines[place.row]


TURNS: Final = Turns()
