"""Field types of the models: one place where text, numbers and instants are normalised.

The checks that run for every document are native to pydantic-core where it can express them, because a
Python function per field would cost more than reading the document from the server.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from operator import eq, lt
from typing import TYPE_CHECKING, Annotated, Final, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.types import Strict
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, ValidationError, core_schema

from twinstore.models.json_text import (
    PartRefusedError,
    checked_number,
    format_bytes,
    format_decimal,
    format_timestamp,
    normalise,
    normalised_object,
    plain_utc,
    truncated,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import ErrorDetails

    from twinstore.models.json_text import JsonObject

__all__ = [
    "DATE",
    "INT32_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "Actor",
    "BinaryUuid",
    "Bytes",
    "Count",
    "Count32",
    "DecimalNumber",
    "DigestSet",
    "DigestText",
    "ExtraProperties",
    "Flag",
    "FreeList",
    "FreeObject",
    "Id",
    "Int64",
    "LowerKeyMap",
    "LowerKeyObject",
    "Name",
    "Number",
    "ObjectIdText",
    "OptionalReference",
    "OptionalText",
    "PositiveInt",
    "PositiveInt32",
    "SchemaVersion",
    "SimpleIdentifier",
    "StringSet",
    "TenantId",
    "Text",
    "TextMap",
    "Timestamp",
    "Trimmed",
    "TrimmedKeyMap",
    "date_in",
    "date_object",
    "explain",
    "is_empty",
    "parse_timestamp",
]


INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1
EXACT_DOUBLE: Final = 2**53  # up to which every integer is a double
SYSTEM_TENANT: Final = "system"
MICROSECONDS: Final = 1000  # of a millisecond
# What Unicode calls white space, and so what pydantic trims. Python trims four control characters more.
BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)
# A map with more is inspected before it is rebuilt.
MANY_NAMES: Final = 50

# JSONB refuses U+0000 and BSON keeps it; a lone surrogate is refused by pydantic-core itself.
NO_NUL: Final = r"^[^\x00]*$"
NO_CONTROL: Final = r"^\P{Cc}*$"
OBJECT_ID_PATTERN: Final = r"^[0-9a-f]{24}$"
UUID_PATTERN: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
TENANT_PATTERN: Final = r"^[^\p{Cc}:]*$"
# Up to nine digits, as other languages write them; what lies below one millisecond is cut.
TIMESTAMP_TEXT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)
# The form in which instants are written here, and so that of nearly all that are read. The offset is spelled
# out, because Python then answers with UTC itself.
CANONICAL_TIMESTAMP: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{3})?\+00:00", re.ASCII)
# The instants of one document repeat themselves, and those of a batch even more.
RECENT_INSTANTS: Final = 64
PATTERN_RULES: Final = {
    OBJECT_ID_PATTERN: "Text is no ObjectId; write its 24 hexadecimal digits in lower case",
    UUID_PATTERN: "Text is no UUID; write its 36 characters in lower case",
    NO_NUL: "Text contains U+0000, which PostgreSQL cannot store; remove it",
    NO_CONTROL: "Id contains a control character; remove it",
    TENANT_PATTERN: "Tenant id contains a colon or a control character; use another id",
}


UNKNOWN_PROPERTY: Final = "Unknown property; remove it or correct its name"


def explain(problem: ErrorDetails) -> str:
    """Return one sentence about a failed field: the rule and what to do, never the value."""
    if problem["type"] == "extra_forbidden":
        return UNKNOWN_PROPERTY
    if problem["type"] == "missing":
        return "Required property is missing"
    pattern = problem.get("ctx", {}).get("pattern")
    return PATTERN_RULES.get(str(pattern), problem["msg"].removeprefix("Value error, "))


class WholeNumber:
    """A signed 64-bit integer; a floating-point value without a fraction counts as one.

    The strict native check answers first, so ordinary integers never reach Python code.
    """

    def __init__(self, minimum: int = INT64_MIN, maximum: int = INT64_MAX) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return native integer validation with a fallback for whole floats."""
        strict = core_schema.int_schema(strict=True, ge=self.minimum, le=self.maximum)
        whole = core_schema.no_info_before_validator_function(integer_from_whole_float, strict)
        bits = 64 if self.maximum == INT64_MAX else 32
        kind = "a whole number" if self.minimum == INT64_MIN else f"a whole number from {self.minimum}"
        return core_schema.union_schema(
            [strict, whole],
            mode="left_to_right",
            custom_error_type="int64",
            custom_error_message=f"Input should be {kind} that fits into {bits} bits",
        )

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return one integer with its bounds; both sides of the union above are the same to a reader."""
        del core
        return handler(core_schema.int_schema(ge=self.minimum, le=self.maximum))


def integer_from_whole_float(value: object) -> object:
    """Turn ``3.0`` into ``3``; leave everything else to the strict check behind."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def parse_timestamp(value: object) -> datetime:
    """Return an aware UTC instant with whole milliseconds.

    Args:
        value: an aware datetime, or ISO 8601 text with seconds and an offset.

    Raises:
        PydanticCustomError: naive, malformed, or outside the years 1 to 9999 once in UTC.
    """
    if type(value) is datetime and value.tzinfo is UTC and not value.microsecond % MICROSECONDS:
        return value  # the instants of every stored document leave here
    if type(value) is str:
        return instant_of_text(value)
    return _normalised(_datetime_from_text(value) if isinstance(value, str) else value)


