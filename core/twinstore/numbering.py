"""The highest insertion number of an entity, over the operations that every driver has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.errors import DocumentDecodeError
from twinstore.query import AtLeast, assigned_marker, newest_query

if TYPE_CHECKING:
    from twinstore.access import Access, Row
    from twinstore.catalog import Entity
    from twinstore.paging import Page
    from twinstore.query import Condition

__all__ = ["highest_number"]


def highest_number(access: Access, entity: Entity) -> int:
    """Return the highest insertion number that a row has, 0 for none; rows that cannot be read count."""
    name = assigned_marker(entity)
    found = newest(access, entity)
    if found is None:
        return searched(access, entity, name)
    value = entity.value(found[0].model, found[0].storage, name) if found else 0
    return value if isinstance(value, int) else 0


def newest(access: Access, entity: Entity, *conditions: Condition) -> Page[Row] | None:
    """Return the last row of some, ``None`` where it cannot be read."""
    try:
        return access.page(entity, newest_query(entity, *conditions))
    except DocumentDecodeError:
        return None


def searched(access: Access, entity: Entity, name: str) -> int:
    """Return the same where the last row cannot be read: no list tells its number, but that it is there."""
    low, high = 0, 1
    while is_reached(access, entity, AtLeast(name, high)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_reached(access, entity, AtLeast(name, middle)) else (low, middle)
    return low


def is_reached(access: Access, entity: Entity, condition: Condition) -> bool:
    """Whether some row satisfies a condition."""
    page = newest(access, entity, condition)
    return page is None or bool(page)
