"""Reading a range of the source: counts everything, keeps back what is not to be written."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from twinstore.bulk import RangeTally
from twinstore.errors import TwinstoreError
from twinstore_backfill.copy.quarantine import conflict_entry, quarantine_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from twinstore.bulk import BulkPort, ImportOutcome, KeyRange, Record
    from twinstore.catalog import Entity
    from twinstore_backfill.copy.limiter import RateLimiter
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["Exports", "LineSink", "RangeReader", "Tally"]


class LineSink(Protocol):
    """Takes what is to be said about single rows of a range."""

    def add(self, entry: Mapping[str, object]) -> None:
        """Collect one entry."""
        ...

    def commit(self) -> None:
        """Keep the entries durably; called inside the transaction of the range."""
        ...


class Exports:
    """Exports ranges of the wanted tenants."""

    def __init__(self, port: BulkPort, tenants: Sequence[str], batch_size: int) -> None:
        """Take the source, the tenants (none: all) and the rows per batch."""
        self._port = port
        self._tenants = tuple(sorted(set(tenants)))
        self._batch_size = batch_size

    def batches(self, entity: Entity, within: KeyRange) -> Iterator[list[Record]]:
        """Return the records of a range in batches."""
        return chain.from_iterable(
            self._port.export(entity, within, tenant_id=tenant, batch_size=self._batch_size)
            for tenant in self._tenants or (None,)
        )

    def ranges(self, entity: Entity, rows: int) -> list[KeyRange]:
        """Cut an entity. For one tenant its own rows count, for several those of all."""
        tenant = self._tenants[0] if len(self._tenants) == 1 else None
        return list(self._port.cut(entity, rows, tenant_id=tenant))

    def count(self, entity: Entity) -> int:
        """Return the number of rows to read."""
        counts = self._port.counts(entity)
        return sum(rows for tenant, rows in counts.items() if not self._tenants or tenant in self._tenants)


class RangeReader:
    """Reads one range once and remembers what it amounted to."""

    def __init__(
        self,
        entity: Entity,
        *,
        expired: Callable[[Record], bool] | None,
        limiter: RateLimiter,
        stop: StopSwitch,
        quarantine: LineSink,
    ) -> None:
        """Take the entity, its retention, the pace, the switch to stop, and where bad records go."""
        self.entity = entity
        self.read: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.undecodable: Counter[str] = Counter()
        self.text_timestamp: Counter[str] = Counter()
        self.complete = False
        self._expired = expired
        self._limiter = limiter
        self._stop = stop
        self._quarantine = quarantine
        self._identity = tuple(entity.identity.items())

    def batches(self, source: Iterator[list[Record]]) -> Iterator[list[Record]]:
        """Yield the records that are to be written.

        Raises:
            StopRequestedError: a stop was requested; the range must not be committed.
        """
        for batch in source:
            self._stop.check()
            self._limiter.take(len(batch))
            if wanted := [record for record in batch if self._wanted(record)]:
                yield wanted
        self.complete = True

    def _wanted(self, record: Record) -> bool:
        tenant = record.tenant_id or ""
        self.read[tenant] += 1
        if record.text_timestamp:
            self.text_timestamp[tenant] += 1
        if reason := self._unfit(record):
            self.undecodable[tenant] += 1
            self._quarantine.add(quarantine_entry(self.entity, record, reason))
            return False
        if self._expired is not None and self._expired(record):
            self.expired[tenant] += 1
            return False
        return True

    def _unfit(self, record: Record) -> str | None:
        """Return why a record cannot be moved, ``None`` when it can.

        The model trims ids. A stored id with outer blanks would become another row's id, or its tenant
        another tenant.
        """
        if record.model is None or record.key is None:
            return record.error or "the stored key is no text"
        model = record.model
        stored = dict(zip(self.entity.key, record.key, strict=True))
        if self.entity.tenant_field is not None:
            stored[self.entity.tenant_field] = record.tenant_id or ""
        for wire, name in self._identity:
            if stored[wire] != getattr(model, name):
                return (
                    f"the stored {wire} has outer blanks, or is not in normal form; correct it at the source"
                )
        return None


class Tally:
    """Turns the outcome of a range into its tally, after quarantine and conflicts are on disk."""

    def __init__(self, reader: RangeReader, quarantine: LineSink, conflicts: LineSink) -> None:
        """Take what was read and where the lines of this range go."""
        self._reader = reader
        self._quarantine = quarantine
        self._conflicts = conflicts
        self.result = RangeTally(read={})

    def __call__(self, outcome: ImportOutcome) -> RangeTally:
        """Return the tally.

        Raises:
            TwinstoreError: the driver did not account for every record it was given.
        """
        reader = self._reader
        for rejected in outcome.rejected:
            self._quarantine.add(quarantine_entry(reader.entity, rejected.record, rejected.reason))
        for conflict in outcome.conflicts:
            self._conflicts.add(conflict_entry(reader.entity, conflict))
        rejections = Counter(rejected.record.tenant_id or "" for rejected in outcome.rejected)
        conflicts = Counter(item.tenant_id or "" for item in outcome.conflicts if not item.overwritten)
        tally = RangeTally(
            read=dict(reader.read),
            written=_without_zeros(outcome.written),
            unchanged=_without_zeros(outcome.unchanged),
            conflicts=dict(conflicts),
            quarantined=dict(reader.undecodable + rejections),
            expired=dict(reader.expired),
            text_timestamp=dict(reader.text_timestamp),
        )
        check_complete(reader, tally)
        self._quarantine.commit()
        self._conflicts.commit()
        self.result = tally
        return tally


def _without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    return {tenant: count for tenant, count in counts.items() if count}


def check_complete(reader: RangeReader, tally: RangeTally) -> None:
    """Refuse a tally that does not account for every record of the range."""
    parts = (tally.written, tally.unchanged, tally.conflicts, tally.quarantined, tally.expired)
    accounted = sum((Counter(part) for part in parts), Counter[str]())
    if not reader.complete or accounted != Counter(tally.read):
        raise TwinstoreError(
            f"The target driver accounted for {accounted.total()} of {reader.read.total()} records "
            f"of a range of {reader.entity.name}; nothing of it was committed. The driver is at fault.",
            entity=reader.entity.name,
        )