@lru_cache(maxsize=RECENT_INSTANTS)
def instant_of_text(text: str) -> datetime:
    """Return the instant that a text denotes; see :func:`parse_timestamp`."""
    if CANONICAL_TIMESTAMP.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # no calendar has it; refused below like any other text
    return _normalised(_datetime_from_text(text))


def _normalised(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise PydanticCustomError(
            "timestamp_type", "Input should be a timestamp such as 2025-10-26T14:05:00+00:00"
        )
    return truncated(_to_utc(value))


def _datetime_from_text(text: str) -> datetime:
    if TIMESTAMP_TEXT.fullmatch(text):  # fromisoformat takes more, even "Z" with U+0000 in place of seconds
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass  # a day that no calendar has, such as 30 February; refused below like any other text
    raise PydanticCustomError(
        "timestamp_text",
        "Input should be ISO 8601 text with seconds and an offset, such as 2025-10-26T14:05:00+00:00",
    )


def _to_utc(value: datetime) -> datetime:
    if value.tzinfo is None or value.utcoffset() is None:
        raise PydanticCustomError(
            "timestamp_naive", "Timestamp has no offset; give an aware value, for example in UTC (+00:00)"
        )
    try:
        return plain_utc(value)
    except OverflowError:
        raise PydanticCustomError(
            "timestamp_range", "Timestamp is outside the years 1 to 9999 in UTC"
        ) from None


def exact_double(value: object) -> object:
    """Refuse an integer that a double would change; a driver may have its own class for those of 64 bits."""
    if isinstance(value, int) and EXACT_DOUBLE < abs(value) <= INT64_MAX and int(float(value)) != value:
        raise PydanticCustomError("number_digits", "Whole number has more digits than a double keeps")
    return value


def refuse_system_tenant(value: str) -> str:
    """Refuse the reserved name, which represents access to every tenant."""
    if value == SYSTEM_TENANT:
        raise PydanticCustomError(
            "reserved_tenant", "Tenant 'system' is reserved; use the id of a real tenant"
        )
    return value


def string_set(values: tuple[str, ...]) -> tuple[str, ...]:
    """Drop blanks and duplicates and sort by code point; the values are already trimmed."""
    # Most sets have none or one, and nearly all are read as they were stored; this runs for every document.
    if not values or (values[0] and (len(values) == 1 or is_strictly_sorted(values))):
        return values
    return tuple(sorted({value for value in values if value}))


def sorted_map(values: dict[str, str]) -> dict[str, str]:
    """Return the map with its keys in code point order."""
    # The map was made for the model, so it may be kept. Of very many names another one, and what sorts it,
    # would take several times as much memory as the document.
    if len(values) > MANY_NAMES and is_strictly_sorted(values):
        return values
    return {key: values[key] for key in sorted(values)}


def lower_key_map(values: dict[str, str]) -> dict[str, str]:
    """Trim keys and values, lower-case the keys, drop blank ones, let the last duplicate win, and sort."""
    if not values:
        return values
    # Here and not by pydantic, which makes another text of each, also where nothing is to be trimmed.
    if len(values) <= MANY_NAMES:
        found = {key.strip(BLANKS).lower(): value.strip(BLANKS) for key, value in values.items()}
        if len(found) == len(values) and "" not in found:
            return sorted_map(found)
    # In two steps, because they decide which of several equal keys is the last.
    if not (are_trimmed(values) and are_trimmed(values.values())):
        values = {key.strip(BLANKS): value.strip(BLANKS) for key, value in values.items()}
    if "" in values or not all(map(eq, values, map(str.lower, values))):
        values = {key.lower(): value for key, value in values.items() if key}
    return sorted_map(values)


def are_trimmed(texts: Collection[str]) -> bool:
    """Whether no text has outer blanks; may be false if one has an outer control character."""
    return all(map(eq, texts, map(str.strip, texts)))


def is_strictly_sorted(texts: Collection[str]) -> bool:
    """Whether each text is greater than the one before it, by code point."""
    return all(map(lt, texts, islice(texts, 1, None)))


def free_object(value: object) -> JsonObject:
    """Return an object of free JSON in canonical form, at every depth."""
    # All of it here: the schema that pydantic has for JSON calls a function for each value, too.
    if not isinstance(value, dict):
        raise PydanticCustomError("json_object", "Input should be a JSON object")
    try:
        return normalised_object(cast("dict[object, object]", value))
    except PartRefusedError as error:
        raise placed(error) from None


def free_list(value: object) -> list[JsonValue]:
    """Return a list of free JSON in canonical form, at every depth."""
    if not isinstance(value, list):
        raise PydanticCustomError("json_list", "Input should be a JSON array")
    try:
        return cast("list[JsonValue]", normalise(cast("list[object]", value)))
    except PartRefusedError as error:
        raise placed(error) from None


def placed(error: PartRefusedError) -> ValidationError:
    """Return the error of a validator that names the place of a refused part, and nothing of its value."""
    problem = InitErrorDetails(type=error.error, loc=tuple(reversed(error.path)), input=None)
    return ValidationError.from_exception_data("free JSON", [problem], hide_input=True)


def lower_key_object(value: object) -> JsonObject:
    """Return the same with the names of the first level in lower case; of two equal ones the last wins."""
    found = free_object(value)
    for name in found:
        if name != name.lower():
            return dict(sorted({name.lower(): item for name, item in found.items()}.items()))
    return found


def trimmed_key_map(values: dict[str, str]) -> dict[str, str]:
    """Trim the keys, let the last of equal ones win, and sort; the values stay as they are."""
    return sorted_map({key.strip(BLANKS): value for key, value in values.items()})


def is_empty(value: object) -> bool:
    """Whether a value with this ``exclude_if`` is omitted from the wire form: an empty list or map, or 0."""
    return not value


def empty_to_none(value: str | None) -> str | None:
    """Turn an empty text into ``None``."""
    return value or None


class SchemaVersion:
    """The format version of an entity: blank becomes the current one, another one is refused."""

    def __init__(self, current: str) -> None:
        """Take the current version, for example ``library.book@1``."""
        self.current = current

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a validator that answers with the current version only."""
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the one text that is stored and emitted."""
        del core, handler
        return {"type": "string", "const": self.current}

    def _check(self, value: object) -> str:
        if value == self.current or value is None or (isinstance(value, str) and not value.strip()):
            return self.current
        raise PydanticCustomError(
            "schema_version",
            "Schema version should be {current}; convert the document first",
            {"current": self.current},
        )


plain_text = StringConstraints(strict=True, pattern=NO_NUL)
trimmed_text = StringConstraints(strict=True, strip_whitespace=True, pattern=NO_NUL)

Text = Annotated[str, plain_text]
Trimmed = Annotated[str, trimmed_text]
Actor = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, pattern=NO_NUL)]
Name = Annotated[
    str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=200, pattern=NO_NUL)
]
Id = Annotated[
    str,
    StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=256, pattern=NO_CONTROL),
]
TenantText = Annotated[
    str,
    StringConstraints(
        strict=True, strip_whitespace=True, min_length=1, max_length=128, pattern=TENANT_PATTERN
    ),
]
TenantId = Annotated[TenantText, AfterValidator(refuse_system_tenant)]
SimpleIdentifier = Annotated[
    str,
    StringConstraints(
        strict=True,
        strip_whitespace=True,
        to_lower=True,
        max_length=128,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$",
    ),
]
OptionalText = Annotated[Trimmed | None, AfterValidator(empty_to_none)]
# Filter keys: PostgreSQL cannot index much longer text, and no id is longer.
OptionalReference = Annotated[
    Annotated[str, StringConstraints(strict=True, strip_whitespace=True, max_length=256, pattern=NO_NUL)]
    | None,
    AfterValidator(empty_to_none),
]
DigestText = Annotated[str, StringConstraints(strict=True, pattern=r"^sha256:[0-9a-f]{64}$")]
StringSet = Annotated[tuple[Trimmed, ...], AfterValidator(string_set)]
DigestSet = Annotated[tuple[DigestText, ...], AfterValidator(string_set)]
TextMap = Annotated[dict[Text, Text], AfterValidator(sorted_map)]
TrimmedKeyMap = Annotated[dict[Text, Text], AfterValidator(trimmed_key_map)]
LowerKeyMap = Annotated[dict[Text, Text], AfterValidator(lower_key_map)]
Number = Annotated[float, Strict(), BeforeValidator(exact_double), AfterValidator(checked_number)]
# JSON of any form; only normalised, because what it means is known to the caller alone.
FreeObject = Annotated[
    dict[str, JsonValue], PlainValidator(free_object, json_schema_input_type=dict[str, JsonValue])
]


