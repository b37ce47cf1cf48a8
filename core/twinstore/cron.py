"""The instants at which a cron expression fires.

croniter finds the matching wall-clock times; zoneinfo maps them to instants. What an expression may
contain is said in :mod:`twinstore.cronrule`.

An hour field of exactly ``*`` follows elapsed time through clock changes: local times that do not exist
are skipped, repeated ones fire twice. Any other hour field (``*/2`` and ``0-23`` included) fires once:
at the first instant after a gap, and at the first of two repeated times.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from croniter import CroniterBadDateError, croniter

from twinstore.cronrule import HORIZON_YEARS, CronError, CronExpression, parse_rule, validate_cron
from twinstore.instants import plain_utc

__all__ = ["CronError", "next_fire", "passed_and_next", "validate_cron", "validate_timezone"]

MINUTE: Final = timedelta(minutes=1)
# A day inside datetime's own limits, so that no conversion between UTC and a zone overflows.
FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)
# Three times as long as any name of the IANA database.
LONGEST_ZONE: Final = 100


def validate_timezone(name: str) -> str:
    """Return the name of a time zone without surrounding blanks.

    Raises:
        CronError: the name is too long, or the IANA database of this host has no such zone. ``localtime`` is
            refused too, because it means another zone on every host.
    """
    # Before anything is made of it: near names of a text of megabytes would be looked for for seconds.
    if len(name) > LONGEST_ZONE:
        raise CronError(f"time zone name has {len(name)} characters; at most {LONGEST_ZONE} are admitted")
    zone = name.strip()
    if zone in zone_names():
        return zone
    # Compared without case, because "europe/berlin" is a frequent mistake; the hint shows the proper
    # spelling.
    near = get_close_matches(zone.casefold(), {known.casefold() for known in zone_names()}, n=3, cutoff=0.7)
    known = sorted(known for known in zone_names() if known.casefold() in near)
    hint = f"did you mean {' or '.join(known)}?" if known else "use an IANA name such as Europe/Berlin or UTC"
    raise CronError(f"{zone!r} is not a known time zone; {hint}")


def next_fire(when_cron: str, timezone: str, after: datetime) -> datetime:
    """Return the first firing instant strictly after ``after``, in UTC.

    Args:
        when_cron: the expression.
        timezone: IANA name of the zone whose wall clock the expression means.
        after: an aware instant.

    Raises:
        CronError: an argument is not valid, or the next instant lies beyond the year 9999.
    """
    rule, zone = parse_rule(when_cron), ZoneInfo(validate_timezone(timezone))
    fire = next(fires(rule, zone, _instant(after)), None)
    if fire is None:
        raise CronError(
            f"{rule.text!r} in {zone.key} has no instant after {after.isoformat()} up to {LAST:%Y-%m-%d}"
        )
    return fire


def passed_and_next(
    when_cron: str, timezone: str, after: datetime, until: datetime, *, limit: int = 10_000
) -> tuple[int, datetime]:
    """Return how many firing instants lie in (``after``, ``until``], and the first one after ``until``.

    In one walk: a trigger mostly fires before its next instant, and reading an expression costs more than a
    step.

    Args:
        when_cron: the expression.
        timezone: IANA name of the zone whose wall clock the expression means.
        after: an aware instant.
        until: one that is not before it.
        limit: how far to count.

    Raises:
        CronError: as :func:`next_fire` for ``until``.
    """
    rule, zone, end = parse_rule(when_cron), ZoneInfo(validate_timezone(timezone)), _instant(until)
    passed = 0
    for fire in fires(rule, zone, _instant(after)):
        if fire > end:
            return passed, fire
        if passed == limit:
            break  # the rest of the walk may be years of minutes
        passed += 1
    return passed, next_fire(when_cron, timezone, until)


def fires(rule: CronExpression, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the firing instants after ``after`` in order; end at the end of the calendar.

    The walk goes from one change of the zone's offset to the next. Between two changes a wall-clock
    time and an instant differ by a constant, so croniter's answer is exact there.
    """
    walls = croniter(rule.plain, ret_type=datetime, max_years_between_matches=HORIZON_YEARS)
    start, inclusive = after, False
    while (wall := _next_wall(walls, _wall(start, zone), inclusive=inclusive)) is not None:
        fire = _shift(wall, start, zone)
        if fire > LAST:
            return
        change = _next_change(zone, start, fire)
        if change is None:
            # The second of two repeated times; only a rule for every hour fires at both.
            if rule.every_hour or not fire.astimezone(zone).fold:
                yield fire
            start, inclusive = fire, False
        else:
            # The wall-clock time lies in the gap: rules that fire at given hours fire once the gap is over.
            skipped = wall < _wall(change, zone) and not rule.every_hour
            if skipped:
                yield change
            start, inclusive = change, not skipped


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return every zone of the IANA database; looking names up in it keeps paths out of zoneinfo."""
    return frozenset(available_timezones() - {"localtime"})


# By zone and year: enough for all 600 zones over seven years, and a service uses few of them.
@lru_cache(maxsize=4096)
def _changes(zone: ZoneInfo, year: int) -> tuple[datetime, ...]:
    """Return the instants of a year at which the offset of a zone changes.

    zoneinfo does not publish its transitions, so the year is sampled; no zone has ever changed twice
    within the sampling step and come back.
    """
    start = max(datetime(year, 1, 1, tzinfo=UTC), FIRST)
    samples = (
        # A day beyond the longest year, so that a change at New Year lies between two samples.
        [start + timedelta(hours=6 * index) for index in range(367 * 4)]
        # In the last year the samples would leave the calendar of datetime.
        if year < LAST.year
        else [start, LAST]
    )
    return tuple(
        _change_between(zone, left, right)
        for left, right in pairwise(samples)
        if left.astimezone(zone).utcoffset() != right.astimezone(zone).utcoffset()
    )


def _change_between(zone: ZoneInfo, left: datetime, right: datetime) -> datetime:
    before = left.astimezone(zone).utcoffset()
    while right - left > timedelta(seconds=1):
        middle = left + timedelta(seconds=(right - left) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == before:
            left = middle
        else:
            right = middle
    return right


def _next_change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    for year in range(start.year, end.year + 1):
        for change in _changes(zone, year):
            if start < change <= end:
                return change
    return None


def _next_wall(walls: croniter[datetime], wall: datetime, *, inclusive: bool) -> datetime | None:
    # croniter looks strictly after the time it is given, so an admitted start is moved back.
    base = wall.replace(second=0, microsecond=0)
    if inclusive and base == wall:
        base -= MINUTE
    try:
        return walls.get_next(datetime, start_time=base)
    except (CroniterBadDateError, OverflowError, ValueError):
        return None  # beyond the year 9999; the expression itself was found possible when it was parsed


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _shift(wall: datetime, start: datetime, zone: ZoneInfo) -> datetime:
    """Turn a wall-clock time into an instant with the offset in force at ``start``."""
    return start + (wall - _wall(start, zone))


def _instant(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise CronError(f"{value.isoformat()} has no UTC offset; pass an aware datetime")
    if not FIRST <= value <= LAST:
        raise CronError(f"{value.isoformat()} lies outside {FIRST.date()} to {LAST.date()}")
    return plain_utc(value)
