"""Writes the rows of one range, in one unit of work."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.bulk import Conflict, ImportOutcome, RangeWriter, Rejected
from twinstore.documents.content import content
from twinstore.errors import DuplicateError
from twinstore.fields import parse_timestamp
from twinstore.moving import obstacles, reason_of_obstacle
from twinstore.scope import UNBOUND
from twinstore.tenancy import ALL_TENANTS, label_of
from twinstore_memory.access import MemoryAccess
from twinstore_memory.rows import DocumentRow, encode, table, write
from twinstore_memory.units import Joined
from twinstore_memory.writing import check_unique, discard, hold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.access import Access
    from twinstore.bulk import OnConflict, Record
    from twinstore.catalog import Entity, Key
    from twinstore_memory.store import Unit

__all__ = ["MemoryRangeWriter"]


class MemoryRangeWriter(RangeWriter):
    """Implements :class:`~twinstore.bulk.RangeWriter`; every record is staged as it comes."""

    def __init__(
        self, unit: Unit, entity: Entity, entities: Sequence[Entity], on_conflict: OnConflict
    ) -> None:
        self._unit = unit
        self._entity = entity
        self._entities = entities
        self._overwrite = on_conflict == "overwrite" and not entity.append_only
        self._written: Counter[str] = Counter()
        self._unchanged: Counter[str] = Counter()
        self._conflicts: list[Conflict] = []
        self._rejected: list[Rejected] = []
        self._removed = 0
        # What finds a unique value taken that may still move.
        self._waiting: list[tuple[Record, DocumentRow]] = []

    @override
    def write(self, records: Sequence[Record]) -> None:
        """Stage records."""
        for record in records:
            self._write(record)

    @override
    def take_rejected(self) -> Sequence[Rejected]:
        """Hand over what was refused."""
        taken, self._rejected = self._rejected, []
        return taken

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        """Stage the removal of rows, with their children."""
        for key in keys:
            row = hold(self._unit, ALL_TENANTS, self._entity, key)
            if row is not None:
                discard(self._unit, self._entities, row)
                self._removed += 1

    @override
    def flush(self) -> ImportOutcome:
        """Return what became of everything so far."""
        self._settle()
        return ImportOutcome(
            dict(self._written),
            dict(self._unchanged),
            tuple(self._conflicts),
            tuple(self._rejected),
            self._removed,
        )

    @property
    @override
    def access(self) -> Access:
        """The rows of any entity inside this unit."""
        return MemoryAccess(Joined(self._unit), UNBOUND, self._entities)

    @override
    def commit(self) -> None:
        """Commit the unit."""
        self._settle()
        self._unit.commit()

    def _write(self, record: Record) -> None:
        if record.model is None or record.key is None:
            self._rejected.append(Rejected(record, record.error or "the row has no model or no key"))
            return
        row = encode(self._entity, record.model, as_stored(record))
        # Claimed before it is looked at, so that nobody changes it until the range is committed.
        self._unit.lock(table(self._entity), row.key)
        stored = self._unit.get(table(self._entity), row.key)
        if stored is None:
            self._store(record, row)
        elif content(stored) == content(row):  # not the rows: forms that mean the same are equal here
            self._unchanged[label_of(row.owner)] += 1
        elif self._overwrite:
            self._store(record, row, overwritten=True)
        else:
            self._conflicts.append(Conflict(record.key, row.owner))

    def _store(self, record: Record, row: DocumentRow, *, overwritten: bool = False) -> None:
        try:
            check_unique(self._unit, row)
        except DuplicateError as error:
            if self._overwrite:
                self._waiting.append((record, row))
            else:
                self._rejected.append(Rejected(record, error.message))
            return
        write(self._unit, row)
        self._note(row, overwritten=overwritten)

    def _note(self, row: DocumentRow, *, overwritten: bool) -> None:
        if overwritten:
            self._conflicts.append(Conflict(row.key, row.owner, overwritten=True))
        self._written[label_of(row.owner)] += 1

    def _settle(self) -> None:
        """Write the rows whose unique values move between them; name what is in the way of the others."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        found = obstacles(self.access, self._entity, [record for record, _ in waiting])
        free = [row for record, row in waiting if record.key not in found]
        rows = table(self._entity)
        stored = {row.key for row in free if self._unit.get(rows, row.key) is not None}
        for row in free:
            # All of them first, so that every value is free when it is wanted; their children stay.
            self._unit.remove(rows, row.key)
        for row in free:
            check_unique(self._unit, row)
            write(self._unit, row)
            self._note(row, overwritten=row.key in stored)
        self._rejected += [
            Rejected(record, reason_of_obstacle(self._entity, found[record.key]))
            for record, _ in waiting
            if record.key in found
        ]


def as_stored(record: Record) -> dict[str, object]:
    """Return the storage markers as they are stored: instants in UTC with whole milliseconds."""
    return {
        name: parse_timestamp(value) if isinstance(value, datetime) else value
        for name, value in record.storage.items()
    }
