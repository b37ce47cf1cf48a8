"""The instants at which a cron expression fires.

croniter finds the matching wall-clock times; zoneinfo maps them to instants. What an expression may
contain is said above its parser, below.

An hour field of exactly ``*`` follows elapsed time through clock changes: local times that do not exist
are skipped, repeated ones fire twice. Any other hour field (``*/2`` and ``0-23`` included) fires once:
at the first instant after a gap, and at the first of two repeated times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, available_timezones

from pydantic_core import PydanticCustomError

from twinstore.models.json_text import plain_utc

if TYPE_CHECKING:
    from croniter import croniter

# croniter is imported where it is used: it brings a dozen modules, and most processes look for no instant.

MINUTE: Final = timedelta(minutes=1)
# A day inside datetime's own limits, so that no conversion between UTC and a zone overflows.
FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)
# The type of an error whose message repeats a part of the value and whose context has the rule alone.
QUOTING: Final = "time_rule"
# Three times as long as any name of the IANA database.
MAX_ZONE_LENGTH: Final = 100


def validate_timezone(name: str) -> str:
    """Return the name of a time zone without surrounding blanks.

    Raises:
        CronError: the name is too long, or the IANA database of this host has no such zone. ``localtime`` is
            refused too, because it means another zone on every host.
    """
    # Before anything is made of it: near names of a text of megabytes would be looked for for seconds.
    if len(name) > MAX_ZONE_LENGTH:
        raise CronError(f"time zone name has {len(name)} characters; at most {MAX_ZONE_LENGTH} are admitted")
    zone = name.strip()
    if zone in zone_names():
        return zone
    # Compared without case, because "europe/berlin" is a frequent mistake; the hint shows the proper
    # spelling.
    rule = "not a known time zone; use an IANA name such as Europe/Berlin or UTC"
    near = get_close_matches(zone.casefold(), {known.casefold() for known in zone_names()}, n=3, cutoff=0.7)
    known = sorted(known for known in zone_names() if known.casefold() in near)
    hint = f"did you mean {' or '.join(known)}?" if known else "use an IANA name such as Europe/Berlin or UTC"
    raise CronError(f"{zone!r} is not a known time zone; {hint}", rule)


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
    fire = following(rule, zone, _instant(after))
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
    for fire in walk(rule, zone, _instant(after)):
        if fire > end:
            return passed, fire
        if passed == limit:
            break  # the rest of the walk may be years of minutes
        passed += 1
    return passed, next_fire(when_cron, timezone, until)


# Many schedules are due at one instant by one expression, such as the full hour.
@lru_cache(maxsize=4096)
def following(rule: CronExpression, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Return the first firing instant after ``after``, ``None`` at the end of the calendar."""
    return next(fires(rule, zone, after), None)


