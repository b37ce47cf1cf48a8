"""Records that a copy takes once the unknown properties are dropped that a user decided to lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from twinstore.bulk import Record
from twinstore.fast.packed import PackedBatch
from twinstore_backfill.ignoring import of_entity
from twinstore_backfill.verify.expected import Expecting

if TYPE_CHECKING:
    from twinstore.bulk import BulkPort
    from twinstore.catalog import Entity
    from twinstore_backfill.ignoring import IgnoredPath

__all__ = ["Forgiving"]


class Forgiving:
    """Reads the records once more that cannot be decoded; of all others it takes no notice."""

    def __init__(self, port: BulkPort, ignored: Sequence[IgnoredPath]) -> None:
        """Take the source and what is ignored."""
        self._port, self.ignored = port, ignored

    def forgiven(self, entity: Entity, batch: Sequence[Record]) -> list[Record]:
        """Return a batch in which what can be read without the ignored properties is read so."""
        paths = of_entity(self.ignored, entity)
        keys = [record.key for record in batch if record.error is not None and record.key is not None]
        if not paths or not keys:
            return list(batch)
        # By the scan of a comparison: only there a document is seen property by property without its model.
        expecting = Expecting(entity, paths)
        with self._port.view() as view:
            read = {row.key: expecting.record(row) for row in view.rows_of(entity, keys)}
        return [_instead(record, read.get(record.key)) if record.error else record for record in batch]

    def completed(self, entity: Entity, batch: Sequence[Record]) -> Sequence[Record]:
        """Return the same of a batch that may be packed."""
        if not isinstance(batch, PackedBatch):
            return self.forgiven(entity, batch)
        batch.put_exact(self.forgiven(entity, [record for _, record in batch.exact]))
        return batch


def _instead(record: Record, read: Record | None) -> Record:
    """Return what a record is without the ignored properties, with all of its bytes for a quarantine."""
    if read is None:
        return record
    return replace(read, original=record.original, text_timestamp=record.text_timestamp, ignored=True)
