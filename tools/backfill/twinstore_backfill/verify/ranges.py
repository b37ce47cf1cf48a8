"""Comparing one range of one entity, document by document."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import orjson

from twinstore.bulk import NOTHING_BESIDE
from twinstore.keys import Key
from twinstore.stored import has_marks
from twinstore_backfill.verify.differences import differing_paths
from twinstore_backfill.verify.digests import Digest, document_digest, document_number
from twinstore_backfill.verify.equivalences import is_harmless, looked_for
from twinstore_backfill.verify.expected import Expected, Expecting
from twinstore_backfill.verify.kept import nothing_kept
from twinstore_backfill.verify.merge import keyed, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from twinstore.bulk import BulkPort, BulkView, KeyRange, ScanRow
    from twinstore.catalog import Entity

__all__ = [
    "CappedList",
    "RangeComparison",
    "RangeResult",
    "RowDifference",
    "RowName",
    "TenantResult",
    "compare_range",
]

# Enough to see the pattern; counts are exact however many there are.
LISTED: Final = 100
PATHS: Final = 20
# Rows that are missing, of one question to the ledger.
ASKED: Final = 500
T = TypeVar("T")


@dataclass(slots=True)
class CappedList(Generic[T]):
    """The first items in order of the keys, and how many there are."""

    count: int = 0
    items: list[T] = field(default_factory=list)

    def add(self, item: T) -> None:
        """Count one item and keep it while there is room."""
        self.count += 1
        if len(self.items) < LISTED:
            self.items.append(item)

    def merge(self, other: CappedList[T]) -> None:
        """Add what comes later in order."""
        self.count += other.count
        # Ranges are merged in order of their keys, so what is kept are the first of all.
        self.items.extend(other.items[: LISTED - len(self.items)])


@dataclass(frozen=True, slots=True)
class RowName:
    """A row that is worth naming."""

    key: Key | None
    tenant: str


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that both sides have, with other content."""

    key: Key
    tenant: str
    source_digest: str
    target_digest: str
    paths: tuple[str, ...]
    path_count: int


@dataclass(slots=True)
class TenantResult:
    """What a range, or an entity, amounts to for one tenant."""

    source: Digest = field(default_factory=Digest)
    target: Digest = field(default_factory=Digest)
    counts: Counter[str] = field(default_factory=Counter[str])
    equivalences: Counter[str] = field(default_factory=Counter[str])

    def merge(self, other: TenantResult) -> None:
        """Add another part."""
        self.source.merge(other.source)
        self.target.merge(other.target)
        self.counts.update(other.counts)
        self.equivalences.update(other.equivalences)


@dataclass(slots=True)
class RangeResult:
    """What comparing one range found; ``largest`` is the size of its largest document in bytes."""

    entity: str
    tenant: str | None
    within: KeyRange
    tenants: defaultdict[str, TenantResult] = field(default_factory=lambda: defaultdict(TenantResult))
    missing: CappedList[RowName] = field(default_factory=CappedList[RowName])
    extra: CappedList[RowName] = field(default_factory=CappedList[RowName])
    different: CappedList[RowDifference] = field(default_factory=CappedList[RowDifference])
    unproved: CappedList[RowDifference] = field(default_factory=CappedList[RowDifference])
    undecodable: CappedList[RowName] = field(default_factory=CappedList[RowName])
    quarantined: CappedList[RowName] = field(default_factory=CappedList[RowName])
    largest: int = 0

    def merge(self, other: RangeResult) -> None:
        """Add the range that follows."""
        for tenant, result in other.tenants.items():
            self.tenants[tenant].merge(result)
        self.missing.merge(other.missing)
        self.extra.merge(other.extra)
        self.different.merge(other.different)
        self.unproved.merge(other.unproved)
        self.undecodable.merge(other.undecodable)
        self.quarantined.merge(other.quarantined)
        self.largest = max(self.largest, other.largest)


@dataclass(frozen=True, slots=True)
class RangeComparison:
    """The two sides and what is compared; ``kept_back`` tells which rows a copy has in quarantine."""

    source: BulkPort
    target: BulkPort
    entity: Entity
    tenant: str | None
    cutoff: datetime | None
    batch_size: int = 1000
    kept_back: Callable[[Entity, Sequence[Key]], AbstractSet[Key]] = nothing_kept

    def rows(self, view: BulkView, within: KeyRange) -> Iterator[list[ScanRow]]:
        """Return the rows of a range through a view of one side."""
        return view.rows(self.entity, within, tenant_id=self.tenant, batch_size=self.batch_size)


