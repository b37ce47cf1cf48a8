"""Numbers of texts and decimals, times a factor, into the type of a field: exactly or not at all."""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import Final

from twinstore.models.fields import INT64_MAX, INT64_MIN
from twinstore.models.shapes import Kind

TEXT: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
# Longer texts are no numbers of anybody.
LONGEST: Final = 400
EXACT: Final = Context(prec=20 * LONGEST, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])
# Of a decimal of 128 bits.
MOST_DIGITS: Final = 34
EXPONENTS: Final = range(-6176, 6112)


class InexactError(ValueError):
    """A number does not fit the field as it is."""


def number_in(value: object, source: str) -> Decimal | None:
    """Return the number that a value of the source is, ``None`` for what is none.

    Args:
        value: the value.
        source: ``text`` or ``decimal``.
    """
    if source == "decimal":
        return value if isinstance(value, Decimal) else None
    is_number = isinstance(value, str) and len(value) <= LONGEST and TEXT.fullmatch(value) is not None
    return Decimal(value) if is_number and isinstance(value, str) else None


def product(number: Decimal, factor: Decimal, kind: Kind | None) -> int | float | Decimal:
    """Return a number times a factor as a field of this kind holds it.

    A place that no model describes gets an integer where one is exact, and a double otherwise.

    Raises:
        InexactError: it would have to be rounded.
    """
    found = EXACT.multiply(number, factor)
    if kind is Kind.DECIMAL:
        return _decimal(found)
    is_whole = found == found.to_integral_value() and INT64_MIN <= found <= INT64_MAX
    if kind is Kind.INTEGER and not is_whole:
        raise InexactError
    if kind is not Kind.NUMBER and is_whole:
        return int(found)
    double = float(found) if found else 0.0
    if not math.isfinite(double) or Decimal(repr(double)) != found:
        raise InexactError
    return double


def _decimal(number: Decimal) -> Decimal:
    # Models write no exponent, and no zero with a sign.
    plain = Decimal(format(number or number.copy_abs(), "f"))
    digits, exponent = plain.as_tuple().digits, plain.as_tuple().exponent
    if len(digits) > MOST_DIGITS or exponent not in EXPONENTS:
        raise InexactError
    return plain
