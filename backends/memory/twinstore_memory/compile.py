"""Answers a :class:`~twinstore.query.Query` from rows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from twinstore.documents.rows import instant, sort_key
from twinstore.documents.rows import sort_value as part
from twinstore.query import Comparison, Condition, Query, holds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.paging import SortKey, SortValue
    from twinstore_memory.rows import DocumentRow

__all__ = ["ordered", "part", "select", "sort_key"]

Rank = tuple[int, str | int | datetime]


def select(rows: Iterable[DocumentRow], query: Query) -> list[DocumentRow]:
    """Return up to ``limit + 1`` rows of a query, in its order."""
    return ordered(rows, query)[: query.limit + 1]


def ordered(rows: Iterable[DocumentRow], query: Query) -> list[DocumentRow]:
    """Return all rows of a query, in its order."""
    found = [row for row in rows if matches(row, query)]
    # Sorting is stable, so the least significant key comes first.
    for key in reversed(query.order):
        found.sort(key=lambda row, key=key: rank(part(row, key)), reverse=key.descending)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    return found


def matches(row: DocumentRow, query: Query) -> bool:
    """Whether a row satisfies the conditions of the list and follows its starting point."""
    if not all(is_true(condition, row) for condition in query.where):
        return False
    return query.after is None or follows(row, query.order, query.after)


def is_true(condition: Condition, row: DocumentRow) -> bool:
    """Whether one condition is true of a row; an instant that is stored as text compares as the instant."""
    value = row.value(condition.field)
    timed = isinstance(condition, Comparison) and isinstance(condition.value, datetime)
    return holds(condition, instant(value) if timed else value)


def follows(row: DocumentRow, order: tuple[SortKey, ...], after: tuple[SortValue, ...]) -> bool:
    """Whether a row comes strictly after a sort key."""
    for key, bound in zip(order, after, strict=True):
        mine, other = rank(part(row, key)), rank(bound)
        if mine != other:
            return (mine > other) is not key.descending
    return False


def rank(value: SortValue) -> Rank:
    """Return a value that is comparable with every other: nulls first, then text, instants and numbers."""
    if value is None:  # first in every store
        return (0, "")
    if isinstance(value, str):
        return (1, value)
    return (2, value) if isinstance(value, datetime) else (3, value)