def compare_range(work: RangeComparison, within: KeyRange) -> RangeResult:
    """Compare a range in full."""
    comparison = RowComparison(work, RangeResult(work.entity.name, work.tenant, within))
    with work.source.view() as left, work.target.view() as right:
        comparison.pairs(merge(comparison.source_rows(left, within), comparison.target_rows(right, within)))
    comparison.settle()
    return comparison.result


class RowComparison:
    """Decides what a pair of rows means and counts it."""

    def __init__(self, work: RangeComparison, result: RangeResult) -> None:
        """Take what is compared and where findings go."""
        self.result = result
        self._work = work
        self._cutoff = work.cutoff
        self._expecting = Expecting(work.entity)
        self._looked_for = looked_for(work.entity)
        self._missing: list[tuple[RowName, int]] = []

    def source_rows(self, view: BulkView, within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of a range of the source that a copy can carry; count the others."""
        work = self._work
        rows = work.rows(view, within)
        return keyed(
            rows, work.entity, within, "source", self.source_without_key, repeated=self.source_repeated
        )

    def target_rows(self, view: BulkView, within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of a range of the target that have a key; count the others."""
        work = self._work
        return keyed(work.rows(view, within), work.entity, within, "target", self.target_without_key)

    def pairs(self, pairs: Iterable[tuple[ScanRow | None, ScanRow | None]]) -> None:
        """Judge every pair."""
        for source, target in pairs:
            if source is not None and self.expired(source, "source"):
                source = None  # noqa: PLW2901  # an expired row counts as absent from here on
            if target is not None and self.expired(target, "target"):
                target = None  # noqa: PLW2901  # the same
            if source is not None and target is not None:
                self._both(source, target)
            elif source is not None:
                self._only_source(source)
            elif target is not None:
                self._only_target(target)

    def source_without_key(self, row: ScanRow) -> None:
        """Count a row that no copy can carry."""
        tenant = row.label
        self.result.tenants[tenant].counts["quarantined"] += 1
        self.result.quarantined.add(RowName(None, tenant))

    def source_repeated(self, row: ScanRow) -> None:
        """Count a row whose key another row has: a copy takes the first one only."""
        tenant = row.label
        self.result.tenants[tenant].counts["quarantined"] += 1
        self.result.quarantined.add(RowName(row.key, tenant))

    def target_without_key(self, row: ScanRow) -> None:
        """Count a row that cannot come from a copy."""
        self._only_target(row)

    def decodable(self, row: ScanRow) -> bool:
        """Tell whether a copy takes a row."""
        content = row.content
        return (not has_marks(content) and self._expecting.accepts(content)) or (
            self._expecting.of(row) is not None
        )

    def expired(self, row: ScanRow, side: str) -> bool:
        """Tell whether retention has a row due for removal, and count it then.

        A row of the source that no copy takes stays in quarantine, however old it is.
        """
        if self._cutoff is None or row.expires is None or row.expires > self._cutoff:
            return False
        if side == "source" and not self.decodable(row):
            return False
        self.result.tenants[row.label].counts[f"expired_{side}"] += 1
        return True

    def _both(self, source: ScanRow, target: ScanRow) -> None:
        if source.content == target.content and not has_marks(source.content):
            self._as_stored(source, target)
        else:
            self._otherwise(source, target)

    def _as_stored(self, source: ScanRow, target: ScanRow) -> None:
        """Count a row that both stores hold alike."""
        content, tenant = source.content, source.label
        if self._expecting.has_beside or target.beside != NOTHING_BESIDE:
            expected = self._expecting.of(source)
            accepted = expected is not None
            if expected is not None and not stands_beside(expected, target):
                self._different(source, target, expected)
                return
        else:
            accepted = self._expecting.accepts(content)
        self.result.largest = max(self.result.largest, len(content))
        result = self.result.tenants[tenant]
        number = document_number(content)
        result.source.add(number)
        result.target.add(number)
        if accepted:
            result.counts["equal"] += 1
            return
        result.counts["undecodable"] += 1
        self.result.undecodable.add(RowName(source.key, tenant))

    def _otherwise(self, source: ScanRow, target: ScanRow) -> None:
        """Count a row that the source holds in another form than a copy, or the target in a wrong one."""
        tenant = source.label
        expected = self._expecting.of(source)
        if expected is None and source.content == target.content:
            self.result.tenants[tenant].source.add(document_number(source.content))
            self.result.tenants[target.label].target.add(document_number(target.content))
            self.result.tenants[tenant].counts["undecodable"] += 1
            self.result.undecodable.add(RowName(source.key, tenant))
        elif expected is None or expected.content != target.content or not stands_beside(expected, target):
            self._different(source, target, expected)
        else:
            self._equivalent(source, expected)

    def _equivalent(self, source: ScanRow, expected: Expected) -> None:
        """Count a row that is right on the target and stored in another form in the source."""
        result = self.result.tenants[source.label]
        number = document_number(expected.content)
        result.source.add(number)
        result.target.add(number)
        self.result.largest = max(self.result.largest, len(expected.content))
        open_changes = [change for change in expected.changes if not is_harmless(change, self._looked_for)]
        result.counts["unproved" if open_changes else "equal"] += 1
        result.equivalences.update({change.kind for change in expected.changes} or {"normalised"})
        if open_changes:
            paths = tuple(f"{change.path} ({change.kind})" for change in open_changes)
            self.result.unproved.add(self._named(source, expected.content, expected.content, paths))

    def _different(self, source: ScanRow, target: ScanRow, expected: Expected | None) -> None:
        wanted = source.content if expected is None else expected.content
        paths = differing_paths(orjson.loads(wanted), orjson.loads(target.content))
        if not has_marks(target.content) and not self._expecting.accepts(target.content):
            paths.insert(0, "doc (cannot be decoded in target)")
        if expected is None:
            paths.insert(0, "doc (cannot be copied from source)")
        else:
            paths += [f"beside.{name}" for name in misplaced(expected, target)]
        self.result.tenants[source.label].source.add(document_number(wanted))
        self.result.tenants[target.label].target.add(document_number(target.content + target.beside))
        self.result.tenants[source.label].counts["different"] += 1
        self.result.different.add(self._named(source, wanted, target.content, tuple(paths)))

    @staticmethod
    def _named(source: ScanRow, left: bytes, right: bytes, paths: tuple[str, ...]) -> RowDifference:
        return RowDifference(
            key=source.key or (),
            tenant=source.label,
            source_digest=document_digest(left),
            target_digest=document_digest(right),
            paths=paths[:PATHS],
            path_count=len(paths),
        )

    def _only_source(self, row: ScanRow) -> None:
        tenant = row.label
        expected = self._expecting.of(row)
        # The copy keeps such a row back, so its absence in the target is known and not a loss.
        if expected is None:
            self.result.tenants[tenant].counts["quarantined"] += 1
            self.result.quarantined.add(RowName(row.key, tenant))
            return
        self._missing.append((RowName(row.key, tenant), document_number(expected.content)))
        if len(self._missing) == ASKED:
            self.settle()

    def settle(self) -> None:
        """Count the rows that are not in the target: kept back by the copy, or missing."""
        keys = [name.key for name, _ in self._missing if name.key is not None]
        kept = self._work.kept_back(self._work.entity, keys) if keys else frozenset[Key]()
        for name, number in self._missing:
            part = self.result.tenants[name.tenant]
            if name.key in kept:
                part.counts["quarantined"] += 1
                self.result.quarantined.add(name)
                continue
            part.source.add(number)
            part.counts["missing"] += 1
            self.result.missing.add(name)
        self._missing.clear()

    def _only_target(self, row: ScanRow) -> None:
        tenant = row.label
        self.result.tenants[tenant].target.add(document_number(row.content))
        self.result.tenants[tenant].counts["extra"] += 1
        self.result.extra.add(RowName(row.key, tenant))


def stands_beside(expected: Expected, target: ScanRow) -> bool:
    """Whether the target holds beside the content what follows from it."""
    return target.beside == NOTHING_BESIDE or not misplaced(expected, target)


def misplaced(expected: Expected, target: ScanRow) -> list[str]:
    """Return the names beside the content of a target row that hold something else than they must."""
    stored: dict[str, object] = orjson.loads(target.beside)
    return sorted(
        name
        for name, value in stored.items()
        if value != expected.beside.get(name) or type(value) is not type(expected.beside.get(name))
    )
