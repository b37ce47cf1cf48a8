"""The text output of values that came in binary form, as the server writes it in UTC with ISO dates."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final
from uuid import UUID

__all__ = ["array_output", "float_output", "instant_output", "quoted", "uuid_output", "whole_output"]

DAY: Final = 86_400_000_000  # microseconds
# Days from 0000-03-01 to 2000-01-01, from which the server counts, and in 400 years of the calendar.
EPOCH_DAYS: Final = 730_425
ERA_DAYS: Final = 146_097
FIRST, LAST = b"-infinity", b"infinity"
# The server switches to an exponent here.
LARGEST_PLAIN: Final = 15
SMALLEST_PLAIN: Final = -4
QUOTED: Final = re.compile(rb'[\s{}",\\]|^$|^null$', re.IGNORECASE)


def instant_output(value: bytes) -> bytes:
    """Return the text of an instant: microseconds since the year 2000; the ends of 64 bits are infinite."""
    moment = int.from_bytes(value, signed=True)
    if abs(moment) >= 2**63 - 1:
        return FIRST if moment < 0 else LAST
    days, rest = divmod(moment, DAY)
    year, month, day = date_of(days)
    seconds, fraction = divmod(rest, 1_000_000)
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{digits}+00"
    # There is no year 0: the one before the first is the year 1 BC.
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04}-{month:02}-{day:02} {clock}{era}".encode()


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 2000-01-01, in the Gregorian calendar for ever."""
    # The year begins in March, so that the day of a leap year is its last.
    era, of_era = divmod(days + EPOCH_DAYS, ERA_DAYS)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    real = month + 3 if month < 10 else month - 9  # noqa: PLR2004  # ten months from March to December
    return year + era * 400 + (real <= 2), real, day  # noqa: PLR2004  # January and February


def float_output(value: bytes) -> bytes:
    """Return the shortest text that gives a double back."""
    (number,) = struct.unpack(">d", value)
    if number - number != 0:
        return b"NaN" if number != number else b"Infinity" if number > 0 else b"-Infinity"  # noqa: PLR0124  # not a number
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    scale = len(digits) + int(exponent) - 1
    text = "".join(map(str, digits))
    minus = "-" if sign else ""
    if SMALLEST_PLAIN <= scale < LARGEST_PLAIN:
        return f"{minus}{format(Decimal((0, digits, int(exponent))), 'f')}".encode()
    point = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{point}e{'-' if scale < 0 else '+'}{abs(scale):02}".encode()


def uuid_output(value: bytes) -> bytes:
    """Return the text of a UUID."""
    return str(UUID(bytes=value)).encode()


def whole_output(value: bytes) -> bytes:
    """Return the text of an integer of any width."""
    return b"%d" % int.from_bytes(value, signed=True)


def array_output(value: bytes, output: Callable[[bytes], bytes]) -> bytes:
    """Return the text of an array, with its bounds where they do not begin with one.

    Args:
        value: the array.
        output: returns the text of a member, quoted where it must be.
    """
    dimensions = int.from_bytes(value[:4], signed=True)
    if not dimensions:
        return b"{}"
    bounds = [struct.unpack_from(">ii", value, 12 + 8 * number) for number in range(dimensions)]
    members = members_of(value[12 + 8 * dimensions :], output)
    text = nested(members, [length for length, _ in bounds])
    if all(first == 1 for _, first in bounds):
        return text
    head = b"".join(b"[%d:%d]" % (first, first + length - 1) for length, first in bounds)
    return head + b"=" + text


def members_of(value: bytes, output: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield the members of an array as their text."""
    position = 0
    while position < len(value):
        length = int.from_bytes(value[position : position + 4], signed=True)
        position += 4
        yield b"NULL" if length < 0 else output(value[position : position + length])
        position += max(length, 0)


def quoted(member: bytes) -> bytes:
    """Return a member as the server writes it."""
    if QUOTED.search(member) is None:
        return member
    return b'"' + member.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def nested(members: Iterator[bytes], lengths: list[int]) -> bytes:
    """Return some members in as many braces as there are dimensions."""
    length, *rest = lengths
    parts = (nested(members, rest) if rest else next(members) for _ in range(length))
    return b"{" + b",".join(parts) + b"}"
