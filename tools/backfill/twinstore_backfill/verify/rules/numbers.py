"""Numbers as pairs of integers: digits, and how many of them are behind the point. Nothing is rounded."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, TypeAlias

from twinstore.models.fields import INT64_MAX, INT64_MIN
from twinstore.models.shapes import Kind

Exact: TypeAlias = tuple[int, int]
"""An integer and the number of its digits behind the point; negative: zeros that follow it."""

TEXT: Final = re.compile(r"(-?[0-9]+)(?:\.([0-9]+))?")
DOUBLE: Final = re.compile(r"(-?[0-9]+)(?:\.([0-9]+))?(?:e([+-]?[0-9]+))?")
# Longer ones are no numbers of anybody, and their powers of ten take long.
LONGEST: Final = 400
# What a decimal of the store holds.
MOST_DIGITS: Final = 34


def of_text(text: str) -> Exact | None:
    """Return the number of a text such as ``-12.50``, ``None`` for any other text."""
    found = TEXT.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return None
    whole, part = found[1], found[2] or ""
    return int(whole + part), len(part)


def of_decimal(value: Decimal) -> Exact:
    """Return the number of a finite decimal."""
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)))
    return (-number if sign else number), -int(exponent)


def product(one: Exact, other: Exact) -> Exact:
    """Return the product."""
    return one[0] * other[0], one[1] + other[1]


def stored(number: Exact, kind: Kind | None) -> int | float | Decimal | None:
    """Return a number in the type of a field, ``None`` if that does not hold it exactly."""
    if kind is Kind.INTEGER:
        return _integer(number)
    if kind is Kind.DECIMAL:
        return _decimal(number)
    whole = _integer(number)
    if kind is not Kind.NUMBER and whole is not None:
        return whole
    return _double(number)


def _integer(number: Exact) -> int | None:
    digits, scale = number
    if not digits:
        return 0
    if scale < 0:
        digits = digits * 10**-scale if -scale <= MOST_DIGITS else INT64_MAX + 1
    else:
        digits, rest = divmod(digits, 10**scale)
        if rest:
            return None
    return digits if INT64_MIN <= digits <= INT64_MAX else None


def _double(number: Exact) -> float | None:
    digits, scale = number
    try:
        # The division of two integers is rounded once, to the nearest double.
        found = digits / 10**scale if scale >= 0 else float(digits * 10**-scale)
    except OverflowError:
        return None
    shown = DOUBLE.fullmatch(repr(found))
    if shown is None:
        return None
    part = shown[2] or ""
    shortest = int(shown[1] + part), len(part) - int(shown[3] or 0)
    return found if _reduced(shortest) == _reduced(number) else None


def _decimal(number: Exact) -> Decimal | None:
    digits, scale = number
    if scale < 0:
        digits, scale = digits * 10 ** min(-scale, LONGEST), 0
    if len(str(abs(digits))) > MOST_DIGITS:
        return None
    # By its parts, because arithmetic of decimals rounds to the digits of its context.
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


def _reduced(number: Exact) -> Exact:
    digits, scale = number
    if not digits:
        return 0, 0
    while digits % 10 == 0:
        digits, scale = digits // 10, scale - 1
    return digits, scale
