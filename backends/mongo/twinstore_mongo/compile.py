"""Turns a :class:`~twinstore.query.Query` into filter and sort of MongoDB."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, assert_never

from twinstore.query import After, AtMost, Before, Condition, Equals, IsNull, OneOf, Query

if TYPE_CHECKING:
    from twinstore.paging import KeyPart, SortKey
    from twinstore_mongo.connection import Document

__all__ = ["Names", "compiled", "sort_of"]

# MongoDB compares within one type only, so "not null" for an instant is "not before the first one".
FIRST_INSTANT: Final = datetime(1, 1, 1, tzinfo=UTC)

Names = Mapping[str, str]


def compiled(query: Query, names: Names) -> Document:
    """Return the filter of a query; ``names`` maps wire names and markers to other stored names."""
    clauses: list[Document] = []
    if query.tenant_id is not None:
        clauses.append({name_of("tenantId", names): query.tenant_id})
    clauses += [condition_of(condition, names) for condition in query.where]
    if query.after is not None:
        clauses += following(query.order, query.after, names)
    return merged(clauses)


def sort_of(query: Query, names: Names) -> list[tuple[str, int]]:
    """Return the sort of a query."""
    if query.entity == "schedules" and IsNull("deletedAt") in query.where:
        # The unique index of the names is the order, since no two of them are equal.
        return [("name", 1)]
    return [(name_of(key.field, names), -1 if key.descending else 1) for key in query.order]


def name_of(field: str, names: Names) -> str:
    """Return the stored name of a field."""
    return names.get(field, field)


def merged(clauses: list[Document]) -> Document:
    """Return one filter; clauses on the same field stay apart."""
    result: Document = {}
    rest: list[Document] = []
    for clause in clauses:
        if result.keys().isdisjoint(clause):
            result |= clause
        else:
            rest.append(clause)
    return {**result, "$and": rest} if rest else result


def condition_of(condition: Condition, names: Names) -> Document:
    """Return the filter of one condition."""
    name = name_of(condition.field, names)
    match condition:
        case Equals(_, value):
            return {name: value}
        case OneOf(_, values):
            return {name: values[0]} if len(values) == 1 else {name: {"$in": list(values)}}
        case After(_, value):
            return {name: {"$gt": value}}
        case Before(_, value):
            return {name: {"$lt": value}}
        case AtMost(_, value):
            return {name: {"$lte": value}}
        case IsNull():
            return {name: None}
        case _:
            assert_never(condition)


def following(order: tuple[SortKey, ...], after: tuple[KeyPart, ...], names: Names) -> list[Document]:
    """Return what holds for the rows strictly after a sort key.

    The first clause bounds the leading field, so that the scan of the index starts near the key; the second
    decides among the rows that are equal in it.
    """
    head, value = order[0], after[0]
    name = name_of(head.field, names)
    beyond = strictly(name, value, descending=head.descending)
    if len(order) == 1:
        return [beyond]
    rest = merged(following(order[1:], after[1:], names))
    either: Document = {
        "$or": [{name: value, **rest} if name not in rest else {"$and": [{name: value}, rest]}, beyond]
    }
    if value is None:
        return [either]
    return [{name: {"$lte" if head.descending else "$gte": value}}, either]


def strictly(name: str, value: KeyPart, *, descending: bool) -> Document:
    """Return what holds for the values after this one; nulls come first."""
    if value is None:
        return {name: {"$gte": FIRST_INSTANT}}
    return {name: {"$lt" if descending else "$gt": value}}
