"""Clocks: the library never asks the operating system for the time behind its caller's back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable

from typing_extensions import override

from twinstore.models.json_text import plain_utc, truncated
from twinstore.runtime.forks import ForkSafeLock

__all__ = ["Clock", "FixedClock", "ManualClock", "SystemClock", "truncate_to_millisecond"]


@runtime_checkable
class Clock(Protocol):
    """Returns the current time."""

    def now(self) -> datetime:
        """Return the present instant: aware, in UTC, truncated to milliseconds."""
        ...


def truncate_to_millisecond(value: datetime) -> datetime:
    """Return the instant in UTC without the digits below one millisecond.

    Args:
        value: an aware date and time in any zone.

    Raises:
        ValueError: the value has no offset, so its instant is unknown, or leaves the years 1 to 9999.
    """
    if value.utcoffset() is None:
        raise ValueError(
            f"{value.isoformat()} has no UTC offset; pass an aware datetime such as datetime.now(UTC)"
        )
    try:
        return truncated(plain_utc(value))
    except OverflowError:
        raise ValueError(f"{value.isoformat()} is outside the years 1 to 9999 in UTC") from None


class SystemClock(Clock):
    """The clock of the operating system."""

    @override
    def now(self) -> datetime:
        """Return the present instant: aware, in UTC, truncated to milliseconds."""
        return truncate_to_millisecond(datetime.now(UTC))

    @override
    def __repr__(self) -> str:
        return "SystemClock()"


class FixedClock(Clock):
    """A clock that does not advance.

    Args:
        instant: the instant that :meth:`now` always returns.
    """

    def __init__(self, instant: datetime) -> None:
        """Take the instant; a naive one is refused."""
        self._instant = truncate_to_millisecond(instant)

    @override
    def now(self) -> datetime:
        return self._instant

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.now().isoformat()})"


class ManualClock(FixedClock):
    """A clock that moves only when a test moves it; safe to share between threads.

    Args:
        start: the first instant that :meth:`now` answers.
    """

    def __init__(self, start: datetime) -> None:
        """Take the first instant; a naive one is refused."""
        super().__init__(start)
        self._lock = ForkSafeLock()

    def advance(self, step: timedelta) -> datetime:
        """Move the clock forward and return the new instant.

        Raises:
            ValueError: the step is negative; a clock that runs backwards proves nothing.
        """
        if step < timedelta(0):
            raise ValueError(f"cannot advance a clock by {step}; the step must not be negative (use set_to)")
        with self._lock:
            self._instant = truncate_to_millisecond(self._instant + step)
            return self._instant

    def set_to(self, instant: datetime) -> None:
        """Set the clock, also backwards, as a corrected server clock would do."""
        with self._lock:
            self._instant = truncate_to_millisecond(instant)
