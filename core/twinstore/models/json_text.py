"""The JSON text of values: timestamps, numbers and free JSON in their one canonical spelling."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from operator import length_hint
from typing import TYPE_CHECKING, Final, LiteralString, NoReturn, cast

import orjson
import pydantic_core

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "DEEPEST",
    "LARGE_TEXT",
    "JsonObject",
    "JsonValue",
    "checked_number",
    "dumps",
    "dumps_pretty",
    "format_timestamp",
    "loads",
    "normalised_object",
    "parse_json",
    "plain_utc",
    "truncated",
]


JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]

# Below it Python's repr, which is the canonical form, uses an exponent of two digits; orjson does not.
SMALLEST_PLAIN_FLOAT: Final = 1e-4
# What every such number contains as orjson spells it, and other texts seldom contain.
SMALL_FLOATS: Final = (b"e-", b"0.0000")
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
# Bytes or characters from which on memory counts for more than time.
LARGE_TEXT: Final = 100_000
WIDE_NUMBER: Final = re.compile(r"[0-9]{19}|[eE][+-]?[0-9]{3}")
WIDE_NUMBER_BYTES: Final = re.compile(WIDE_NUMBER.pattern.encode())
# MongoDB takes a hundred levels, of which the document around free JSON needs some.
DEEPEST: Final = 90


def format_timestamp(value: datetime) -> str:
    """Return ISO 8601 text with offset ``+00:00``; the fraction only when non-zero, with three digits.

    Args:
        value: an instant in UTC with whole milliseconds, as every model holds it.
    """
    text = orjson.dumps(value)  # three times as fast as isoformat, and every document pays for it
    return f"{text[1:24].decode()}+00:00" if value.microsecond else text[1:-1].decode()


def format_decimal(value: Decimal) -> str:
    """Return the digits of a decimal with its scale and without an exponent, such as ``1.50``."""
    return format(value, "f")


def format_bytes(value: bytes) -> str:
    """Return standard base64 with padding."""
    return b64encode(value).decode("ascii")


def dumps(value: object) -> bytes:
    """Return compact UTF-8 JSON of a value whose maps are already in canonical order."""
    return orjson.dumps(value, default=_unusual, option=orjson.OPT_PASSTHROUGH_DATETIME)


def dumps_pretty(value: object) -> bytes:
    """Return the same JSON with two blanks of indent and one final line feed."""
    options = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, default=_unusual, option=options)


def dumps_sorted(value: object) -> bytes:
    """Return compact JSON with the keys of every object in code point order."""
    return orjson.dumps(
        value, default=_unusual, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_SORT_KEYS
    )


def _unusual(value: object) -> str:
    if isinstance(value, datetime):
        return format_timestamp(plain_utc(value))
    if isinstance(value, Decimal):
        return format_decimal(value)
    if isinstance(value, bytes):
        return format_bytes(value)
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")  # met by programmers only


def loads(text: bytes | str) -> JsonValue:
    """Return the value of a JSON text that a store gave or this library wrote; of equal keys the last counts.

    Raises:
        orjson.JSONDecodeError: malformed JSON, or NaN or an infinity.
    """
    if len(text) >= LARGE_TEXT and not _has_wide_numbers(text):
        try:
            # The other one has a second form of the whole text in memory while it makes the values.
            value: JsonValue = pydantic_core.from_json(text, allow_inf_nan=False, cache_strings="keys")
        except ValueError:
            # It refuses more than 200 levels too.
            pass
        else:
            return value
    found: JsonValue = orjson.loads(text)
    return found


def _has_wide_numbers(text: bytes | str) -> bool:
    """Whether a text may contain a number of which two parsers make different values.

    Beyond 64 bits one makes an integer and the other a float, as a server writes 1e20 out in full; beyond any
    float one makes an infinity and the other refuses it. A text of so many digits counts as such a number.
    """
    found = WIDE_NUMBER_BYTES.search(text) if isinstance(text, bytes) else WIDE_NUMBER.search(text)
    return found is not None


def exact_number(text: str) -> float | Decimal:
    """Return a number as a double, or as a decimal, which no model accepts, if a double has other digits."""
    value = float(text)
    return value if digits_of(text) == digits_of(repr(value)) else Decimal(text)


def digits_of(number: str) -> str:
    """Return the digits of a number without zeros at both ends, sign and exponent."""
    return number.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")


def parse_json(text: bytes | str, parse_float: Callable[[str], float] = float) -> JsonValue:
    """Return the value of a JSON text.

    Args:
        text: the text.
        parse_float: makes the numbers with a point or an exponent.

    Raises:
        ValueError: malformed JSON, a byte order mark, a duplicate key, or NaN or an infinity.
    """
    if isinstance(text, bytes):
        # Strictly, and before the parser, which would guess another encoding from the first bytes.
        text = text.decode("utf-8")
    # Not orjson, which keeps the last of two equal keys in silence.
    value: JsonValue = json.loads(
        text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=parse_float
    )
    return value


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add answers None, which is what "not seen yet" needs
        raise ValueError(
            f"duplicate key {duplicate!r}; keep one of them"
        )  # becomes the message of a ValidationError
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")  # becomes the message of a ValidationError


TOO_DEEP: Final = "json_depth"
# What makes an object of free JSON of a value.
MAKERS: Final[Mapping[type, str]] = {datetime: "date_object", bytes: "binary_object"}


class PartRefusedError(ValueError):
    """A part of free JSON is refused.

    Attributes:
        error: why; it repeats nothing of the value.
        path: the names and numbers that lead to the part, the innermost one first.
    """

    def __init__(self, error: pydantic_core.PydanticCustomError, name: str | int) -> None:
        super().__init__(error.message())
        self.error = error
        self.path: list[str | int] = [name]


def normalise(value: object, level: int = 1) -> JsonValue:
    """Return free JSON in canonical form: keys sorted, whole floats as integers, finite numbers only.

    Raises:
        PydanticCustomError: no JSON, a number or text that one of the stores would change or refuse, or more
            than :data:`DEEPEST` levels.
        PartRefusedError: the same of a part, but for the levels.
    """
    if isinstance(value, str):
        return _plain_text(value)
    # Before the numbers, since a bool is an int.
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return checked_number(value)
    if level > DEEPEST:
        raise _refusal(f"nested deeper than {DEEPEST} levels", TOO_DEEP)
    if isinstance(value, dict):
        return normalised_object(cast("dict[object, object]", value), level)
    if isinstance(value, list):
        values = cast("list[object]", value)
        items = iter(values)
        try:
            return [normalise(item, level + 1) for item in items]
        except (PartRefusedError, pydantic_core.PydanticCustomError) as error:
            raise _around(error, len(values) - length_hint(items) - 1) from None
    if isinstance(value, Decimal):
        raise _refusal(_decimal_rule(value))
    maker = next((name for kind, name in MAKERS.items() if isinstance(value, kind)), None)
    hint = "" if maker is None else f"; give twinstore.module.{maker}(...)"
    raise _refusal(f"{type(value).__name__} is not a JSON value{hint}")


def _decimal_rule(value: Decimal) -> str:
    """Return why free JSON does not have a decimal."""
    if not value.is_finite():
        return f"decimal is {'NaN' if value.is_nan() else 'infinite'}, which not every store can hold"
    if value.is_zero() and value.is_signed():
        return "decimal is minus zero, which not every store can hold"
    return "number has other digits than a double; give a float, or twinstore.module.decimal_object(...)"


def _around(error: PartRefusedError | pydantic_core.PydanticCustomError, name: str | int) -> ValueError:
    """Return the error of a part for what holds it under a name or number."""
    if isinstance(error, PartRefusedError):
        error.path.append(name)
        return error
    # The path of what is too deep would have as many names.
    return error if error.type == TOO_DEEP else PartRefusedError(error, name)


def normalised_object(value: Mapping[object, object], level: int = 1) -> JsonObject:
    """Return an object of free JSON in canonical form; see :func:`normalise`."""
    names: list[str] = []
    for name in value:
        if type(name) is not str:
            return normalised_object({_plain_name(name): item for name, item in value.items()}, level)
        names.append(_plain_text(name))
    # Most objects have one name, or are sorted already; sorting costs little then.
    names.sort()
    found: JsonObject = {}
    name = ""
    try:
        # Loops, because every document with free JSON passes here and a comprehension is a call more.
        for name in names:
            found[name] = normalise(value[name], level + 1)
    except (PartRefusedError, pydantic_core.PydanticCustomError) as error:
        raise _around(error, name) from None
    return found


def _refusal(rule: str, kind: LiteralString = "json_value") -> pydantic_core.PydanticCustomError:
    """Return the error of a value that free JSON does not have; the rule repeats nothing of the value."""
    # Not a plain ValueError: pydantic begins its message with a prefix.
    return pydantic_core.PydanticCustomError(kind, "{rule}", {"rule": rule})


def _plain_name(name: object) -> str:
    if not isinstance(name, str):
        raise _refusal(f"{type(name).__name__} is not a name in a JSON object")
    return _plain_text(name)


def _plain_text(value: str) -> str:
    """Return a text that every store accepts, even if it is of a subclass, as enumerations are."""
    if type(value) is not str:
        # What the text is, and not what its class shows of it.
        value = str.__str__(value)
    if "\x00" in value:
        raise _refusal("text contains U+0000, which PostgreSQL cannot store")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _refusal("text contains a lone surrogate, which no store accepts") from None
    return value


def checked_number(value: float) -> int | float:
    """Return a finite number, as an integer where it is whole.

    Raises:
        PydanticCustomError: it is not finite, or whole and beyond 64 bits.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal("number is not finite")
        if not value.is_integer():
            # numpy has its own class for such numbers.
            return value if type(value) is float else float.__float__(value)
    # A driver may have its own class for integers of 64 bits.
    value = int(value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise _refusal("whole number does not fit into 64 bits")
    return value


def may_need_repr(text: bytes) -> bool:
    """Whether a text of :func:`dumps` may contain a number that the canonical form spells otherwise."""
    return any(mark in text for mark in SMALL_FLOATS)


def encodable(value: JsonValue) -> object:
    """Return free JSON for :func:`dumps`: small floats keep their Python ``repr`` spelling.

    orjson writes ``1e-5`` where the canonical form, Python's ``repr``, is ``1e-05``.
    """
    if isinstance(value, float) and abs(value) < SMALLEST_PLAIN_FLOAT:
        return orjson.Fragment(repr(value))
    if isinstance(value, dict):
        return {key: encodable(item) for key, item in value.items()}
    # Models have tuples where JSON has lists.
    if isinstance(value, (list, tuple)):
        return [encodable(item) for item in value]
    return value


# Instants as everything below holds them: plain datetimes in UTC with whole milliseconds.


def plain_utc(value: datetime) -> datetime:
    """Return an aware instant as a :class:`datetime.datetime` in UTC, whatever subclass it was.

    A subclass stays one through ``astimezone``, ``replace`` and arithmetic, and neither JSON nor a database
    client takes it.

    Raises:
        OverflowError: it leaves the years 1 to 9999.
    """
    utc = value if value.tzinfo is UTC else value.astimezone(UTC)
    return utc if type(utc) is datetime else datetime.combine(utc.date(), utc.time(), UTC)


def truncated(value: datetime) -> datetime:
    """Return an instant without its microseconds beyond the millisecond."""
    # Cut and not rounded: a rounded instant could lie in the future. Both stores then hold the same one.
    beyond = value.microsecond % 1000
    return value.replace(microsecond=value.microsecond - beyond) if beyond else value
