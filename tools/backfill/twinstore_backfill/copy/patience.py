"""Wait, within a bound, for rows that another transaction holds.

A process that was killed may leave its transaction open, with every document that it wrote. A server ends
such a one after its own limit, as a rule 60 s, and looks for them only every half of that. Until then all
others lose against it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from logging import getLogger
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.errors import ConcurrencyError

if TYPE_CHECKING:
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["PATIENCE_SECONDS", "Patience"]

log = getLogger(__name__)

T = TypeVar("T")

# Twice what the server needs as a rule. Somebody who writes for longer is alive, and the copy should end.
PATIENCE_SECONDS: Final = 180.0
# What lost against a living writer gets through soon; at once it would meet the same rival again.
PAUSES: Final = (0.1, 0.5)
LONGEST_PAUSE: Final = 2.0
# The driver has tried for 10 s by then, so this is no ordinary race.
TOLD_AFTER: Final = len(PAUSES)


class Patience:
    """Repeats what lost against another writer until it gets through."""

    def __init__(self, stop: StopSwitch, ticks: Callable[[], float] = time.monotonic) -> None:
        """Take the switch that ends a wait early, and the seconds."""
        self._stop = stop
        self._ticks = ticks

    def outlast(self, what: str, action: Callable[[], T]) -> T:
        """Return the result of an action, repeated after a ``ConcurrencyError``.

        Args:
            what: names it in the log.
            action: fails without a trace; another transaction may hold what it writes.

        Raises:
            ConcurrencyError: it still loses after :data:`PATIENCE_SECONDS`.
            StopRequestedError: a stop was requested while waiting.
        """
        for number, pause in self._pauses():
            try:
                return action()
            except ConcurrencyError as error:
                log.info("%s is repeated: %s", what, error)
                if number == TOLD_AFTER:
                    self._tell(what)
                self._stop.pause(pause)
        return action()

    def _pauses(self) -> Iterator[tuple[int, float]]:
        end = self._ticks() + PATIENCE_SECONDS
        for number, pause in enumerate(chain(PAUSES, repeat(LONGEST_PAUSE))):
            if self._ticks() >= end:
                return
            yield number, pause

    def _tell(self, what: str) -> None:
        # A warning, because a copy that stands still for a minute looks like one that hangs.
        log.warning(
            "%s has to wait: another transaction holds what it writes, such as one that a killed copy left "
            "open and that its server ends, as a rule after 60 to 90 s. Trying again for up to %.0f s; "
            "nothing is lost.",
            what,
            PATIENCE_SECONDS,
        )
