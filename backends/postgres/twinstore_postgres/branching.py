"""Lists of several values in one order: one ordered branch for each value, because the server would sort.

An index by a field and then by the order of a list has the rows of each value in order. The server does not
merge such runs by itself: asked for several values it reads all their rows and sorts them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from twinstore.catalog import StoreKind
from twinstore.query import Equals, IsNull, IsPresent, OneOf
from twinstore.tenancy import ALL_TENANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twinstore.catalog import Entity
    from twinstore.paging import SortKey
    from twinstore.query import Condition, Query

__all__ = ["branches_of"]


def branches_of(entity: Entity, query: Query) -> tuple[Query, ...]:
    """Return the lists that make up a list; none where an index has it as it is.

    Several values of a field have one list each; a page that begins among absent values has one of what
    remains of them and one of the values.
    """
    if query.after is not None and query.after[0] is None and not query.order[0].descending:
        return among_absent(query)
    return by_value(entity, query)


def among_absent(query: Query) -> tuple[Query, ...]:
    """Return the rest of the rows without a value, and the rows that have one: no single range holds both."""
    first, *rest = query.order
    after = () if query.after is None else query.after[1:]
    absent = replace(query, where=(*query.where, IsNull(first.field)), order=tuple(rest), after=after)
    present = replace(query, where=(*query.where, IsPresent(first.field)), after=None)
    return (absent, present) if rest else (present,)


def by_value(entity: Entity, query: Query) -> tuple[Query, ...]:
    """Return one list for each of several values of a field."""
    several = [item for item in query.where if isinstance(item, OneOf) and len(item.values) > 1]
    if len(several) != 1:
        return ()
    (condition,) = several
    others = tuple(item for item in query.where if item is not condition)
    pinned = frozenset(item.field for item in others if isinstance(item, Equals))
    if query.scope is not ALL_TENANTS and entity.tenant_field is not None:
        pinned |= {entity.tenant_field}
    if not is_branched(entity, pinned, condition.field, query):
        return ()
    return tuple(
        replace(query, where=(*others, Equals(condition.field, value))) for value in condition.values
    )


def is_branched(entity: Entity, pinned: frozenset[str], field: str, query: Query) -> bool:
    """Whether the branches of a list read fewer rows than the list as it is."""
    usable = [
        index
        for index in entity.indexes
        if StoreKind.TABLES in index.stores and all(is_implied(item, query.where) for item in index.where)
    ]
    whole = [index for index in usable if has_order(index.directions, pinned, query.order)]
    if any(field in {item.field for item in index.where} for index in whole):
        return False
    parted = [
        index
        for index in usable
        if field in index.names and has_order(index.directions, pinned | {field}, query.order)
    ]
    # An index by all that the list pins is read past other values, unless the branches pin it all too.
    return any(pinned <= {*index.names} for index in parted) or (bool(parted) and not whole)


def is_implied(condition: Condition, where: Iterable[Condition]) -> bool:
    """Whether the conditions of a list say that its rows are in an index."""
    present = isinstance(condition, IsPresent)
    return any(
        item == condition or (present and item.field == condition.field and not isinstance(item, IsNull))
        for item in where
    )


def has_order(fields: Sequence[tuple[str, bool]], pinned: frozenset[str], order: Sequence[SortKey]) -> bool:
    """Whether an index has an order behind the fields of one value, forwards or backwards."""
    leading = next((place for place, (name, _) in enumerate(fields) if name not in pinned), len(fields))
    tail = fields[leading : leading + len(order)]
    if [name for name, _ in tail] != [key.field for key in order]:
        return False
    return len({descends is key.descending for (_, descends), key in zip(tail, order, strict=True)}) == 1
