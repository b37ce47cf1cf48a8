"""The field types and the rules between fields written the plainest way, to measure the fast ones by.

No code is shared with ``twinstore.models.rules``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator, StringConstraints
from pydantic.types import Strict
from pydantic_core import PydanticCustomError

from twinstore.models import rules as kinds

INT64: Final = 2**63
TIMESTAMP: Final = r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})?"
NO_NUL: Final = r"^[^\x00]*$"
NO_CONTROL: Final = r"^\P{Cc}*$"


def whole(minimum: int) -> BeforeValidator:
    kind = "a whole number" if minimum < 0 else f"a whole number from {minimum}"

    def check(value: object) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number < INT64:
            raise PydanticCustomError(
                "int64", "Input should be {kind} that fits into 64 bits", {"kind": kind}
            )
        return number

    return BeforeValidator(check)


def instant(value: object) -> datetime:
    if isinstance(value, str):
        value = instant_of_text(value)
    if not isinstance(value, datetime):
        raise PydanticCustomError(
            "timestamp_type", "Input should be a timestamp such as 2025-10-26T14:05:00+00:00"
        )
    if value.utcoffset() is None:
        raise PydanticCustomError(
            "timestamp_naive", "Timestamp has no offset; give an aware value, for example in UTC (+00:00)"
        )
    try:
        value = value.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError(
            "timestamp_range", "Timestamp is outside the years 1 to 9999 in UTC"
        ) from None
    day, time = value.date(), value.time()
    return datetime.combine(day, time.replace(microsecond=time.microsecond // 1000 * 1000), UTC)


def instant_of_text(text: str) -> datetime:
    try:
        if re.fullmatch(TIMESTAMP, text, re.ASCII):
            return datetime.fromisoformat(text.upper())
    except ValueError:
        pass
    raise PydanticCustomError(
        "timestamp_text",
        "Input should be ISO 8601 text with seconds and an offset, such as 2025-10-26T14:05:00+00:00",
    )


def no_system(value: str) -> str:
    if value == "system":
        raise PydanticCustomError(
            "reserved_tenant", "Tenant 'system' is reserved; use the id of a real tenant"
        )
    return value


def current(version: str) -> PlainValidator:
    def check(value: object) -> str:
        if value is not None and value != version and not (isinstance(value, str) and not value.strip()):
            raise PydanticCustomError(
                "schema_version",
                "Schema version should be {version}; convert the document first",
                {"version": version},
            )
        return version

    return PlainValidator(check)


def as_set(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))


def by_key(values: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(values.items()))


def by_lower_key(values: Mapping[str, str]) -> dict[str, str]:
    return by_key({key.lower(): value for key, value in values.items() if key})


def or_none(value: str | None) -> str | None:
    return value or None


Text = Annotated[str, StringConstraints(strict=True, pattern=NO_NUL)]
Trimmed = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, pattern=NO_NUL)]
Actor = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, pattern=NO_NUL)]
Name = Annotated[
    str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=200, pattern=NO_NUL)
]
Id = Annotated[
    str,
    StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=256, pattern=NO_CONTROL),
]
TenantId = Annotated[
    str,
    StringConstraints(
        strict=True, strip_whitespace=True, min_length=1, max_length=128, pattern=r"^[^\p{Cc}:]*$"
    ),
    AfterValidator(no_system),
]
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
LabelKey = Annotated[
    str, StringConstraints(strict=True, strip_whitespace=True, to_lower=True, min_length=1, pattern=NO_NUL)
]
OptionalText = Annotated[Trimmed | None, AfterValidator(or_none)]
OptionalReference = Annotated[
    Annotated[str, StringConstraints(strict=True, strip_whitespace=True, max_length=256, pattern=NO_NUL)]
    | None,
    AfterValidator(or_none),
]
DigestText = Annotated[str, StringConstraints(strict=True, pattern=r"^sha256:[0-9a-f]{64}$")]
StringSet = Annotated[tuple[Trimmed, ...], AfterValidator(as_set)]
DigestSet = Annotated[tuple[DigestText, ...], AfterValidator(as_set)]
TextMap = Annotated[dict[Text, Text], AfterValidator(by_key)]
LowerKeyMap = Annotated[dict[Trimmed, Trimmed], AfterValidator(by_lower_key)]
Int64 = Annotated[int, whole(-INT64)]
Count = Annotated[int, whole(0)]
PositiveInt = Annotated[int, whole(1)]
Flag = Annotated[bool, Strict()]
Timestamp = Annotated[datetime, PlainValidator(instant), PlainSerializer(lambda value: value)]


def first_broken(rules: Iterable[kinds.ModelRule], model: object) -> kinds.ModelRule | None:
    return next((rule for rule in rules if not keeps(rule, model)), None)


def keeps(rule: kinds.ModelRule, model: object) -> bool:  # noqa: C901, PLR0911, PLR0912  # one case a kind
    def value(name: str) -> object:
        found: object = model
        for part in name.split("."):
            found = None if found is None else getattr(found, part)
        return found

    def present(name: str) -> bool:
        return value(name) is not None

    def numbers(*names: str) -> list[int]:
        found = [value(name) for name in names]
        return [number for number in found if isinstance(number, int)]

    def instants(*names: str) -> list[datetime]:
        found = [value(name) for name in names]
        return [instant for instant in found if isinstance(instant, datetime)]

    match rule:
        case kinds.FieldAtMost(field=field, limit=limit):
            number, most = numbers(field, limit)
            return number <= most
        case kinds.SumAtMost(fields=fields, limit=limit):
            return sum(numbers(*fields)) <= sum(numbers(limit))
        case kinds.LengthAtMost(field=field, limit=limit):
            return len(entries(value(field))) <= sum(numbers(limit))
        case kinds.NotBefore(field=field, earlier=earlier):
            return all(before <= after for after in instants(field) for before in instants(*earlier))
        case kinds.PresentExactlyIn(field=field, by=by, members=members):
            return present(field) == (value(by) in members)
        case kinds.PresentIn(field=field, by=by, members=members):
            return present(field) or value(by) not in members
        case kinds.AbsentIn(field=field, by=by, members=members):
            return not present(field) or value(by) not in members
        case kinds.PresentExactlyWhen(field=field, flag=flag):
            return present(field) == value(flag)
        case kinds.AllOrNone(fields=fields):
            return sum(present(name) for name in fields) in {0, len(fields)}
        case kinds.RequiresEntry(by=by, entries=required):
            return all(entries(value(field)) for member, field in required if value(by) == member)
        case kinds.EqualOrAbsent(field=field, other=other):
            return not present(field) or value(field) == value(other)
        case kinds.EqualExactlyIn(field=field, value=wanted, by=by, members=members):
            return (value(field) == wanted) == (value(by) in members)
        case kinds.FirstOf(field=field, items=items):
            first = [*entries(value(items))[:1], None][0]
            return value(field) == first
        case kinds.FieldDerived(field=field, source=source, function=function):
            return value(field) == function(value(source))
    raise AssertionError(f"no plain evaluation of {rule}")


def entries(items: object) -> tuple[object, ...]:
    assert isinstance(items, tuple)
    return items
