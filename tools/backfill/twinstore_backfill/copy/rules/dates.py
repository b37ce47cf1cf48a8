"""Instants as texts and numbers of other programs write them.

A format is read from left to right. A number takes as many of its digits as there are, at most the two or six
of its directive, and is never shortened so that the rest fits. Names are English on every host; a letter of
ASCII matches in either case, and every other character stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_FLOOR, Context, Decimal
from string import ascii_lowercase, ascii_uppercase
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

Fields: TypeAlias = dict[str, int]
Reader: TypeAlias = Callable[[object], datetime | None]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PER_SECOND: Final = {"epoch-seconds": 1, "epoch-milliseconds": 1000, "epoch-microseconds": 1_000_000}
NUMBER: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?")
MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SHORT: Final = 3
LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
# How many digits a number has, at least and at most.
DIGITS: Final[Mapping[str, tuple[int, int]]] = {
    "Y": (4, 4),
    **dict.fromkeys("mdHIMS", (1, 2)),
    "j": (1, 3),
    "f": (1, 6),
}
OFFSET: Final = re.compile(r"z|([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")
# Exact for every number that is accepted: at most 20 digits on either side of the point, or 34 of a decimal.
EXACT: Final = Context(prec=100)
LARGEST: Final = Decimal(10) ** 20
NOON: Final = 12
LONGEST: Final = 200


class LocalTimeError(ValueError):
    """A local time is none of its zone, or two."""


def reader_of(form: str, zone: str | None) -> Reader:
    """Return what reads values of a format; it returns ``None`` for what does not have the format.

    Raises:
        LocalTimeError: from the reader, if the zone has no such time, or two of it.
    """
    if form in PER_SECOND:
        unit = PER_SECOND[form]
        return lambda value: _since_epoch(value, unit)
    parts, place = tuple(_parts(form)), None if zone is None else ZoneInfo(zone)
    return lambda value: _instant(value, parts, place) if isinstance(value, str) else None


def whole_milliseconds(value: datetime) -> datetime:
    """Return an instant without what is below a millisecond, as stores keep it."""
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _since_epoch(value: object, per_second: int) -> datetime | None:
    if isinstance(value, str):
        number = Decimal(value) if NUMBER.fullmatch(value) else None
    elif isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        number = None
    else:
        # The shortest digits that make the double, not all those of the double.
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if number is None or not number.is_finite() or abs(number) > LARGEST:
        return None
    microseconds = EXACT.multiply(number, Decimal(1_000_000 // per_second))
    try:
        return EPOCH + timedelta(microseconds=int(microseconds.to_integral_value(ROUND_FLOOR)))
    except OverflowError:
        return None


def _parts(form: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a format: a directive with an empty text, or an empty directive with a character."""
    characters = iter(form)
    for character in characters:
        directive = next(characters, "") if character == "%" else ""
        yield ("", character.translate(LOWER)) if directive in {"", "%"} else (directive, "")


def _instant(text: str, parts: tuple[tuple[str, str], ...], zone: ZoneInfo | None) -> datetime | None:
    fields = _fields(text.translate(LOWER), parts) if len(text) <= LONGEST else None
    if fields is None or "Y" not in fields:
        return None
    if "offset" not in fields and zone is None:
        return None
    try:
        local = _local(fields)
        if "offset" in fields:
            return local.replace(tzinfo=timezone(timedelta(minutes=fields["offset"]))).astimezone(UTC)
    except (ValueError, OverflowError):
        # The thirtieth of February, or the instant before the first of all.
        return None
    return None if zone is None else _in_zone(local, zone)


def _in_zone(local: datetime, zone: ZoneInfo) -> datetime | None:
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    try:
        instant, other = first.astimezone(UTC), second.astimezone(UTC)
    except OverflowError:
        return None
    if instant != other:
        raise LocalTimeError
    return instant


def _local(fields: Fields) -> datetime:
    if "j" in fields:
        day = datetime(fields["Y"], 1, 1) + timedelta(days=fields["j"] - 1)  # noqa: DTZ001  # local
        if fields["j"] < 1 or day.year != fields["Y"]:
            raise ValueError
    else:
        day = datetime(fields["Y"], fields.get("m", 1), fields.get("d", 1))  # noqa: DTZ001  # local
    return day.replace(
        hour=_hour(fields),
        minute=fields.get("M", 0),
        second=fields.get("S", 0),
        microsecond=fields.get("f", 0),
    )


def _hour(fields: Fields) -> int:
    if "I" not in fields:
        return fields.get("H", 0)
    if not 1 <= fields["I"] <= NOON:
        raise ValueError
    return fields["I"] % NOON + fields.get("p", 0)


def _fields(text: str, parts: tuple[tuple[str, str], ...]) -> Fields | None:
    """Return what the directives of a format read in a text, ``None`` if it does not have the format."""
    fields: Fields = {}
    at = 0
    for directive, literal in parts:
        end = at + 1 if literal and text.startswith(literal, at) else None
        if directive:
            end = _read(directive, text, at, fields)
        if end is None:
            return None
        at = end
    return fields if at == len(text) else None


def _read(directive: str, text: str, at: int, fields: Fields) -> int | None:
    """Read one directive at a place; return where it ends, ``None`` if it is not there."""
    if directive in DIGITS:
        least, most = DIGITS[directive]
        end = at
        while end < len(text) and end - at < most and text[end] in "0123456789":
            end += 1
        if end - at < least:
            return None
        found = text[at:end]
        return _noted(fields, directive, int(found.ljust(6, "0") if directive == "f" else found), end)
    if directive == "z":
        match = OFFSET.match(text, at)
        if match is None:
            return None
        sign, hours, minutes = match.groups(default="0")
        offset = int(hours) * 60 + int(minutes)
        return _noted(fields, "offset", -offset if sign == "-" else offset, match.end())
    return _read_name(directive, text[at:], at, fields)


def _read_name(directive: str, rest: str, at: int, fields: Fields) -> int | None:
    if directive == "p":
        half = {"am": 0, "pm": NOON}.get(rest[:2])
        return None if half is None else _noted(fields, "p", half, at + 2)
    known = MONTHS if directive in "bB" else DAYS if directive in "aA" else ()
    for number, name in enumerate(known, 1):
        wanted = name[:SHORT] if directive in "ab" else name
        if rest.startswith(wanted):
            field = "m" if known is MONTHS else "weekday"
            return _noted(fields, field, number, at + len(wanted))
    return None


def _noted(fields: Fields, name: str, value: int, end: int) -> int | None:
    """Keep what a directive read; a second one must say the same."""
    return end if fields.setdefault(name, value) == value else None
