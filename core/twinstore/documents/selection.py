"""Answers a :class:`~twinstore.query.Query` from rows, for stores that cannot be asked one."""

from __future__ import annotations

from datetime import datetime
from functools import total_ordering
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.documents.rows import instant
from twinstore.documents.rows import sort_value as part
from twinstore.query import Comparison, Condition, Query, holds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.documents.rows import DocumentRow
    from twinstore.keys import Key
    from twinstore.paging import SortKey, SortValue

__all__ = [
    "first_keys",
    "first_rows",
    "follows",
    "is_true",
    "matches",
    "ordered",
    "part",
    "select",
]

Rank = tuple[int, str | int | datetime]


def select(rows: Iterable[DocumentRow], query: Query) -> list[DocumentRow]:
    """Return up to ``limit + 1`` rows of a query, in its order."""
    return ordered(rows, query)[: query.limit + 1]


def first_rows(rows: Iterable[DocumentRow], order: tuple[SortKey, ...], count: int) -> list[DocumentRow]:
    """Return the first rows of a stream in an order; no more than so many are in memory."""
    return nsmallest(count, rows, key=lambda row: Standing(row, order))


def first_keys(rows: Iterable[DocumentRow], order: tuple[SortKey, ...], count: int) -> list[Key]:
    """Return the keys of the first rows of a stream in an order; of the rows one is in memory at a time."""
    found = nsmallest(count, ((Standing(row, order), row.key) for row in rows), key=itemgetter(0))
    return [key for _, key in found]


@total_ordering
class Standing:
    """Where a row stands in an order, comparable with the others."""

    __slots__ = ("_parts",)

    def __init__(self, row: DocumentRow, order: tuple[SortKey, ...]) -> None:
        """Take what the order looks at."""
        self._parts = tuple((rank(part(row, key)), key.descending) for key in order)

    @override
    def __eq__(self, other: object) -> bool:
        """Whether two rows have equal values."""
        return isinstance(other, Standing) and self._parts == other._parts

    @override
    def __hash__(self) -> int:
        """Return a hash of the values."""
        return hash(self._parts)

    def __lt__(self, other: Standing) -> bool:
        """Whether this row comes first."""
        for (mine, descending), (theirs, _) in zip(self._parts, other._parts, strict=True):
            if mine != theirs:
                return (mine > theirs) if descending else (mine < theirs)
        return False


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
