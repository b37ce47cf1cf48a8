"""Appending to an ordered log over the six operations that every driver has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

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
    snapshot is older, and two of them would assign one sequence twice. Everything is decided before anything
    is inserted, so that a refusal leaves the unit of a caller as it was.
    """
    with access.unit(parent.scope, atomic=False) as unit:
        (held,) = unit.change([parent], lambda found, _: found)
        if held is None:
            raise not_found(parent.entity, key_text_of(parent), access.binding.driver)
        log = Log(unit, entity, parent)
        log.look_up(rows)
        appended = tuple(log.place(row) for row in rows)
        for row in log.new:
            unit.insert(entity, parent.scope, row)
        return appended


def key_text_of(ref: Ref) -> str:
    """Return the key of a ref as messages show it."""
    key = ref.key if isinstance(ref.key, tuple) else ref.key.values
    return ref.entity.key_text(key)


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


class Log(Generic[M]):
    """The log of one parent while entries are appended to it; ``new`` are those to be inserted."""

    def __init__(self, unit: Access, entity: Entity[M], parent: Ref) -> None:
        """Take the unit that holds the parent."""
        self.new: list[Row[M]] = []
        self._unit = unit
        self._entity = entity
        self._parent = parent
        self._known: dict[Key, Row[M]] = {}
        self._next: int | None = None

    def look_up(self, rows: Sequence[Row[M]]) -> None:
        """Read which entries are stored already."""
        keys = list(dict.fromkeys(key for row in rows if (key := self._key(row)) is not None))
        if keys:
            found = self._unit.find(self._entity, self._parent.scope, keys)
            self._known = {key: row for key, row in zip(keys, found, strict=True) if row is not None}

    def place(self, row: Row[M]) -> Row[M]:
        """Return an entry as it is stored, or will be: with a number of its own.

        Raises:
            ConflictError: its key is taken by other content.
        """
        key = self._key(row)
        if key is not None and key in self._known:
            return self._same(row, self._known[key], key)
        number = sequence_of(self._entity, row)
        placed = with_sequence(self._entity, row, self._following()) if number is None else row
        if self._next is not None and number is not None:
            self._next = max(self._next, number + 1)
        self._known[self._entity.key_of(placed.model, placed.storage)] = placed
        self.new.append(placed)
        return placed

    def _same(self, row: Row[M], known: Row[M], key: Key) -> Row[M]:
        """Return the known entry of a key when it has the content of this one."""
        number = sequence_of(self._entity, known)
        unnumbered = sequence_of(self._entity, row) is None and number is not None
        if (with_sequence(self._entity, row, number or 0) if unnumbered else row) != known:
            raise sequence_taken(self._entity, self._entity.key_text(key), self._unit.binding.driver)
        return known

    def _following(self) -> int:
        """Return the next number, and count it as taken."""
        if self._next is None:
            given = (sequence_of(self._entity, row) or 0 for row in self.new)
            self._next = max(self._last(), *given, 0) + 1
        self._next += 1
        return self._next - 1

    def _last(self) -> int:
        """Return the highest number of the parent, 0 for none."""
        entity = self._entity
        order = (SortKey(sequence_field(entity), descending=True, number=True),)
        found = self._unit.page(
            entity,
            Query(
                entity=entity.name, scope=self._parent.scope, where=(self._of_parent(),), order=order, limit=1
            ),
        )
        return (sequence_of(entity, found[0]) or 0) if found else 0

    def _of_parent(self) -> Equals:
        if self._entity.parent is None or not isinstance(self._parent.key, tuple):
            raise LookupError(f"{self._entity.name} is appended to a parent that is named by its key")
        return Equals(self._entity.parent.field, self._parent.key[-1])

    def _key(self, row: Row[M]) -> Key | None:
        """Return the key of an entry, ``None`` while its number is missing from it."""
        entity = self._entity
        if sequence_field(entity) in entity.key and sequence_of(entity, row) is None:
            return None
        return entity.key_of(row.model, row.storage)
