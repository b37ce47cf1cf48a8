"""Appending to an ordered log over the six operations that every driver has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from twinstore.access import Row
from twinstore.canonical import CanonicalModel
from twinstore.failures import not_found, sequence_taken
from twinstore.paging import SortKey
from twinstore.query import Equals, Query

if TYPE_CHECKING:
    from twinstore.access import Access, AccessDefaults, Ref
    from twinstore.catalog import Entity, Key

__all__ = ["append_rows", "sequence_field", "sequence_of", "with_sequence"]

M = TypeVar("M", bound=CanonicalModel)


def append_rows(
    access: AccessDefaults, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append rows in one unit; see :meth:`twinstore.access.Access.append`.

    The parent is written although nothing in it changes: a lock alone would be invisible to a writer whose
    snapshot is older, and two of them would assign one sequence twice.
    """
    with access.unit(parent.scope) as unit:
        (held,) = unit.change([parent], lambda found, _: found)
        if held is None:
            raise not_found(parent.entity, key_text_of(parent), access.binding.driver)
        next_number = _last_sequence(unit, entity, parent, held) + 1
        appended: list[Row[M]] = []
        for row in rows:
            numbered = row
            if sequence_of(entity, row) is None:
                numbered, next_number = with_sequence(entity, row, next_number), next_number + 1
            appended.append(_insert_once(unit, entity, parent, numbered))
        return tuple(appended)


def key_text_of(ref: Ref) -> str:
    """Return the key of a ref as messages show it."""
    key = ref.key if isinstance(ref.key, tuple) else ref.key.values
    return ref.entity.key_text(key)


def _insert_once(unit: Access, entity: Entity[M], parent: Ref, row: Row[M]) -> Row[M]:
    """Insert a row, or return the stored one that is equal."""
    key = entity.key_of(row.model, row.storage)
    (stored,) = unit.find(entity, parent.scope, [key])
    if stored is None:
        return unit.insert(entity, parent.scope, row)
    if stored != row:
        raise sequence_taken(entity, entity.key_text(key), unit.binding.driver)
    return stored


def _last_sequence(unit: Access, entity: Entity[M], parent: Ref, held: Row) -> int:
    field = sequence_field(entity)
    query = Query(
        entity=entity.name,
        scope=parent.scope,
        where=_of_parent(entity, parent.entity.key_of(held.model, held.storage)),
        order=(SortKey(field, descending=True, number=True),),
        limit=1,
    )
    found = unit.page(entity, query)
    return (sequence_of(entity, found[0]) or 0) if found else 0


def _of_parent(entity: Entity[M], key: Key) -> tuple[Equals, ...]:
    if entity.parent is None:
        raise LookupError(f"{entity.name} has no parent")  # met by programmers only
    return (Equals(entity.parent.field, key[-1]),)


def sequence_field(entity: Entity[M]) -> str:
    """Return the field that numbers the entries of an ordered log."""
    if entity.sequence is None:
        raise LookupError(f"{entity.name} is no ordered log")  # met by programmers only
    return entity.sequence


def sequence_of(entity: Entity[M], row: Row[M]) -> int | None:
    """Return the number of an entry, ``None`` when it is still to be assigned."""
    number = entity.value(row.model, row.storage, sequence_field(entity))
    return number if isinstance(number, int) else None


def with_sequence(entity: Entity[M], row: Row[M], number: int) -> Row[M]:
    """Return an entry with its number."""
    name = entity.shapes[sequence_field(entity)].name
    return Row(row.model.evolve(**{name: number}), row.storage)
