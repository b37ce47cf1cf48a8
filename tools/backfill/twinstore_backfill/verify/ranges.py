"""Comparing one range of one entity, document by document."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from twinstore_backfill.verify.contents import ContentDecoder
from twinstore_backfill.verify.differences import differing_paths
from twinstore_backfill.verify.digests import Digest, document_digest, document_number
from twinstore_backfill.verify.merge import keyed, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from twinstore.bulk import BulkPort, BulkView, KeyRange, ScanRow
    from twinstore.catalog import Entity
    from twinstore.keys import Key

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
        self.undecodable.merge(other.undecodable)
        self.quarantined.merge(other.quarantined)
        self.largest = max(self.largest, other.largest)


@dataclass(frozen=True, slots=True)
class RangeComparison:
    """The two sides and what is compared."""

    source: BulkPort
    target: BulkPort
    entity: Entity
    tenant: str | None
    cutoff: datetime | None
    batch_size: int = 1000

    def rows(self, view: BulkView, within: KeyRange) -> Iterator[list[ScanRow]]:
        """Return the rows of a range through a view of one side."""
        return view.rows(self.entity, within, tenant_id=self.tenant, batch_size=self.batch_size)


def compare_range(work: RangeComparison, within: KeyRange) -> RangeResult:
    """Compare a range in full."""
    comparison = RowComparison(work, RangeResult(work.entity.name, work.tenant, within))
    with work.source.view() as left, work.target.view() as right:
        comparison.pairs(merge(comparison.source_rows(left, within), comparison.target_rows(right, within)))
    return comparison.result


class RowComparison:
    """Decides what a pair of rows means and counts it."""

    def __init__(self, work: RangeComparison, result: RangeResult) -> None:
        """Take what is compared and where findings go."""
        self.result = result
        self._work = work
        self._cutoff = work.cutoff
        self._contents = ContentDecoder(work.entity)

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
        """Tell whether the model accepts a row."""
        return self._contents.decodable(row.content)

    def expired(self, row: ScanRow, side: str) -> bool:
        """Tell whether retention has a row due for removal, and count it then."""
        if self._cutoff is None or row.expires is None or row.expires > self._cutoff:
            return False
        self.result.tenants[row.label].counts[f"expired_{side}"] += 1
        return True

    def _both(self, source: ScanRow, target: ScanRow) -> None:
        content = source.content
        if content != target.content:
            self._unequal(source, target)
            return
        self.result.largest = max(self.result.largest, len(content))
        tenant = source.label
        result = self.result.tenants[tenant]
        number = document_number(content)
        result.source.add(number)
        result.target.add(number)
        # Equal on both sides and yet unreadable for the service: that does not prove that it can switch.
        if not self._contents.decodable(content):
            result.counts["undecodable"] += 1
            self.result.undecodable.add(RowName(source.key, tenant))
            return
        result.counts["equal"] += 1
        if source.text_timestamp or target.text_timestamp:
            result.equivalences["text_timestamp"] += 1

    def _unequal(self, source: ScanRow, target: ScanRow) -> None:
        left, right = self._contents.canonical(source.content), self._contents.canonical(target.content)
        tenant = source.label
        # Digests are of the canonical form where there is one, so that equivalent documents have one digest.
        self.result.tenants[tenant].source.add(document_number(left or source.content))
        self.result.tenants[target.label].target.add(document_number(right or target.content))
        if left is None and right is None:
            self.result.tenants[tenant].counts["undecodable"] += 1
            self.result.undecodable.add(RowName(source.key, tenant))
        elif left == right:
            self._equivalent(tenant, source, target)
        else:
            self.result.tenants[tenant].counts["different"] += 1
            self.result.different.add(self._difference(source, target, left, right))

    def _equivalent(self, tenant: str, source: ScanRow, target: ScanRow) -> None:
        text = source.text_timestamp or target.text_timestamp
        self.result.tenants[tenant].counts["equal"] += 1
        self.result.tenants[tenant].equivalences["text_timestamp" if text else "normalised"] += 1

    def _difference(
        self, source: ScanRow, target: ScanRow, left: bytes | None, right: bytes | None
    ) -> RowDifference:
        parse = self._contents.parsed
        paths = differing_paths(parse(left or source.content), parse(right or target.content))
        if left is None or right is None:
            paths.insert(0, f"doc (cannot be decoded in {'source' if left is None else 'target'})")
        return RowDifference(
            key=source.key or (),
            tenant=source.label,
            source_digest=document_digest(left or source.content),
            target_digest=document_digest(right or target.content),
            paths=tuple(paths[:PATHS]),
            path_count=len(paths),
        )

    def _only_source(self, row: ScanRow) -> None:
        tenant = row.label
        # The copy keeps such a row back, so its absence in the target is known and not a loss.
        if self._contents.canonical(row.content) is None:
            self.result.tenants[tenant].counts["quarantined"] += 1
            self.result.quarantined.add(RowName(row.key, tenant))
            return
        self.result.tenants[tenant].source.add(document_number(row.content))
        self.result.tenants[tenant].counts["missing"] += 1
        self.result.missing.add(RowName(row.key, tenant))

    def _only_target(self, row: ScanRow) -> None:
        tenant = row.label
        self.result.tenants[tenant].target.add(document_number(row.content))
        self.result.tenants[tenant].counts["extra"] += 1
        self.result.extra.add(RowName(row.key, tenant))
