"""Writes copied ranges, each together with its entry in the ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from twinstore.bulk import Conflict, ImportOutcome, Rejected
from twinstore.errors import DuplicateError
from twinstore.fields import parse_timestamp
from twinstore_memory.content import content
from twinstore_memory.ledger import finish_range, held
from twinstore_memory.rows import StoredRow, encode, table, write
from twinstore_memory.writing import check_unique

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.bulk import Claim, OnConflict, Record, Tally
    from twinstore.catalog import Entity
    from twinstore_memory.store import Store, Unit

__all__ = ["MemoryImporter"]


@dataclass(slots=True)
class Progress:
    """What became of the records so far."""

    written: Counter[str] = field(default_factory=Counter[str])
    unchanged: Counter[str] = field(default_factory=Counter[str])
    conflicts: list[Conflict] = field(default_factory=list[Conflict])
    rejected: list[Rejected] = field(default_factory=list[Rejected])

    @property
    def outcome(self) -> ImportOutcome:
        """The outcome of the range."""
        return ImportOutcome(
            dict(self.written), dict(self.unchanged), tuple(self.conflicts), tuple(self.rejected)
        )


class MemoryImporter:
    """Implements :class:`~twinstore.bulk.RangeImporter`."""

    def __init__(self, store: Store) -> None:
        """Take the store."""
        self._store = store

    def import_range(
        self,
        entity: Entity,
        batches: Iterator[list[Record]],
        *,
        on_conflict: OnConflict,
        claim: Claim,
        tally: Tally,
    ) -> ImportOutcome:
        """Write the records of a claimed range and mark it live, in one transaction."""
        overwrite = on_conflict == "overwrite" and not entity.append_only
        progress = Progress()
        unit = self._store.begin()
        try:
            for batch in batches:
                for record in batch:
                    import_record(unit, entity, record, progress, overwrite=overwrite)
            # Only now: a worker that was overtaken while it wrote must not commit.
            held(unit, claim.lease)
            finish_range(unit, claim, tally(progress.outcome))
            unit.commit()
        finally:
            unit.rollback()
        return progress.outcome


def import_record(unit: Unit, entity: Entity, record: Record, progress: Progress, *, overwrite: bool) -> None:
    """Write one record, or note why not."""
    if record.model is None or record.key is None:
        progress.rejected.append(Rejected(record, record.error or "the row has no model or no key"))
        return
    row = encode(entity, record.model, {name: marker(value) for name, value in record.storage.items()})
    unit.claim(table(entity), row.key)
    stored = unit.get(table(entity), row.key)
    if stored is not None and content(stored) == content(row):
        progress.unchanged[row.tenant_id or ""] += 1
        return
    if stored is not None:
        progress.conflicts.append(Conflict(record.key, row.tenant_id, overwritten=overwrite))
        if not overwrite:
            return
    if reason := refusal(unit, row):
        progress.rejected.append(Rejected(record, reason))
        return
    write(unit, row)
    progress.written[row.tenant_id or ""] += 1


def marker(value: object) -> object:
    """Return a storage marker as it is stored: instants in UTC with whole milliseconds."""
    return parse_timestamp(value) if isinstance(value, datetime) else value


def refusal(unit: Unit, row: StoredRow) -> str | None:
    """Return why the store refuses a row: another one holds one of its unique values."""
    try:
        check_unique(unit, row)
    except DuplicateError as error:
        return error.message
    return None
