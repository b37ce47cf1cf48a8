"""Values inside free JSON that JSON has no type for: objects of extended JSON with one name.

Next to ``$date`` of :mod:`twinstore.models.fields` there are ``$oid`` for an ObjectId, ``$numberDecimal`` for
a decimal and ``$binary`` for bytes. Stores that hold JSON hold these objects as they are. A store that has
such types stores a value of the type, at every depth inside of a field, and reads it as the object.

Only the canonical form counts, because only one text of a value comes back. Any other object with one of
these names remains an object.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from twinstore.models.fields import DATE, date_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twinstore.models.json_text import JsonObject

__all__ = [
    "binary_in",
    "binary_object",
    "decimal_in",
    "decimal_object",
    "is_typed_object",
    "oid_in",
    "oid_object",
]


OBJECT_ID: Final = "$oid"
DECIMAL: Final = "$numberDecimal"
BINARY: Final = "$binary"
# What IEEE 754 gives a decimal of 128 bits.
MAX_DIGITS: Final = 34
LEAST_EXPONENT: Final = -6176
MOST_EXPONENT: Final = 6111
OBJECT_ID_TEXT: Final = re.compile(r"[0-9a-f]{24}", re.ASCII)
# Short before it becomes a number: an exponent of many digits takes long.
DECIMAL_TEXT: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:E[+-][0-9]{1,4})?", re.ASCII)
SUBTYPE_TEXT: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)
BINARY_NAMES: Final = frozenset({"base64", "subType"})
MAX_SUBTYPE: Final = 255


def oid_object(digits: str) -> JsonObject:
    """Return the object that represents an ObjectId.

    Raises:
        ValueError: not 24 lower-case hexadecimal digits.
    """
    if OBJECT_ID_TEXT.fullmatch(digits) is None:
        raise ValueError("an ObjectId has 24 lower-case hexadecimal digits")
    return {OBJECT_ID: digits}


def oid_in(value: Mapping[str, object]) -> str | None:
    """Return the 24 digits of the ObjectId that an object represents, ``None`` for any other object."""
    digits = value.get(OBJECT_ID)
    if type(digits) is not str or len(value) != 1:
        return None
    return digits if OBJECT_ID_TEXT.fullmatch(digits) else None


def decimal_object(number: Decimal) -> JsonObject:
    """Return the object that represents a decimal, with its scale: 1.0 and 1.00 are different objects.

    Raises:
        ValueError: NaN, an infinity, minus zero, more than 34 significant digits, or an exponent beyond
            -6176 to 6111.
    """
    if not is_canonical(number):
        raise ValueError(
            f"a decimal of free JSON is finite, not minus zero, and has at most {MAX_DIGITS} digits"
        )
    return {DECIMAL: str(number)}


def decimal_in(value: Mapping[str, object]) -> Decimal | None:
    """Return the decimal that an object represents, ``None`` for any other object."""
    text = value.get(DECIMAL)
    if type(text) is not str or len(value) != 1 or DECIMAL_TEXT.fullmatch(text) is None:
        return None
    found = Decimal(text)
    # `1e3`, `01` and `1E+03` denote numbers, too, and do not come back.
    return found if is_canonical(found) and str(found) == text else None


def is_canonical(number: Decimal) -> bool:
    """Whether a decimal of 128 bits holds a number exactly, and every store gives it back."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or (number.is_zero() and number.is_signed()):
        return False
    return len(digits) <= MAX_DIGITS and LEAST_EXPONENT <= exponent <= MOST_EXPONENT


def binary_object(content: bytes, subtype: int = 0) -> JsonObject:
    """Return the object that represents bytes of a subtype, from 0 to 255; 4 is that of a UUID.

    Raises:
        ValueError: there is no such subtype.
    """
    if not 0 <= subtype <= MAX_SUBTYPE:
        raise ValueError(f"a binary subtype is a number from 0 to {MAX_SUBTYPE}")
    return {BINARY: {"base64": b64encode(content).decode(), "subType": f"{subtype:02x}"}}


def binary_in(value: Mapping[str, object]) -> tuple[bytes, int] | None:
    """Return bytes and subtype that an object represents, ``None`` for any other object."""
    inner = value.get(BINARY)
    if not isinstance(inner, dict) or len(value) != 1 or inner.keys() != BINARY_NAMES:
        return None
    members = cast("dict[str, object]", inner)
    text, subtype = members["base64"], members["subType"]
    if type(text) is not str or type(subtype) is not str or SUBTYPE_TEXT.fullmatch(subtype) is None:
        return None
    try:
        content = b64decode(text)
    except ValueError:
        return None
    # Other texts decode to the same bytes.
    return (content, int(subtype, 16)) if b64encode(content).decode() == text else None


FORMS: Final[Mapping[str, Callable[[Mapping[str, object]], object]]] = {
    DATE: date_in,
    OBJECT_ID: oid_in,
    DECIMAL: decimal_in,
    BINARY: binary_in,
}


def is_typed_object(value: Mapping[str, object]) -> bool:
    """Whether an object of free JSON represents a date, an ObjectId, a decimal or bytes."""
    if len(value) != 1:
        return False
    form = FORMS.get(next(iter(value)))
    return form is not None and form(value) is not None
