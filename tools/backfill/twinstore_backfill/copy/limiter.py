"""Holds the rate of a copy below a limit."""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore_backfill.stopping import StopSwitch

__all__ = ["RateLimiter"]


class RateLimiter:
    """A token bucket that holds one second's worth and is shared by all workers.

    Callers take what they need at once and then wait until their debt is paid, so a batch may be larger
    than the bucket.
    """

    def __init__(self, rate: float | None, stop: StopSwitch, now: Callable[[], float] = monotonic) -> None:
        """Take the rate per second (``None``: no limit) and the switch that ends a wait early."""
        self._rate = rate
        self._share = 1.0
        self._stop = stop
        self._now = now
        self._lock = Lock()
        self._tokens = 0.0
        self._filled = now()

    def set_share(self, share: float) -> None:
        """Keep to a part of the rate, because other processes have the rest of it."""
        with self._lock:
            self._share = share

    def set_rate(self, rate: float | None) -> None:
        """Keep to another rate from the next call on; who waits already waits as before."""
        with self._lock:
            # What was owed was owed at the old rate.
            self._rate, self._tokens, self._filled = rate, 0.0, self._now()

    def take(self, count: int) -> None:
        """Wait until ``count`` documents fit under the limit.

        Raises:
            StopRequestedError: a stop was requested while waiting.
        """
        rate = self._rate
        if rate is None:
            return
        wait = self._debt(count, rate * self._share)
        if wait > 0:
            # Outside the lock, so that the others can count what they take meanwhile.
            self._stop.pause(wait)

    def _debt(self, count: int, rate: float) -> float:
        """Return the seconds until the bucket is back at zero."""
        with self._lock:
            now = self._now()
            # No more than one second's worth is saved up, so that a pause is not followed by a burst.
            self._tokens = min(rate, self._tokens + (now - self._filled) * rate) - count
            self._filled = now
            return -self._tokens / rate
