"""The dry run of a copy: reads, decodes and compares, and writes to no store."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.bulk.port import Conflict, ImportOutcome
from twinstore.bulk.rows import ScanRow
from twinstore_backfill.copy.control import RateLimiter
from twinstore_backfill.copy.duplicates import UniqueValues
from twinstore_backfill.copy.earlier import EarlierForms
from twinstore_backfill.copy.held_alike import EqualRows, content_of, settle_conflicts
from twinstore_backfill.copy.quarantine import ExportedLines, JsonLine, LineSink, line_of
from twinstore_backfill.copy.reader import RangeReader, SourceRows
from twinstore_backfill.copy.report import CopyResult, Totals, outcomes_of
from twinstore_backfill.process.files import line_writer
from twinstore_backfill.process.stopping import StopRequestedError
from twinstore_backfill.retention import expiry_test
from twinstore_backfill.stores import is_migrated, left_out_counts, refuse_undescribed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from twinstore.bulk.port import BulkView, OnConflict, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import KeyRange
    from twinstore.ledger import CopyJob
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.stores import Store


# With --out: the rows of the source that have a unique value of another one.
DUPLICATES: Final = "duplicates.ndjson"


class DryWriter:
    """The outcome of writing records. Without a view of the target all of them would be written.

    Rows of a target in another form, which is read ``as_models``, are equal if their models are.
    """

    def __init__(
        self, entity: Entity, target: BulkView | None, on_conflict: OnConflict, *, as_models: bool = False
    ) -> None:
        self._entity = entity
        self._as_models = as_models
        self._equal = EqualRows(entity)
        self._target = target
        # As the writers of all drivers: what is only ever appended is not overwritten by a copy either.
        self._overwrite = on_conflict == "overwrite" and not entity.append_only
        self._written: Counter[str] = Counter()
        self._unchanged: Counter[str] = Counter()
        self._conflicts: list[Conflict] = []

    def write(self, records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
        """Compare records with what the target holds; return those to write, and those to leave."""
        stored = self._stored(records)
        new: list[Record] = []
        left: list[Record] = []
        for record in records:
            row = stored.get(record.key)
            if row is not None and self._holds(row, record):
                self._unchanged[record.label] += 1
                left.append(record)
                continue
            if row is not None:
                conflict = Conflict(record.key or (), record.owner, overwritten=self._overwrite)
                self._conflicts.append(conflict)
            if row is None or self._overwrite:
                self._written[record.label] += 1
                new.append(record)
            else:
                left.append(record)
        return new, left

    @property
    def outcome(self) -> ImportOutcome:
        """The outcomes so far."""
        return ImportOutcome(self._written, self._unchanged, tuple(self._conflicts))

    def _holds(self, row: ScanRow | Record, record: Record) -> bool:
        if isinstance(row, ScanRow):
            return self._equal.holds(row, record)
        return row.model is not None and content_of(row) == content_of(record)

    def _stored(self, records: Sequence[Record]) -> dict[object, ScanRow | Record]:
        if self._target is None:
            return {}
        keys = [record.key for record in records if record.key is not None]
        read = self._target.records_of if self._as_models else self._target.rows_of
        return {row.key: row for row in read(self._entity, keys)}


class FirstLines(LineSink):
    """Keeps the first lines of each kind for the report, and counts the reasons of all."""

    def __init__(self) -> None:
        self.kept = ExportedLines()

    @override
    def quarantine(self, entry: dict[str, object], original: Iterable[str] | None) -> None:
        """Count a document that cannot be moved."""
        # Reports are passed on; content stays in the quarantine, which its owner alone can read.
        del original
        self.kept.add_quarantined(entry)

    @override
    def conflict(self, entry: dict[str, object]) -> None:
        """Count a row that the target has with other content."""
        self.kept.add_conflict(entry)


class DryRun:
    """A dry run of a whole copy."""

    def __init__(
        self,
        source: Store,
        target: Store,
        options: CopyOptions,
        progress: Progress,
        stop: StopSwitch,
        *,
        job: CopyJob | None = None,
    ) -> None:
        """Take both sides, and the job that the copy would continue."""
        self._source, self._target, self._options = source, target, options
        self._earlier = None if job is None else EarlierForms(source.bulk, job.settings, options.rules)
        self._progress, self._stop = progress, stop
        self._limiter = RateLimiter(options.max_rate, stop)
        self._rows = SourceRows(source.bulk, options)
        self._compared = bool(target.changes) or is_migrated(target)
        self._totals = Totals()
        self._lines = FirstLines()
        self._write: Callable[[Iterable[bytes]], object] = list

    def run(self, entities: Sequence[Entity], as_of: datetime, started: datetime) -> CopyResult:
        """Read everything and compare it with the target.

        Raises:
            InterruptedRunError: a signal requested the stop.
        """
        if self._compared:
            refuse_undescribed(self._target, entities)
        out = self._options.out
        try:
            with nullcontext(list) if out is None else line_writer(out / DUPLICATES) as self._write:
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
            quarantine=self._lines.kept.quarantine,
            conflicts=self._lines.kept.conflicts,
            causes=self._lines.kept.reasons.reports(entities),
            left_out=left_out_counts(self._source, self._target, self._options.entities),
            subset=self._options.subset.document(entities) if self._options.subset else None,
            rules=self._rows.rules,
        )

    def _entity(self, entity: Entity, as_of: datetime) -> None:
        ranges: Iterable[KeyRange] = self._rows.cut(entity, self._options.range_size)
        most = None
        if self._rows.subset.by_key:
            ranges = tuple(ranges)
            most = len(ranges) * self._options.range_size
        total, is_large = self._rows.count(entity, most), self._rows.is_large(entity)
        self._progress.start(entity.name, total, estimated=is_large)
        with UniqueValues(entity) as uniques:
            for within in ranges:
                self._range(entity, within, as_of, uniques)
            self._refuse(entity, uniques)
        self._progress.finish(entity.name)

    def _refuse(self, entity: Entity, uniques: UniqueValues) -> None:
        """Count the rows that the target would refuse, because another row of the source has their value."""
        for key, label, reason in uniques.refused():
            self._stop.check()
            entry: JsonLine = {"entity": entity.name, "tenant": label, "key": key, "reason": reason}
            self._lines.quarantine(entry, None)
            self._totals.refuse(entity.name, label)
            self._progress.count(entity.name, {"written": -1, "quarantined": 1})
            self._write([line_of(entry)])

    def _range(self, entity: Entity, within: KeyRange, as_of: datetime, uniques: UniqueValues) -> None:
        expired = expiry_test(entity, self._target.options, as_of)
        reader = RangeReader(
            entity, expired=expired, lines=self._lines, subset=self._rows.subset, rules=self._rows.rules
        )
        with ExitStack() as stack:
            view = stack.enter_context(self._rows.port.view())
            # A target without our schema cannot be queried; then all rows would be written.
            there = stack.enter_context(self._target.bulk.view()) if self._compared else None
            as_models = bool(self._target.changes)
            writer = DryWriter(entity, there, self._options.on_conflict, as_models=as_models)
            for batch in self._rows.records(view, entity, within):
                self._stop.check()
                self._limiter.take(len(batch))
                new, left = writer.write(reader.wanted(batch))
                uniques.add(new, written=True)
                uniques.add(left, written=False)
                self._progress.advance(entity.name, len(batch))
                del batch
            # Without a view of the target nothing conflicts.
            outcome = self._without_earlier(entity, writer.outcome)
            alike = self._rows.kinds_alike(view, self._target.bulk, entity, outcome.conflicts)
            tally = reader.tally(*settle_conflicts(outcome, alike))
        self._totals.add(entity.name, tally)
        self._progress.count(entity.name, outcomes_of(tally))

    def _without_earlier(self, entity: Entity, outcome: ImportOutcome) -> ImportOutcome:
        """Return an outcome in which conflicts that earlier rules caused would be written."""
        keys = [item.key for item in outcome.conflicts if not item.overwritten]
        if self._earlier is None or not keys:
            return outcome
        found = self._earlier.find(self._target.bulk, entity, keys, replacing=False)
        left = tuple(item for item in outcome.conflicts if item.key not in found)
        written = Counter(outcome.written) + Counter(found.values())
        return replace(outcome, conflicts=left, written=written)
