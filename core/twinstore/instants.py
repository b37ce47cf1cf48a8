"""Instants as everything below holds them: plain datetimes in UTC with whole milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["plain_utc", "truncated"]


def plain_utc(value: datetime) -> datetime:
    """Return an aware instant as a :class:`datetime.datetime` in UTC, whatever subclass it was.

    A subclass stays one through ``astimezone``, ``replace`` and arithmetic, and neither JSON nor a database
    client takes it.

    Raises:
        OverflowError: it leaves the years 1 to 9999.
    """
    utc = value if value.tzinfo is UTC else value.astimezone(UTC)
    return utc if type(utc) is datetime else datetime.combine(utc.date(), utc.time(), UTC)


def truncated(value: datetime) -> datetime:
    """Return an instant without its microseconds beyond the millisecond."""
    # Cut and not rounded: a rounded instant could lie in the future. Both stores then hold the same one.
    beyond = value.microsecond % 1000
    return value.replace(microsecond=value.microsecond - beyond) if beyond else value
