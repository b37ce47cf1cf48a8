"""The dry run of a copy: reads, decodes and compares, and writes to no store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.bulk import Conflict, ImportOutcome
from twinstore_backfill.copy.limiter import RateLimiter
from twinstore_backfill.copy.reading import Exports, RangeReader, Tally
from twinstore_backfill.copy.reporting import CopyResult, Totals
from twinstore_backfill.copy.retention import expiry_test
from twinstore_backfill.stopping import StopRequestedError
from twinstore_backfill.stores import is_migrated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from twinstore.bulk import BulkPort, KeyRange, OnConflict, Record
    from twinstore.catalog import Entity
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.progress import Progress
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store

__all__ = ["Rehearsal", "content_of", "rehearse"]

SHOWN: Final = 100


def content_of(record: Record) -> bytes:
    """Return the content that a scan of the target would show for a record once it is written."""
    model = record.model
    return jsontext.dumps_sorted({"doc": model.wire() if model else None, "storage": dict(record.storage)})


def rehearse(
    entity: Entity, batches: Iterator[list[Record]], target: BulkPort | None, on_conflict: OnConflict
) -> ImportOutcome:
    """Return what writing the records would amount to. Without a target all of them would be written."""
    written: Counter[str] = Counter()
    unchanged: Counter[str] = Counter()
    conflicts: list[Conflict] = []
    overwrite = on_conflict == "overwrite" and not entity.append_only
    for batch in batches:
        stored = _stored(entity, batch, target)
        for record in batch:
            content = stored.get(record.key)
            if content is not None and content == content_of(record):
                unchanged[record.tenant_id or ""] += 1
                continue
            if content is not None:
                conflicts.append(Conflict(record.key or (), record.tenant_id, overwritten=overwrite))
            if content is None or overwrite:
                written[record.tenant_id or ""] += 1
    return ImportOutcome(written, unchanged, tuple(conflicts))


def _stored(entity: Entity, batch: list[Record], target: BulkPort | None) -> dict[object, bytes]:
    if target is None:
        return {}
    keys = [record.key for record in batch if record.key is not None]
    return {row.key: row.content for row in target.fetch(entity, keys)}


class FirstLines:
    """Keeps the first entries for the report."""

    def __init__(self) -> None:
        """Start empty."""
        self.entries: list[Mapping[str, object]] = []

    def add(self, entry: Mapping[str, object]) -> None:
        """Keep an entry while there is room."""
        if len(self.entries) < SHOWN:
            self.entries.append({**entry, "raw": None})

    def commit(self) -> None:
        """Do nothing: a dry run leaves no trace."""


class Rehearsal:
    """A dry run of a whole copy."""

    def __init__(
        self, source: Store, target: Store, options: CopyOptions, progress: Progress, stop: StopSwitch
    ) -> None:
        """Take both sides, the options, and who is told."""
        self._source, self._target, self._options = source, target, options
        self._progress, self._stop = progress, stop
        self._limiter = RateLimiter(options.max_rate, stop)
        self._port = target.bulk if is_migrated(target) else None
        self._totals = Totals()
        self._bad, self._conflicts = FirstLines(), FirstLines()

    def run(self, entities: Sequence[Entity], as_of: datetime, started: datetime) -> CopyResult:
        """Read everything and compare it with the target.

        Raises:
            InterruptedRunError: a signal asked for the stop.
        """
        try:
            for entity in entities:
                self._entity(entity, as_of)
        except StopRequestedError:
            self._stop.raise_if_interrupted("It was a dry run; nothing was written.")
            raise
        return CopyResult(
            executed=False,
            complete=True,
            source=self._source,
            target=self._target,
            entities=entities,
            totals=self._totals,
            as_of=as_of,
            started=started,
            quarantine=self._bad.entries,
            conflicts=self._conflicts.entries,
        )

    def _entity(self, entity: Entity, as_of: datetime) -> None:
        exports = Exports(self._source.bulk, self._options.tenants, self._options.batch_size)
        self._progress.start(entity.name, exports.count(entity))
        for within in exports.ranges(entity, self._options.range_size):
            self._range(entity, exports, within, as_of)
        self._progress.finish()

    def _range(self, entity: Entity, exports: Exports, within: KeyRange, as_of: datetime) -> None:
        reader = RangeReader(
            entity,
            expired=expiry_test(entity, self._target.options, as_of),
            limiter=self._limiter,
            stop=self._stop,
            quarantine=self._bad,
        )
        batches = reader.batches(exports.batches(entity, within))
        outcome = rehearse(entity, batches, self._port, self._options.on_conflict)
        self._totals.add(entity.name, Tally(reader, self._bad, self._conflicts)(outcome))
        self._progress.advance(reader.read.total())
