"""Rows in the tables of the store; what a row is comes from core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.documents.rows import DocumentRow, encode, unique_value
from twinstore_memory.store import MemoryDatabase, TableName, Unit

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

__all__ = [
    "DocumentRow",
    "encode",
    "store_unchecked",
    "stored_row",
    "stored_rows",
    "table",
    "unique_value",
    "write",
]


def table(entity: Entity) -> TableName[DocumentRow]:
    """Return the table of an entity."""
    return TableName(f"{entity.module}.{entity.name}")


def write(unit: Unit, row: DocumentRow) -> None:
    """Stage a row; its key and its unique values must be claimed and free."""
    number = row.markers.get(row.entity.assigned or "")
    if isinstance(number, int):
        unit.store.raise_number(table(row.entity).name, number)
    unit.put(table(row.entity), row.key, row, (value for _, value in row.unique))


def store_unchecked(store: MemoryDatabase, row: DocumentRow) -> None:
    """Write a row past every rule and check, also a broken one: for tests of what reads make of it."""
    unit = store.begin()
    unit.lock(table(row.entity), row.key)
    write(unit, row)
    unit.commit()


def stored_rows(store: MemoryDatabase, entity: Entity) -> dict[Key, DocumentRow]:
    """Return what is committed, past the repositories."""
    return {row.key: row for row in store.begin().values(table(entity))}


def stored_row(store: MemoryDatabase, entity: Entity, key: Key) -> DocumentRow | None:
    """Return one row that is committed, past the repositories."""
    return store.begin().get(table(entity), key)
