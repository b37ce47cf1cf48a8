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

__all__ = ["append_rows"]

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


class Log(Generic[M]):
    """The log of one parent while rows are appended to it; ``new`` are the rows to be inserted."""

    def __init__(self, unit: Access, entity: Entity[M], parent: Ref) -> None:
        """Take the unit that holds the parent."""
        if entity.sequence is None or entity.parent is None:
            raise LookupError(f"{entity.name} is no ordered log")  # met by programmers only
        self.new: list[Row[M]] = []
        self._unit = unit
        self._entity = entity
        self._parent = parent
        self._parent_field = entity.parent.field
        self._sequence = entity.sequence
        self._name = entity.shapes[entity.sequence].name
        self._known: dict[Key, Row[M]] = {}
        self._next: int | None = None

    def look_up(self, rows: Sequence[Row[M]]) -> None:
        """Read which rows are stored already."""
        keys = list(dict.fromkeys(key for row in rows if (key := self._key(row)) is not None))
        if keys:
            found = self._unit.find(self._entity, self._parent.scope, keys)
            self._known = {key: row for key, row in zip(keys, found, strict=True) if row is not None}

    def place(self, row: Row[M]) -> Row[M]:
        """Return a row as it is stored, or will be: with a sequence of its own."""
        key = self._key(row)
        if key is not None and key in self._known:
            return self._same(row, self._known[key], key)
        number = self._number(row)
        placed = row if number is not None else self._numbered(row, self._following())
        if self._next is not None and number is not None:
            self._next = max(self._next, number + 1)
        self._known[self._entity.key_of(placed.model, placed.storage)] = placed
        self.new.append(placed)
        return placed

    def _same(self, row: Row[M], known: Row[M], key: Key) -> Row[M]:
        """Return the known row of a key when it has the content of this one."""
        number = self._number(known)
        numbered = row if self._number(row) is not None or number is None else self._numbered(row, number)
        if numbered != known:
            raise sequence_taken(self._entity, self._entity.key_text(key), self._unit.binding.driver)
        return known

    def _following(self) -> int:
        """Return the next sequence, and count it as taken."""
        if self._next is None:
            given = (self._number(row) or 0 for row in self.new)
            self._next = max(self._last(), *given, 0) + 1
        self._next += 1
        return self._next - 1

    def _last(self) -> int:
        """Return the highest sequence of the parent, 0 for none."""
        where = Equals(self._parent_field, self._parent_key())
        order = (SortKey(self._sequence, descending=True, number=True),)
        query = Query(
            entity=self._entity.name, scope=self._parent.scope, where=(where,), order=order, limit=1
        )
        found = self._unit.page(self._entity, query)
        return (self._number(found[0]) or 0) if found else 0

    def _parent_key(self) -> str | int:
        (part,) = self._parent.key if isinstance(self._parent.key, tuple) else self._parent.key.values
        return part

    def _key(self, row: Row[M]) -> Key | None:
        """Return the key of a row, ``None`` while its sequence is missing from it."""
        entity = self._entity
        if self._sequence in entity.key and self._number(row) is None:
            return None
        return entity.key_of(row.model, row.storage)

    def _number(self, row: Row[M]) -> int | None:
        number = self._entity.value(row.model, row.storage, self._sequence)
        return number if isinstance(number, int) else None

    def _numbered(self, row: Row[M], number: int) -> Row[M]:
        return Row(row.model.evolve(**{self._name: number}), row.storage)
