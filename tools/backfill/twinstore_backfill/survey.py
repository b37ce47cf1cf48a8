"""What a copy would refuse and what it would write in another form, read from the source alone.

    ranges -> records, judged as a copy judges them -> refusals -> Reasons
           -> rows, judged as a verification expects them -> normalisations -> Reasons

A plan surveys a sample of each entity, or with --full every row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from math import sqrt
from time import monotonic, process_time
from typing import TYPE_CHECKING, Final

from twinstore.catalog.keys import KeyRange
from twinstore_backfill.copy.dry_run import FirstLines
from twinstore_backfill.copy.duplicates import UniqueValues
from twinstore_backfill.copy.reader import RangeReader, SourceRows
from twinstore_backfill.reasons import NORMALISED, QUARANTINED, UNPROVED
from twinstore_backfill.retention import cutoff, expiry_test, is_expired
from twinstore_backfill.rules.model import DropRule
from twinstore_backfill.verify.expected import Expected, RowExpectation, is_harmless, queried_fields
from twinstore_backfill.verify.findings import field_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from twinstore.bulk.port import BulkView, Record
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.reasons import Reasons
    from twinstore_backfill.report.model import CauseReport
    from twinstore_backfill.stores import Store

# Of each entity: enough to see what one document in a hundred has, without making the plan slow.
SAMPLE: Final = 2000
PLACES: Final = 20
FEW: Final = SAMPLE // PLACES
# Standard deviations on both sides of the middle that hold 95 % of a normal distribution.
Z95: Final = 1.959964


@dataclass(slots=True)
class Survey:
    """What was seen.

    Attributes:
        rows: by entity, how many rows were read.
        seconds: how long reading and decoding them took, without the comparison with the normal form.
        cpu: for how many of these this process computed instead of waiting for the source.
        sorting: by entity without an index of its key, how long it took until the first rows came.
    """

    lines: FirstLines = field(default_factory=FirstLines)
    rows: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0
    cpu: float = 0.0
    sorting: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def reasons(self) -> Reasons:
        """The refusals and normalisations."""
        return self.lines.kept.reasons

    @property
    def rate(self) -> float:
        """Rows read and decoded per second."""
        # An empty source may take no measurable time.
        return self.rows.total() / max(self.seconds, 1e-6)

    @property
    def computing(self) -> float | None:
        """The share of the time in which this process computed, ``None`` if nothing was read."""
        return min(self.cpu / self.seconds, 1.0) if self.rows.total() and self.seconds else None


class Surveyor:
    """Reads a source."""

    def __init__(
        self, source: Store, target: Store, options: CopyOptions, as_of: datetime, stop: StopSwitch
    ) -> None:
        self._options, self._stop = options, stop
        self._retention, self._as_of = target.options, as_of
        self._rows = SourceRows(source.bulk, options)
        # Decoding a first batch of the usual size would count as a part of the sort before it.
        self._few = SourceRows(source.bulk, replace(options, batch_size=FEW))
        self.survey = Survey()

    def sample(self, entity: Entity, rows: int, *, slow: bool) -> None:
        """Read up to 2,000 rows of an entity, some at each of 20 places among its keys.

        Args:
            entity: the entity.
            rows: how many it has.
            slow: whether each access to a range may read all of them; then the first rows are read.
        """
        if slow or rows <= SAMPLE:
            self._range(entity, KeyRange(), SAMPLE, sorts=slow and rows > SAMPLE)
            return
        ranges = self._rows.coarse(entity, PLACES) or self._rows.cut(entity, max(rows // PLACES, 1))
        for within in islice(ranges, PLACES):
            self._range(entity, within, FEW)

    def full(self, entity: Entity) -> None:
        """Read all rows of an entity, and find unique values that occur twice."""
        with UniqueValues(entity) as uniques:
            for within in self._rows.cut(entity, self._options.range_size):
                self._range(entity, within, None, uniques)
            for key, _, reason in uniques.refused():
                self.survey.reasons.add(entity.name, QUARANTINED, reason, tuple(key))

    def _range(
        self,
        entity: Entity,
        within: KeyRange,
        most: int | None,
        uniques: UniqueValues | None = None,
        *,
        sorts: bool = False,
    ) -> None:
        expired = expiry_test(entity, self._retention, self._as_of)
        reader = RangeReader(entity, expired=expired, lines=self.survey.lines, subset=self._rows.subset)
        # Of a larger batch all rows are decoded, also those behind the sample.
        source = self._few if sorts or most == FEW else self._rows
        started, computed = monotonic(), process_time()
        with self._rows.port.view() as view:
            for batch in self._records(source, view, entity, within, most):
                self._stop.check()
                if sorts and entity.name not in self.survey.sorting:
                    self.survey.sorting[entity.name] = monotonic() - started
                    started, computed = monotonic(), process_time()
                wanted = reader.wanted(batch)
                if uniques is not None:
                    uniques.add(wanted, written=True)
                del batch, wanted
            self.survey.seconds += monotonic() - started
            self.survey.cpu += process_time() - computed
            self.survey.rows[entity.name] += reader.read.total()
            self._normalisations(entity, self._scanned(view, entity, within, most))

    def _records(
        self, rows: SourceRows, view: BulkView, entity: Entity, within: KeyRange, most: int | None
    ) -> Iterator[Sequence[Record]]:
        left = most
        for batch in rows.records(view, entity, within):
            yield batch[:left]
            if left is not None and (left := left - len(batch)) <= 0:
                return

    def _scanned(
        self, view: BulkView, entity: Entity, within: KeyRange, most: int | None
    ) -> Iterator[ScanRow]:
        rows = (
            row
            for tenant in self._rows.tenants or (None,)
            for batch in view.rows(entity, within, tenant_id=tenant, batch_size=self._options.rows_per_batch)
            for row in batch
        )
        yield from islice(rows, most)

    def _normalisations(self, entity: Entity, rows: Iterator[ScanRow]) -> None:
        """Count the values that a copy writes in another form, by place and kind."""
        expectation = RowExpectation(entity, self._options.rules.of(entity, DropRule))
        limit, queried = cutoff(entity, self._retention, self._as_of), queried_fields(entity)
        for row in rows:
            expected = None if is_expired(entity, row, limit) else expectation.of(row)
            if not isinstance(expected, Expected):
                continue
            found = {
                f"{field_of(item.path)} ({item.kind})": is_harmless(item, queried)
                for item in expected.changes
            }
            for text, harmless in sorted(found.items()):
                kind = NORMALISED if harmless else UNPROVED
                self.survey.reasons.add(entity.name, kind, text, row.key)


def bounds_of(found: CauseReport, sampled: int, rows: int) -> tuple[int, int]:
    """Return between how many of all rows have a cause, with 95 % confidence (Wilson's interval).

    Args:
        found: the cause, counted in a sample.
        sampled: how many rows of the entity were read.
        rows: how many it has.
    """
    if sampled >= rows:
        return found.documents, found.documents
    share, spread = found.documents / sampled, Z95**2 / sampled
    middle = share + spread / 2
    half = Z95 * sqrt(share * (1 - share) / sampled + spread / (4 * sampled))
    low, high = ((middle + sign * half) / (1 + spread) * rows for sign in (-1, 1))
    # What was seen is there, and what was seen without it is not.
    return max(round(low), found.documents), min(round(high), rows - sampled + found.documents)
