"""An exception that a signal handler raises in the middle of a call, as soft limits of workers do."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from tests.soak.notes import GivenUpError

if TYPE_CHECKING:
    from random import Random
    from types import FrameType, TracebackType

__all__ = ["Alarms"]

# How many calls are interrupted, and when: some calls are over by then.
SHARE: Final = 0.5
LONGEST_SECONDS: Final = 0.02


class Alarms:
    """Interrupts some of the blocks in which it is used; for the main thread alone."""

    def __init__(self, random: Random) -> None:
        """Take over the signal; ``random`` decides when it comes."""
        self._random = random
        self._armed = False
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        # One that comes late belongs to no block any more.
        if self._armed:
            self._armed = False
            raise GivenUpError

    def __call__(self) -> Alarms:
        """Return the block."""
        return self

    def __enter__(self) -> None:
        """Let the signal come soon, or not at all."""
        if self._random.random() < SHARE:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-6, LONGEST_SECONDS))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it come no more."""
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
