"""How the text of a column becomes a JSON value, by the type that the server gives the column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from twinstore.enums import NumberedEnum

__all__ = ["Convert", "converter_of", "instant_of", "is_array"]

Convert = Callable[[str], object]

# Nearly every instant is one of these two, which need no more than a letter changed.
INSTANT_LENGTHS: Final = frozenset({len("2025-10-26 14:05:00+00"), len("2025-10-26 14:05:00.123+00")})
SEPARATOR: Final = 10
LIMIT: Final = 2**63
NULL_MEMBER: Final = '": null'
ZERO_FRACTION: Final = ".0"
WHOLE_FLOAT: Final = re.compile(r"\.0\d*(?:[],}]|$)")


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
    return json_value if is_array(type_name) else CONVERTERS.get(type_name)


def instant_text(text: str) -> str:
    """Return the canonical text of an instant as the server writes it; one outside the calendar stays."""
    if len(text) in INSTANT_LENGTHS and text[SEPARATOR] == " ":
        return f"{text.replace(' ', 'T')}:00"
    # The server leaves out the zeros at the end of a fraction.
    if text[19:20] == "." and text.endswith("+00"):
        return f"{text[:SEPARATOR]}T{text[11:20]}{text[20:-3]:0<3}+00:00"
    return text


def instant_of(text: str) -> datetime | None:
    """Return an instant as the server writes it, ``None`` outside the calendar."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def json_value(text: str) -> object:
    """Return a JSONB value; nulls inside objects are left out, whole floats are integers."""
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    # Both are rare, and both show in the text: the server writes no exponents, and a blank after each colon.
    # Text inside a string that looks the same costs time only.
    if NULL_MEMBER in text or (ZERO_FRACTION in text and WHOLE_FLOAT.search(text)):
        return tidy(value)
    return value


def number(text: str) -> object:
    """Return a number; one that JSON does not have stays text."""
    try:
        return tidy(orjson.loads(text))
    except orjson.JSONDecodeError:
        return text


def tidy(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a JSON value without nulls in objects and with whole floats as integers."""
    if isinstance(value, dict):
        return {name: tidy(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [tidy(item) for item in value]
    # JSON text of a larger integer cannot be written.
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < LIMIT else value


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
