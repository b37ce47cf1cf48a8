"""Formats of dates as regular expressions, with the names of English on every host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from twinstore_backfill.verify.rules.numbers import Exact, of_decimal, of_text

MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SHORT: Final = 3


def _one_of(group: str, names: Sequence[str]) -> str:
    return f"(?P<{group}>{'|'.join(names)})"


DIRECTIVES: Final[Mapping[str, str]] = {
    "Y": "(?P<year>[0-9]{4})",
    "m": "(?P<month>[0-9]{1,2}+)",
    "d": "(?P<day>[0-9]{1,2}+)",
    "H": "(?P<hour>[0-9]{1,2}+)",
    "I": "(?P<half>[0-9]{1,2}+)",
    "M": "(?P<minute>[0-9]{1,2}+)",
    "S": "(?P<second>[0-9]{1,2}+)",
    "f": "(?P<fraction>[0-9]{1,6}+)",
    "j": "(?P<nth>[0-9]{1,3}+)",
    "p": "(?P<noon>am|pm)",
    "B": _one_of("name", MONTHS),
    "b": _one_of("name", [name[:SHORT] for name in MONTHS]),
    "A": f"(?:{'|'.join(DAYS)})",
    "a": f"(?:{'|'.join(name[:SHORT] for name in DAYS)})",
    "z": "(?P<offset>Z|[+-][0-9]{2}:?[0-9]{2})",
    "%": "%",
}
# Instants per second of the formats that count from 1970.
EPOCHS: Final[Mapping[str, int]] = {
    "epoch-seconds": 1,
    "epoch-milliseconds": 10**3,
    "epoch-microseconds": 10**6,
}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS: Final = 10**6
COUNT: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?")
NOON: Final = 12


class UnclearInstantError(ValueError):
    """A local time that is ambiguous, or that its zone does not have."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format of texts; ``zone`` is that of a text without an offset."""

    pattern: re.Pattern[str]
    zone: ZoneInfo | None

    @classmethod
    def of(cls, text: str, zone: ZoneInfo | None) -> Format:
        """Return the format of a text with directives.

        Raises:
            KeyError: there is no such directive; who checks rules refuses it before.
        """
        parts = re.split("%(.)", text, flags=re.DOTALL)
        made = [DIRECTIVES[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)]
        # Names of English have no letter outside of ASCII that another case would bring.
        return cls(re.compile("".join(made), re.IGNORECASE | re.ASCII), zone)

    def instant(self, text: str) -> datetime | None:
        """Return the instant of a text, ``None`` if it is not of this format.

        Raises:
            UnclearInstantError: the zone has this local time twice, or never.
        """
        found = self.pattern.fullmatch(text)
        if found is None:
            return None
        parts = {name: part for name, part in found.groupdict().items() if part is not None}
        try:
            local = _local(parts)
            offset = parts.get("offset")
            if offset is not None:
                return local.replace(tzinfo=_offset(offset)).astimezone(UTC)
            return None if self.zone is None else self._in_zone(local.replace(tzinfo=self.zone))
        except UnclearInstantError:
            raise
        except (ValueError, OverflowError):  # the 31st of February, or before the year 1
            return None

    @staticmethod
    def _in_zone(local: datetime) -> datetime:
        # The two readings of a time differ when clocks were put back, and also in the gap of the other way.
        if local.utcoffset() != local.replace(fold=1).utcoffset():
            raise UnclearInstantError
        return local.astimezone(UTC)


def _local(parts: Mapping[str, str]) -> datetime:
    """Return the local time of the parts of a text.

    Raises:
        ValueError: there is no such day or time.
    """
    year = int(parts["year"])
    if "nth" in parts:
        day = datetime(year, 1, 1) + timedelta(int(parts["nth"]) - 1)  # noqa: DTZ001  # the caller adds the zone
        if day.year != year:
            raise ValueError("no such day of the year")
    else:
        day = datetime(year, _month(parts), int(parts.get("day", 1)))  # noqa: DTZ001  # the caller adds the zone
    return day.replace(
        hour=_hour(parts),
        minute=int(parts.get("minute", 0)),
        second=int(parts.get("second", 0)),
        microsecond=int(parts.get("fraction", "0").ljust(6, "0")),
    )


def _month(parts: Mapping[str, str]) -> int:
    name = parts.get("name")
    if name is None:
        return int(parts.get("month", 1))
    return next(number for number, full in enumerate(MONTHS, 1) if full.startswith(name.lower()))


def _hour(parts: Mapping[str, str]) -> int:
    if "half" not in parts:
        return int(parts.get("hour", 0))
    half = int(parts["half"])
    if not 1 <= half <= NOON:
        raise ValueError("no such hour")
    return half % NOON + (NOON if parts.get("noon", "").lower() == "pm" else 0)


def _offset(text: str) -> timezone:
    if text in {"Z", "z"}:
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if minutes >= 60:  # noqa: PLR2004  # minutes of an hour
        raise ValueError("no such offset")
    size = timedelta(hours=hours, minutes=minutes)
    return timezone(-size if text[0] == "-" else size)


def counted_instant(value: object, per_second: int) -> datetime | None:
    """Return the instant of a number since 1970, or of its text; ``None`` for anything else.

    Of a double its shortest text counts, and parts of a microsecond are cut.
    """
    count = _count(value)
    if count is None:
        return None
    digits, scale = count
    try:
        microseconds = digits * MICROSECONDS * 10 ** max(-scale, 0) // (per_second * 10 ** max(scale, 0))
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _count(value: object) -> Exact | None:
    if type(value) is str:
        return of_text(value) if COUNT.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(repr(value) if isinstance(value, float) else value)
    return of_decimal(number) if number.is_finite() else None


@dataclass(frozen=True, slots=True)
class Formats:
    """All formats of a rule."""

    texts: tuple[Format, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, formats: Sequence[str], zone: str | None) -> Formats:
        """Return the formats of their texts."""
        place = None if zone is None else ZoneInfo(zone)
        texts = tuple(Format.of(text, place) for text in formats if text not in EPOCHS)
        return cls(texts, tuple(EPOCHS[text] for text in formats if text in EPOCHS))

    def instants(self, value: object) -> Iterator[datetime]:
        """Yield the instant by every format that a value has.

        Raises:
            UnclearInstantError: a format has a local time that is not one instant.
        """
        for per_second in self.counts:
            if (counted := counted_instant(value, per_second)) is not None:
                yield counted
        if type(value) is str:
            for item in self.texts:
                if (found := item.instant(value)) is not None:
                    yield found


def in_milliseconds(instant: datetime) -> datetime:
    """Return an instant as stores hold it, without parts of a millisecond."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