@dataclass(frozen=True, slots=True)
class KeepsUnknown:
    """Marks the field that holds the properties which the description of an entity does not name."""


# Documents have these properties next to the fields, under their own names.
ExtraProperties = Annotated[
    dict[str, JsonValue],
    PlainValidator(free_object, json_schema_input_type=dict[str, JsonValue]),
    KeepsUnknown(),
]
FreeList = Annotated[list[JsonValue], PlainValidator(free_list, json_schema_input_type=list[JsonValue])]
LowerKeyObject = Annotated[
    dict[str, JsonValue], PlainValidator(lower_key_object, json_schema_input_type=dict[str, JsonValue])
]
Int64 = Annotated[int, WholeNumber()]
Count = Annotated[int, WholeNumber(minimum=0)]
PositiveInt = Annotated[int, WholeNumber(minimum=1)]
# For fields that a table holds in 32 bits: one of the stores would refuse what the other takes.
Count32 = Annotated[int, WholeNumber(minimum=0, maximum=INT32_MAX)]
PositiveInt32 = Annotated[int, WholeNumber(minimum=1, maximum=INT32_MAX)]
Flag = Annotated[bool, Strict()]
Timestamp = Annotated[
    datetime,
    PlainValidator(parse_timestamp),
    PlainSerializer(format_timestamp, return_type=str, when_used="json"),
    # Both directions: what is read has the form of what is written, with any offset.
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


# Values of types that JSON does not have. Their wire form is a text, and each kind of store has its own type.


# What Decimal128 holds of a number: its digits, and where the last of them stands.
DECIMAL_DIGITS: Final = 34
LAST_DECIMAL_PLACE: Final = -6176
DECIMAL_TEXT: Final = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,5})?", re.ASCII)
DECIMAL_PATTERN: Final = r"^-?[0-9]+(\.[0-9]+)?$"
NOT_FINITE: Final = re.compile(r"[+-]?(?:s?nan|inf(?:inity)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StoredType:
    """Marks an annotation whose values have a type of their own in stores; ``kind`` is its name."""

    kind: str


def decimal_number(value: object) -> Decimal:
    """Return a decimal without a positive exponent; its scale stays as it is.

    Raises:
        PydanticCustomError: it is a float, not finite, minus zero, or has more digits than Decimal128.
    """
    if isinstance(value, str) and (DECIMAL_TEXT.fullmatch(value) or NOT_FINITE.fullmatch(value)):
        value = Decimal(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        # A driver may have its own class for integers of 64 bits. Of many digits no text is made.
        value = Decimal(int(value))
    if not isinstance(value, Decimal):
        raise _decimal_refusal("Input should be a Decimal, an integer or a text of digits, and no float")
    if not value.is_finite():
        raise _decimal_refusal(f"{'NaN' if value.is_nan() else 'Infinity'} is no decimal that stores share")
    if value.is_zero() and value.is_signed():
        raise _decimal_refusal("Minus zero is no decimal that stores share; write 0")
    sign, digits, exponent = value.as_tuple()
    place = 0 if value.is_zero() and int(exponent) > 0 else int(exponent)
    if len(digits) + max(place, 0) > DECIMAL_DIGITS:
        raise _decimal_refusal(f"Decimal has more than {DECIMAL_DIGITS} significant digits")
    if place < LAST_DECIMAL_PLACE:
        raise _decimal_refusal(f"Decimal has more than {-LAST_DECIMAL_PLACE} digits after the point")
    if place > 0 or place != exponent:
        return Decimal((sign, (*digits, *(0,) * place), 0))
    return value if type(value) is Decimal else Decimal(value)


def _decimal_refusal(rule: str) -> PydanticCustomError:
    return PydanticCustomError("decimal_number", "{rule}", {"rule": rule})


def bytes_value(value: object) -> bytes:
    """Return bytes, also those of a text in standard base64 with padding.

    Raises:
        PydanticCustomError: it is neither, or of a class of a driver, which may be more than bytes.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, str):
        try:
            found = b64decode(value, validate=True)
        except ValueError:  # not in the alphabet, or not padded
            found = None
        # Many texts denote the same bytes, and only one of them comes back.
        if found is not None and format_bytes(found) == value:
            return found
    raise PydanticCustomError("bytes_value", "Input should be bytes, or their standard base64 with padding")


ObjectIdText = Annotated[
    str,
    StringConstraints(strict=True, strip_whitespace=True, pattern=OBJECT_ID_PATTERN),
    StoredType("ObjectId"),
]
BinaryUuid = Annotated[
    str,
    StringConstraints(strict=True, strip_whitespace=True, pattern=UUID_PATTERN),
    StoredType("binary UUID"),
]
DecimalNumber = Annotated[
    Decimal,
    PlainValidator(decimal_number),
    PlainSerializer(format_decimal, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DECIMAL_PATTERN}),
    StoredType("decimal number"),
]
Bytes = Annotated[
    bytes,
    PlainValidator(bytes_value),
    PlainSerializer(format_bytes, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
    StoredType("bytes"),
]


# Dates inside free JSON, which has no type for them: an object with the one name ``$date``.
#
# Its value is the canonical text of the instant. Stores that hold JSON hold the object as it is; a store that
# has a date type stores a date wherever this object occurs inside of free JSON, and reads it as this object.
# Any other object with that name, such as one with an offset other than ``+00:00``, is an object as it is.


DATE: Final = "$date"
"""The one name of an object that represents a date."""


def date_object(instant: datetime) -> JsonObject:
    """Return the object that represents an instant in free JSON; fractions of a millisecond are cut off.

    Raises:
        PydanticCustomError: the instant has no offset, or is outside the years 1 to 9999 in UTC.
    """
    return {DATE: format_timestamp(parse_timestamp(instant))}


def date_in(value: Mapping[str, object]) -> datetime | None:
    """Return the instant that an object of free JSON represents, ``None`` for any other object."""
    text = value.get(DATE)
    if type(text) is not str or len(value) != 1:
        return None
    try:
        found = parse_timestamp(text)
    except PydanticCustomError:
        return None
    # Many texts denote one instant, and only one of them comes back.
    return found if format_timestamp(found) == text else None
