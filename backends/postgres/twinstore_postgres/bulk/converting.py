"""How the text of a column becomes a JSON value, by the type that the server gives the column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from twinstore.jsontext import INT64_MAX, INT64_MIN, loads
from twinstore.stored import marked

if TYPE_CHECKING:
    from twinstore.enums import NumberedEnum

__all__ = ["Convert", "converter_of", "digits_text", "instant_of", "is_array"]

Convert = Callable[[str], object]

# Nearly every instant is one of these two, which need no more than a letter changed.
INSTANT_LENGTHS: Final = frozenset({len("2025-10-26 14:05:00+00"), len("2025-10-26 14:05:00.123+00")})
SEPARATOR: Final = 10
LONGEST: Final = len(str(INT64_MIN))
# A zero at the end of a fraction, or more digits than a double or 64 bits may hold. The server writes no
# exponents, and a blank after each colon and comma.
ODD_NUMBER: Final = re.compile(r"(?:^|[\[ ])-?(?:\d+\.\d*0(?=[],}]|$)|\d*\.?\d{15})")


def is_array(type_name: str) -> bool:
    """Whether the server calls so the type of an array."""
    return type_name.startswith("_")


def converter_of(type_name: str, numbers: type[NumberedEnum] | None) -> Convert | None:
    """Return how the text of a column becomes a JSON value, ``None`` when it is the value.

    Args:
        type_name: the type, as the catalog of the server names it; arrays are selected as JSON.
        numbers: the enumeration whose numbers an integer stands for.
    """
    if numbers is not None and CONVERTERS.get(type_name) is int:
        return member(numbers)
    return array_value if is_array(type_name) else CONVERTERS.get(type_name)


def instant_text(text: str) -> str:
    """Return the canonical text of an instant as the server writes it; one outside the calendar stays."""
    if len(text) in INSTANT_LENGTHS and text[SEPARATOR] == " ":
        return f"{text.replace(' ', 'T')}:00"
    # The server leaves out the zeros at the end of a fraction.
    if text[19:20] == "." and text.endswith("+00"):
        return f"{text[:SEPARATOR]}T{text[11:20]}{text[20:-3]:0<3}+00:00"
    return text


def digits_text(text: str) -> str:
    """Return the digits of a UUID, as keys have them."""
    return text.replace("-", "")


def instant_of(text: str) -> datetime | None:
    """Return an instant as the server writes it, ``None`` outside the calendar."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def json_value(text: str) -> object:
    """Return a JSONB value; a number whose text is not the one that a driver writes is marked.

    The server keeps ``1.50`` and ``1.0`` as they were given, although it calls them equal to others.
    """
    # Text inside a string that looks like such a number costs time only.
    if ODD_NUMBER.search(text):
        return json.loads(text, parse_float=fraction, parse_int=whole)
    return loads(text)


def array_value(text: str) -> object:
    """Return an array; one that begins at another place than the first comes in an object, and is marked."""
    value = json_value(text)
    return marked("bounds", value["bounds"]) if isinstance(value, dict) else value


def number(text: str) -> object:
    """Return a number of a column; one that JSON does not have is marked."""
    return whole(text) if text.removeprefix("-").isdecimal() else fraction(text)


def whole(text: str) -> object:
    """Return an integer; one that no driver writes is marked."""
    if len(text) <= LONGEST and INT64_MIN <= (value := int(text)) <= INT64_MAX:
        return value
    return marked("number", text)


def fraction(text: str) -> object:
    """Return a number with a fraction; in another spelling than its shortest one, and whole, it is marked."""
    value = float(text)
    if value - value != 0 or value.is_integer():
        return marked("number", text)
    return value if format(Decimal(repr(value)), "f") == text else marked("number", text)


def truth(text: str) -> bool:
    """Return a boolean as the server writes it."""
    return text == "t"


def member(numbers: type[NumberedEnum]) -> Convert:
    """Return how a number becomes the text of an enumeration; an unknown number stays."""
    texts = {str(item.number): item.value for item in numbers}
    return lambda text: texts.get(text) or int(text)


CONVERTERS: Final[Mapping[str, Convert]] = {
    "bool": truth,
    "int2": int,
    "int4": int,
    "int8": int,
    "float4": number,
    "float8": number,
    "numeric": number,
    "timestamptz": instant_text,
    "json": json_value,
    "jsonb": json_value,
}
