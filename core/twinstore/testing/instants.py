"""The instants of the kit: all of them are counted from one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["START", "at"]

START: Final = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)


def at(seconds: float = 0) -> datetime:
    """Return the instant that many seconds after :data:`START`."""
    return START + timedelta(seconds=seconds)
