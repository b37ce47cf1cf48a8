"""Answers a :class:`~twinstore.query.Query` from rows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, assert_never

from pydantic_core import PydanticCustomError

from twinstore.fields import parse_timestamp
from twinstore.query import After, AtMost, Before, Condition, Equals, IsNull, OneOf, Query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.paging import KeyPart, SortKey
    from twinstore_memory.rows import Row

__all__ = ["ordered", "select", "sort_key"]

Rank = tuple[int, str | datetime]


def select(rows: Iterable[Row], query: Query) -> list[Row]:
    """Return up to ``limit + 1`` rows of a query, in its order."""
    return ordered(rows, query)[: query.limit + 1]


def ordered(rows: Iterable[Row], query: Query) -> list[Row]:
    """Return all rows of a query, in its order."""
    found = [row for row in rows if matches(row, query)]
    for key in reversed(query.order):
        found.sort(key=lambda row, key=key: rank(part(row, key)), reverse=key.descending)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    return found


def sort_key(row: Row, order: tuple[SortKey, ...]) -> tuple[KeyPart, ...]:
    """Return the values by which a row is sorted, for a page token."""
    return tuple(part(row, key) for key in order)


def matches(row: Row, query: Query) -> bool:
    """Whether a row belongs to the list and follows its starting point."""
    if query.tenant_id is not None and row.tenant_id != query.tenant_id:
        return False
    if not all(holds(condition, row) for condition in query.where):
        return False
    return query.after is None or follows(row, query.order, query.after)


def holds(condition: Condition, row: Row) -> bool:
    """Whether one condition is true of a row."""
    match condition:
        case Equals(field, value):
            return row.value(field) == value
        case OneOf(field, values):
            return row.value(field) in values
        case IsNull(field):
            return row.value(field) is None
        case After(field, bound):
            return (found := instant(row.value(field))) is not None and found > bound
        case Before(field, bound):
            return (found := instant(row.value(field))) is not None and found < bound
        case AtMost(field, bound):
            return (found := instant(row.value(field))) is not None and found <= bound
        case _:
            assert_never(condition)


def follows(row: Row, order: tuple[SortKey, ...], after: tuple[KeyPart, ...]) -> bool:
    """Whether a row comes strictly after a sort key."""
    for key, bound in zip(order, after, strict=True):
        mine, other = rank(part(row, key)), rank(bound)
        if mine != other:
            return (mine > other) is not key.descending
    return False


def part(row: Row, key: SortKey) -> KeyPart:
    """Return one sort value of a row; what is stored with a wrong type counts as its text."""
    value = row.value(key.field)
    if key.time and (found := instant(value)) is not None:
        return found
    return None if value is None else str(value)


def rank(value: KeyPart) -> Rank:
    """Return a value that is comparable with every other: nulls first, then text, then instants."""
    if value is None:
        return (0, "")
    return (2, value) if isinstance(value, datetime) else (1, value)


def instant(value: object) -> datetime | None:
    """Return a stored instant, also one that is stored as text."""
    try:
        return None if value is None else parse_timestamp(value)
    except PydanticCustomError:
        return None
