"""How many digests are kept that nobody has looked at yet.

Digests of entity after entity are read while the rows of the first ones are still compared, which may take
hours where much differs. What they take in memory meanwhile is bounded; the oldest may always be read.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Condition
from typing import Final

from twinstore_backfill.verify.partition import MOST_CELLS_READ

__all__ = ["MOST_AHEAD", "Ahead"]

# What one entity may take at most, so that several small ones are read ahead, and none beside a large one.
MOST_AHEAD: Final = MOST_CELLS_READ


class Ahead:
    """The readings that have begun or may begin, in the order in which somebody looks at them."""

    def __init__(self, most: int) -> None:
        """Take how many cells all of them may have together, where there are several."""
        self._most = most
        self._changed = Condition()
        self._waiting: OrderedDict[object, int] = OrderedDict()
        self._open = False

    def expect(self, reading: object, cells: int) -> None:
        """Take a reading with the cells that it has at most, behind all the others."""
        with self._changed:
            self._waiting[reading] = cells

    def admit(self, reading: object) -> None:
        """Wait until a reading is the oldest, or it and those before it have few enough cells."""
        with self._changed:
            self._changed.wait_for(lambda: self.fits(reading))

    def fits(self, reading: object) -> bool:
        """Whether a reading may begin."""
        before = 0
        if self._open:
            return True
        for other, cells in self._waiting.items():
            if other is reading:
                return not before or before + cells <= self._most
            before += cells
        # Nobody looks at it any more.
        return True

    def done(self, reading: object) -> None:
        """Forget a reading that somebody has looked at."""
        with self._changed:
            self._waiting.pop(reading, None)
            self._changed.notify_all()

    def end(self) -> None:
        """Let everybody begin, because all are to end."""
        with self._changed:
            self._open = True
            self._changed.notify_all()
