"""A point at which services wait until all of them stand still and the server was asked what is open."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass

__all__ = ["Gate"]


@dataclass(frozen=True, slots=True)
class Gate:
    """Two pipes: one for those who have arrived, one that is closed for them to go on."""

    arrived: tuple[int, int]
    opened: tuple[int, int]

    @classmethod
    def new(cls) -> Gate:
        """Make one; whoever is forked afterwards may wait at it."""
        return cls(os.pipe(), os.pipe())

    def enter(self) -> None:
        """Belong to those who wait: give up what would keep the gate closed."""
        os.close(self.opened[1])
        os.close(self.arrived[0])

    def wait(self) -> None:
        """Say that one stands still, and wait until the gate is opened."""
        os.write(self.arrived[1], b".")
        os.read(self.opened[0], 1)

    def await_arrivals(self, number: int, seconds: float) -> int:
        """Wait until so many have arrived or the time is over; return how many have."""
        found, deadline = 0, time.monotonic() + seconds
        while found < number and (rest := deadline - time.monotonic()) > 0:
            if select.select([self.arrived[0]], [], [], rest)[0]:
                found += len(os.read(self.arrived[0], number))
        return found

    def open(self) -> None:
        """Let everybody go on, also those who arrive later."""
        os.close(self.opened[1])

    def close(self) -> None:
        """Give up the rest."""
        for end in (*self.arrived, self.opened[0]):
            os.close(end)
