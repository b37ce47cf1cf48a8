"""Holding rows and writing them, for any entity.

Claims are taken in one order: the parent of a new row, its key, its unique values. So callers that write the
same rows wait for each other instead of both waiting until one gives up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.access import UniqueKey
from twinstore.catalog import TenancyKind
from twinstore.failures import duplicate, not_found
from twinstore.tenancy import ALL_TENANTS
from twinstore_memory.rows import DocumentRow, table, unique_value, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.catalog import Entity, Key
    from twinstore.tenancy import Tenants
    from twinstore_memory.store import Unit

__all__ = ["discard", "hold", "seen", "store"]


def seen(unit: Unit, scope: Tenants, entity: Entity, key: Key | UniqueKey) -> DocumentRow | None:
    """Return a row of this scope."""
    place = _place(unit, entity, key)
    row = None if place is None else unit.get(table(entity), place)
    return row if row is not None and is_seen(unit, scope, row) else None


def is_seen(unit: Unit, scope: Tenants, row: DocumentRow) -> bool:
    """Whether a row belongs to a scope; one that belongs to its parent, whether that does."""
    kind = row.entity.tenancy.kind
    if scope is ALL_TENANTS or kind is TenancyKind.NONE:
        return True
    if kind is not TenancyKind.PARENT:
        return row.owner == scope
    parent = None if row.parent_key is None else unit.get(table(_parent(row)), row.parent_key)
    return parent is not None and is_seen(unit, scope, parent)


def hold(unit: Unit, scope: Tenants, entity: Entity, key: Key | UniqueKey) -> DocumentRow | None:
    """Return a row of this scope that no other unit can change until this one ends.

    Where there is none, no other unit can insert it.
    """
    while True:
        # While this unit waited for the claim, the unique value may have gone to another row.
        place = _place(unit, entity, key)
        unit.lock(table(entity), _value(key) if place is None else place)
        if _place(unit, entity, key) == place:
            return seen(unit, scope, entity, key)


def store(unit: Unit, scope: Tenants, held: DocumentRow | None, row: DocumentRow) -> None:
    """Replace the row that is held, or insert one where none is.

    Raises:
        DuplicateError: the key or a unique value is taken.
        NotFoundError: the parent is absent or foreign.
    """
    if row.parent_key is not None and (held is None or held.parent_key != row.parent_key):
        _hold_parent(unit, scope, row, row.parent_key)
    if held is not None and held.key != row.key:
        # One that could not be read and was found by a unique value.
        unit.remove(table(held.entity), held.key)
        held = None
    if held is None:
        unit.lock(table(row.entity), row.key)
        if unit.get(table(row.entity), row.key) is not None:
            raise duplicate(row.entity, row.key, DRIVER)
    check_unique(unit, row)
    write(unit, row)


def check_unique(unit: Unit, row: DocumentRow) -> None:
    """Claim the unique values of a row.

    Raises:
        DuplicateError: another row has one of them.
    """
    for index, value in row.unique:
        unit.lock(table(row.entity), value)
        if unit.holder(table(row.entity), value) not in {None, row.key}:
            raise duplicate(row.entity, row.key, DRIVER, index, row.value(index.names[-1]))


def discard(unit: Unit, entities: Iterable[Entity], row: DocumentRow) -> None:
    """Remove a row that is held, with its children and theirs."""
    unit.remove(table(row.entity), row.key)
    for entity in entities:
        if entity.parent is not None and entity.parent.entity == row.entity:
            for child in unit.values(table(entity)):
                if child.parent_key == row.key:
                    # A rival that is writing the child ends first, so that it is not left without a parent.
                    unit.lock(table(entity), child.key)
                    discard(unit, entities, child)


def _hold_parent(unit: Unit, scope: Tenants, row: DocumentRow, key: Key) -> None:
    """Keep the parent of a new row from being removed."""
    parent = _parent(row)
    if hold(unit, scope, parent, key) is None:
        raise not_found(parent, parent.key_text(key), DRIVER)


def _parent(row: DocumentRow) -> Entity:
    if row.entity.parent is None:
        raise LookupError(f"{row.entity.name} has no parent")  # met by programmers only
    return row.entity.parent.entity


def _place(unit: Unit, entity: Entity, key: Key | UniqueKey) -> Key | None:
    """Return the key of the row, ``None`` when no row has the unique value."""
    return unit.holder(table(entity), _value(key)) if isinstance(key, UniqueKey) else key


def _value(key: Key | UniqueKey) -> object:
    return unique_value(key.index, key.values) if isinstance(key, UniqueKey) else key
