"""What a list asks of a row, and what an index or a rule is limited to."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

__all__ = [
    "After",
    "AtLeast",
    "AtMost",
    "Before",
    "Comparison",
    "Condition",
    "Equals",
    "IsNull",
    "IsPresent",
    "NotAfter",
    "OneOf",
]


Value = str | bool | int | datetime | Decimal
Bound = int | datetime | Decimal


@dataclass(frozen=True, slots=True)
class Equals:
    """The field has this value."""

    field: str
    value: Value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of these values; none of them matches nothing."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class After:
    """The instant or number is present and greater than this one."""

    field: str
    value: Bound


@dataclass(frozen=True, slots=True)
class Before:
    """The instant or number is present and less than this one."""

    field: str
    value: Bound


@dataclass(frozen=True, slots=True)
class AtMost:
    """The instant or number is present and not greater than this one."""

    field: str
    value: Bound


@dataclass(frozen=True, slots=True)
class NotAfter:
    """The instant or number is absent, or not greater than this one."""

    field: str
    value: Bound


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The instant or number is present and not less than this one."""

    field: str
    value: Bound


@dataclass(frozen=True, slots=True)
class IsNull:
    """The field is absent or null."""

    field: str


@dataclass(frozen=True, slots=True)
class IsPresent:
    """The field is there and not null."""

    field: str


Comparison = After | Before | AtMost | AtLeast
COMPARISONS: Final[Mapping[type[Comparison], Callable[..., bool]]] = {
    After: operator.gt,
    Before: operator.lt,
    AtMost: operator.le,
    AtLeast: operator.ge,
}
Condition = Equals | OneOf | Comparison | NotAfter | IsNull | IsPresent


def is_implied(condition: Condition, where: Sequence[Condition]) -> bool:
    """Whether the conditions of a list say that its rows are in an index."""
    implying = [item.field for item in where if not isinstance(item, IsNull | NotAfter)]
    return condition in where or (isinstance(condition, IsPresent) and condition.field in implying)