def walk(rule: CronExpression, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield what :func:`fires` yields; few triggers get beyond the first two, which others have as well."""
    for _ in range(2):
        fire = following(rule, zone, after)
        if fire is None:
            return
        yield fire
        after = fire
    yield from fires(rule, zone, after)


def fires(rule: CronExpression, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the firing instants after ``after`` in order; end at the end of the calendar.

    The walk goes from one change of the zone's offset to the next. Between two changes a wall-clock
    time and an instant differ by a constant, so croniter's answer is exact there.
    """
    from croniter import croniter  # noqa: PLC0415

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
    from croniter import CroniterBadDateError  # noqa: PLC0415

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
        raise CronError(f"{value.isoformat()} is outside {FIRST.date()} to {LAST.date()}")
    return plain_utc(value)


# Cron expressions: what is admitted, and the plain form that croniter gets.
#
# Expressions are parsed here before croniter sees them, because croniter admits more than this library does
# (seconds, macros, hashed fields) and reads ``5-5`` as the whole field. It only ever gets ``*`` and plain
# lists.
#
# * ``5/15`` means ``5-59/15``: from the value to the end of the field.
# * Weekday 0 and 7 are Sunday; ``fri-sun`` means ``5-7``; ``*/n`` counts from Sunday 0 to Saturday 6.
# * A day field is unrestricted only when it contains a bare ``*``. ``*/2`` and ``1-31`` are restrictions;
#   when both day fields are restricted, a day matches if either does.


# PostgreSQL cannot index text much longer than this, and every list of five fields fits.
MAX_EXPRESSION_LENGTH: Final = 1000
# The longest wait for a day that exists is eight years: for 29 February around a year such as 2100.
HORIZON_YEARS: Final = 10

FIVE_FIELDS: Final = "five fields such as 0 0 * * *"
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FOREIGN: Final = (
    (re.compile(r"\?"), "'?' is not supported; write * for any day"),
    (re.compile(r"#"), "'#' (nth weekday of a month) is not supported; list the days of the month"),
    (re.compile(r"\(|^[hr]$", re.IGNORECASE), "hashed and random values are not supported; write a number"),
    (re.compile(r"^l?[0-9]*[lw]?[0-9]*$", re.IGNORECASE), "'L' and 'W' are not supported; list the days"),
)


class CronError(ValueError):
    """A cron expression, a time zone or an instant that cannot be used.

    Attributes:
        rule: the same without any part of the value.
    """

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule or message


@dataclass(frozen=True, slots=True)
class CronField:
    """What one of the five fields admits; ``star`` is where ``*`` ends when it differs from ``high``."""

    name: str
    low: int
    high: int
    star: int
    names: Mapping[str, int] = field(default_factory=dict[str, int])


# Written out, because calendar.month_abbr follows the locale of the process.
MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS: Final = {name: number for number, name in enumerate(MONTH_NAMES, start=1)}
WEEKDAYS: Final = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
FIELDS: Final = (
    CronField("minute", 0, 59, 59),
    CronField("hour", 0, 23, 23),
    CronField("day of month", 1, 31, 31),
    CronField("month", 1, 12, 12, MONTHS),
    CronField("day of week", 0, 7, 6, WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed expression: its collapsed text, the plain form for croniter, the reading of the hour field."""

    text: str
    plain: str
    every_hour: bool


def validate_cron(expression: str) -> str:
    """Return the expression with its blanks collapsed.

    Raises:
        CronError: the expression is not one of five fields of digits, ``*``, ``,``, ``-``, ``/`` and
            English three-letter names, or no day in ten years matches it. The message names the part.
    """
    return parse_rule(expression).text


def cron_field(expression: str) -> str:
    """Validate the expression of a model, without the prefix that pydantic gives a plain ``ValueError``."""
    try:
        return validate_cron(expression)
    except CronError as error:
        raise _field_error(error) from error


def timezone_field(name: str) -> str:
    """Validate the time zone of a model in the same way."""
    try:
        return validate_timezone(name)
    except CronError as error:
        raise _field_error(error) from error


def _field_error(error: CronError) -> PydanticCustomError:
    # Of what is stored, messages must not repeat the part that is wrong; they give the rule alone.
    return PydanticCustomError(QUOTING, "{problem}", {"problem": str(error), "rule": error.rule})


# Every schedule that is read is validated, and services have far fewer expressions than schedules.
@lru_cache(maxsize=2048)
def parse_rule(expression: str) -> CronExpression:
    """Parse an expression, or raise the :class:`CronError` that explains what is wrong with it."""
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise CronError(
            f"cron expression has {len(expression)} characters; at most {MAX_EXPRESSION_LENGTH} are admitted"
        )
    parts = expression.split()
    _check_shape(parts)
    # Before the check that it ever fires, which only makes sense for an expression that is understood.
    plain = " ".join(_plain(rule, part) for rule, part in zip(FIELDS, parts, strict=True))
    _check_possible(" ".join(parts), plain)
    return CronExpression(" ".join(parts), plain, every_hour=parts[1] == "*")


def _check_shape(parts: list[str]) -> None:
    if parts and parts[0].startswith("@"):
        remedy = MACROS.get(parts[0].lower(), FIVE_FIELDS)
        raise CronError(
            f"cron macro {parts[0][:20]!r} is not supported; write {remedy}",
            f"cron macros are not supported; write {FIVE_FIELDS}",
        )
    if len(parts) != len(FIELDS):
        wanted = ", ".join(rule.name for rule in FIELDS)
        extra = "; seconds and years are not supported" if len(parts) > len(FIELDS) else ""
        raise CronError(f"cron expression has {len(parts)} fields, not five ({wanted}){extra}")


def _check_possible(text: str, plain: str) -> None:
    from croniter import CroniterBadDateError, croniter  # noqa: PLC0415

    walls = croniter(plain, datetime(2000, 1, 1), max_years_between_matches=HORIZON_YEARS)  # noqa: DTZ001  # wall clock
    try:
        walls.get_next()
    except CroniterBadDateError:
        remedy = "no month in it has such a day; change the day or the month"
        raise CronError(
            f"cron expression {text!r} never fires: {remedy}", f"cron expression never fires: {remedy}"
        ) from None


def _plain(rule: CronField, text: str) -> str:
    """Rewrite a field as ``*`` or as a sorted list of numbers."""
    members = text.split(",")
    values = {value for member in members for value in _member(rule, member)}
    if "*" in members:
        return "*"
    if rule.names is WEEKDAYS:
        values = {value % 7 for value in values}
    return ",".join(map(str, sorted(values)))


def _member(rule: CronField, member: str) -> range:
    """Expand ``*``, ``a``, ``a-b`` and each of them with a step."""
    if not member:
        raise CronError(f"cron field {rule.name} has an empty entry; remove the extra comma")
    body, slash, step_text = member.partition("/")
    step = _step(rule, member, step_text) if slash else 1
    if body == "*":
        return range(rule.low, rule.star + 1, step)
    low_text, dash, high_text = body.partition("-")
    low = _value(rule, member, low_text)
    if not dash:
        return (
            range(low % 7 if rule.names is WEEKDAYS else low, rule.star + 1, step)
            if slash
            else range(low, low + 1)
        )
    high = _value(rule, member, high_text)
    # In "fri-sun" Sunday ends the week, although its number is 0.
    if high_text.lower() == "sun" and low:
        high = 7
    if high < low:
        remedy = f"{low_text}-{rule.star},{rule.low}-{high_text}"
        raise CronError(
            f"cron field {rule.name}: range {member!r} runs backwards; write two ranges such as {remedy}",
            f"cron field {rule.name}: a range runs backwards; write two ranges",
        )
    return range(low, high + 1, step)


def _step(rule: CronField, member: str, text: str) -> int:
    # At most four digits: int() of a text of any length would take quadratic time.
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) == 0:
        raise CronError(
            f"cron field {rule.name}: step of {member[:40]!r} must be a number from 1",
            f"cron field {rule.name}: a step must be a number from 1",
        )
    return int(text)


def _value(rule: CronField, member: str, text: str) -> int:
    if (named := rule.names.get(text.lower())) is not None:
        return named
    if re.fullmatch("[0-9]{1,4}", text) and rule.low <= int(text) <= rule.high:
        return int(text)
    if text and not text.isdecimal():
        for pattern, remedy in FOREIGN:
            if pattern.search(text):
                raise CronError(
                    f"cron field {rule.name}: {member[:40]!r} is not accepted: {remedy}",
                    f"cron field {rule.name}: {remedy}",
                )
    names = f" or {'/'.join(rule.names)}" if rule.names else ""
    remedy = f"use {rule.low} to {rule.high}{names}"
    raise CronError(
        f"cron field {rule.name}: {member[:40]!r} is not accepted; {remedy}",
        f"cron field {rule.name}: an entry is not accepted; {remedy}",
    )
