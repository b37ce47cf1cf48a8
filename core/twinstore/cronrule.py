"""Cron expressions: what is admitted, and the plain form that croniter gets.

Expressions are parsed here before croniter sees them, because croniter admits more than this library
does (seconds, macros, hashed fields) and reads ``5-5`` as the whole field. It only ever gets ``*`` and
plain lists.

* ``5/15`` means ``5-59/15``: from the value to the end of the field.
* Weekday 0 and 7 are Sunday; ``fri-sun`` means ``5-7``; ``*/n`` counts from Sunday 0 to Saturday 6.
* A day field is unrestricted only when it contains a bare ``*``. ``*/2`` and ``1-31`` are restrictions;
  when both day fields are restricted, a day matches if either does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final

from croniter import CroniterBadDateError, croniter

__all__ = ["HORIZON_YEARS", "CronError", "CronExpression", "parse_rule", "validate_cron"]

# PostgreSQL cannot index text much longer than this, and every list of five fields fits.
LONGEST_EXPRESSION: Final = 1000
# The longest wait for a day that exists is eight years: for 29 February around a year such as 2100.
HORIZON_YEARS: Final = 10

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
    """A cron expression, a time zone or an instant that cannot be used."""


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


# Every schedule that is read is validated, and services have far fewer expressions than schedules.
@lru_cache(maxsize=2048)
def parse_rule(expression: str) -> CronExpression:
    """Parse an expression, or raise the :class:`CronError` that explains what is wrong with it."""
    if len(expression) > LONGEST_EXPRESSION:
        raise CronError(
            f"cron expression has {len(expression)} characters; at most {LONGEST_EXPRESSION} are admitted"
        )
    parts = expression.split()
    _check_shape(parts)
    # Before the check that it ever fires, which only makes sense for an expression that is understood.
    plain = " ".join(_plain(rule, part) for rule, part in zip(FIELDS, parts, strict=True))
    _check_possible(" ".join(parts), plain)
    return CronExpression(" ".join(parts), plain, every_hour=parts[1] == "*")


def _check_shape(parts: list[str]) -> None:
    if parts and parts[0].startswith("@"):
        remedy = MACROS.get(parts[0].lower(), "five fields such as 0 0 * * *")
        raise CronError(f"cron macro {parts[0][:20]!r} is not supported; write {remedy}")
    if len(parts) != len(FIELDS):
        wanted = ", ".join(rule.name for rule in FIELDS)
        extra = "; seconds and years are not supported" if len(parts) > len(FIELDS) else ""
        raise CronError(f"cron expression has {len(parts)} fields, not five ({wanted}){extra}")


def _check_possible(text: str, plain: str) -> None:
    walls = croniter(plain, datetime(2000, 1, 1), max_years_between_matches=HORIZON_YEARS)  # noqa: DTZ001  # wall clock
    try:
        walls.get_next()
    except CroniterBadDateError:
        remedy = "no month in it has such a day; change the day or the month"
        raise CronError(f"cron expression {text!r} never fires: {remedy}") from None


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
            f"cron field {rule.name}: range {member!r} runs backwards; write two ranges such as {remedy}"
        )
    return range(low, high + 1, step)


def _step(rule: CronField, member: str, text: str) -> int:
    # At most four digits: int() of a text of any length would take quadratic time.
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) == 0:
        raise CronError(f"cron field {rule.name}: step of {member[:40]!r} must be a number from 1")
    return int(text)


def _value(rule: CronField, member: str, text: str) -> int:
    if (named := rule.names.get(text.lower())) is not None:
        return named
    if re.fullmatch("[0-9]{1,4}", text) and rule.low <= int(text) <= rule.high:
        return int(text)
    if text and not text.isdecimal():
        for pattern, remedy in FOREIGN:
            if pattern.search(text):
                raise CronError(f"cron field {rule.name}: {member[:40]!r} is not accepted: {remedy}")
    names = f" or {'/'.join(rule.names)}" if rule.names else ""
    raise CronError(
        f"cron field {rule.name}: {member[:40]!r} is not accepted; use {rule.low} to {rule.high}{names}"
    )
