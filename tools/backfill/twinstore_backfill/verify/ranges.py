"""Comparing one range of one entity, document by document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.bulk import NOTHING_BESIDE, KeyRange
from twinstore.keys import Key
from twinstore.releasing import copied
from twinstore.scanned import content_without
from twinstore.stored import has_marks
from twinstore_backfill.copy.reading import REPEATED, no_key
from twinstore_backfill.copy.retention import is_due
from twinstore_backfill.ignoring import top_names
from twinstore_backfill.subset import EVERYTHING, Subset
from twinstore_backfill.verify.apart import ApartFrom
from twinstore_backfill.verify.chosen import Chosen
from twinstore_backfill.verify.differences import differing_paths
from twinstore_backfill.verify.digests import document_digest, document_number
from twinstore_backfill.verify.equivalences import IGNORED, is_harmless, looked_for
from twinstore_backfill.verify.expected import Expected, Expecting, Refused, misplaced, stands_beside
from twinstore_backfill.verify.findings import (
    UNREADABLE_TARGET,
    FindingKind,
    RowFinding,
    compared,
    shown_paths,
)
from twinstore_backfill.verify.kept import nothing_kept
from twinstore_backfill.verify.merge import keyed, merge
from twinstore_backfill.verify.results import RangeResult
from twinstore_backfill.verify.turns import one_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from twinstore.bulk import BulkPort, BulkView, ScanRow
    from twinstore.catalog import Entity
    from twinstore_backfill.ignoring import IgnoredPath
    from twinstore_backfill.verify.removals import Removals, Side

__all__ = ["RangeComparison", "RowComparison", "compare_keys", "compare_parts", "compare_range"]

# Rows that are not in the target, of one question to the ledger.
ASKED: Final = 500
KEPT: Final = "the target refused it in a copy, whose quarantine says why"


@dataclass(frozen=True, slots=True)
class RangeComparison:
    """The two sides and what is compared.

    Attributes:
        cutoff: the instant up to which rows have expired, ``None`` when they never do.
        removals: which rows may be removed while they are compared, ``None`` when none is.
        kept_back: returns those of some keys that a copy into the target has in quarantine.
        ignored: unknown properties that a copy of the entity drops.
        ignored_fields: known ones that are not compared.
        subset: which rows are meant by their date.
    """

    source: BulkPort
    target: BulkPort
    entity: Entity
    tenant: str | None
    cutoff: datetime | None
    batch_size: int = 1000
    removals: Removals | None = None
    kept_back: Callable[[Entity, Sequence[Key]], AbstractSet[Key]] = nothing_kept
    ignored: tuple[IgnoredPath, ...] = ()
    ignored_fields: tuple[IgnoredPath, ...] = ()
    subset: Subset = EVERYTHING

    def rows(self, view: BulkView, within: KeyRange) -> Iterator[list[ScanRow]]:
        """Return the rows of a range through a view of one side."""
        batches = view.rows(self.entity, within, tenant_id=self.tenant, batch_size=self.batch_size)
        # A generator would remember a batch while it reads the next.
        return map(partial(copied, self.entity), batches)


def compare_range(work: RangeComparison, within: KeyRange) -> RangeResult:
    """Compare a range in full."""
    result = RangeResult(work.entity.name, work.tenant, within)
    compare_parts(work, [within], result)
    result.shares.compared += 1
    return result


def compare_parts(work: RangeComparison, parts: Sequence[KeyRange], result: RangeResult) -> None:
    """Compare parts of a range, in order, and add what is found to what is known of the others."""
    comparison = RowComparison(work, result)
    with work.source.view() as left, work.target.view() as right:
        for part in parts:
            comparison.pairs(merge(comparison.source_rows(left, part), comparison.target_rows(right, part)))
    comparison.settle()


def compare_keys(work: RangeComparison, keys: Sequence[Key]) -> RangeResult:
    """Compare single rows."""
    within = KeyRange()
    comparison = RowComparison(work, RangeResult(work.entity.name, work.tenant, within))
    with work.source.view() as left, work.target.view() as right:
        source, target = (_in_order(view.rows_of(work.entity, keys)) for view in (left, right))
        pairs = merge(
            comparison.keyed_source(iter([source]), within), comparison.keyed_target(iter([target]), within)
        )
        comparison.pairs(pairs)
    comparison.settle()
    return comparison.result


def _in_order(rows: Iterable[ScanRow]) -> list[ScanRow]:
    return sorted((row for row in rows if row.key is not None), key=lambda row: row.key or ())


class RowComparison:
    """Decides what a pair of rows means and counts it."""

    def __init__(self, work: RangeComparison, result: RangeResult) -> None:
        """Take what is compared and where findings go."""
        self.result = result
        self._work = work
        self._cutoff = work.cutoff
        self._expecting = Expecting(work.entity, work.ignored)
        self._ignored = top_names(work.ignored, work.entity, with_reason=True)
        self._looked_for = looked_for(work.entity)
        self._apart = ApartFrom(work.entity, work.ignored_fields, self._expecting)
        self._chosen = Chosen(work.entity, work.subset, self._expecting)
        self._missing: list[tuple[RowFinding, int]] = []

    def source_rows(self, view: BulkView, within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of a range of the source that a copy can carry; count the others."""
        return self.keyed_source(self._weighed(self._work.rows(view, within)), within)

    def target_rows(self, view: BulkView, within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of a range of the target that have a key; count the others."""
        return self.keyed_target(self._weighed(self._work.rows(view, within)), within)

    def _weighed(self, batches: Iterator[list[ScanRow]]) -> Iterator[list[ScanRow]]:
        """Yield batches and remember the largest row, be it equal or not: lists hold pages of them."""
        for batch in batches:
            self.result.largest = max(self.result.largest, *(row.size for row in batch), 0)
            yield batch
            del batch

    def keyed_source(self, batches: Iterator[list[ScanRow]], within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of the source that a copy can carry; count the others."""
        others = self.source_without_key
        return keyed(batches, self._work.entity, within, "source", others, repeated=self.source_repeated)

    def keyed_target(self, batches: Iterator[list[ScanRow]], within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of the target that have a key; count the others."""
        return keyed(batches, self._work.entity, within, "target", self.target_without_key)

    def pairs(self, pairs: Iterable[tuple[ScanRow | None, ScanRow | None]]) -> None:
        """Judge every pair."""
        for source, target in pairs:
            with one_large(max(row.size for row in (source, target) if row is not None)):
                self._pair(source, target)
            # Or both would stay until the next two are read.
            del source, target

    def _pair(self, source: ScanRow | None, target: ScanRow | None) -> None:
        """Judge a pair that is meant; an expired row counts as absent."""
        if not self._chosen(source, target):
            return
        if source is not None and self.expired(source, "source"):
            source = None
        if target is not None and self.expired(target, "target"):
            target = None
        if source is not None and target is not None:
            self._both(source, target)
        elif source is not None and not self.removed(source, "source", lacking="target"):
            self._only_source(source)
        elif target is not None and not self.removed(target, "target", lacking="source"):
            self._only_target(target)

    def source_without_key(self, row: ScanRow) -> None:
        """Count a row that no copy can carry."""
        if self._chosen(row):
            self._quarantined(row, row.error or no_key(self._work.entity))

    def source_repeated(self, row: ScanRow) -> None:
        """Count a row whose key another row has: a copy takes the first one only."""
        if self._chosen(row):
            self._quarantined(row, row.error or REPEATED)

    def target_without_key(self, row: ScanRow) -> None:
        """Count a row that cannot come from a copy."""
        if self._chosen(None, row):
            self._only_target(row)

    def decodable(self, row: ScanRow) -> bool:
        """Tell whether a copy takes a row."""
        content = row.content
        return (not has_marks(content) and self._expecting.accepts(content)) or isinstance(
            self._expecting.of(row), Expected
        )

    def expired(self, row: ScanRow, side: Side) -> bool:
        """Tell whether retention has a row due for removal, and count it then.

        A row of the source that no copy takes stays in quarantine, however old it is.
        """
        return is_due(self._work.entity, row, self._cutoff) and self._count_expired(row, side)

    def removed(self, row: ScanRow, side: Side, *, lacking: Side) -> bool:
        """Tell whether retention may have removed on one side what only the other has; count it then."""
        removals = self._work.removals
        taken = removals is not None and removals.may_have_taken(row, lacking)
        return taken and self._count_expired(row, side)

    def _count_expired(self, row: ScanRow, side: Side) -> bool:
        if side == "source" and not self.decodable(row):
            return False
        self.result.tenants[row.label].counts[f"expired_{side}"] += 1
        return True

    def _both(self, source: ScanRow, target: ScanRow) -> None:
        kept = self._kept(source)
        if kept.content == target.content and not has_marks(kept.content):
            # Once is enough: judging takes a multiple of it.
            target.content = kept.content
            self._as_stored(source, kept, target)
        else:
            self._otherwise(source, target)

    def _kept(self, source: ScanRow) -> ScanRow:
        """Return a row without what may be lost at its top: it is judged as if it never had it."""
        if not self._ignored:
            return source
        content = content_without(source.content, self._ignored)
        return source if content == source.content else replace(source, content=content)

    def _as_stored(self, source: ScanRow, kept: ScanRow, target: ScanRow) -> None:
        """Count a row that both stores hold alike, but for what is ignored in the source."""
        if self._expecting.has_beside or target.beside != NOTHING_BESIDE:
            expected = self._expecting.of(kept)
            if isinstance(expected, Expected) and not stands_beside(expected, target):
                self._different(source, target, expected)
                return
            accepted = isinstance(expected, Expected) and not expected.changes
        else:
            accepted = self._expecting.accepts(kept.content)
        if not accepted:
            # Also of what is ignored: a copy would have dropped it.
            self._otherwise(source, target)
            return
        result = self.result.tenants[source.label]
        number = document_number(kept.content)
        result.source.add(number)
        result.target.add(number)
        result.counts["equal"] += 1
        result.equivalences.update(() if kept is source else (IGNORED,))

    def _otherwise(self, source: ScanRow, target: ScanRow) -> None:
        """Count a row that the source holds in another form than a copy, or the target in a wrong one."""
        expected = self._expecting.beside_target(source, target)
        if isinstance(expected, Expected):
            if expected.content == target.content and stands_beside(expected, target):
                self._equivalent(source, expected)
            elif (agreed := self._apart.equal(expected, target)) is not None:
                self._equivalent(source, agreed)
            else:
                self._different(source, target, expected)
        elif source.content == target.content:
            self._undecodable(source, target)
        else:
            self._stale(source, target, expected)

    def _undecodable(self, source: ScanRow, target: ScanRow) -> None:
        """Count a row that no service can read, on either side."""
        self._digested(source, source.content, target)
        refused = self._expecting.of(source)
        reason = refused.reason if isinstance(refused, Refused) else None
        self._name(
            RowFinding(kind=FindingKind.UNDECODABLE, key=source.key, tenant=source.label, reason=reason)
        )

    def _stale(self, source: ScanRow, target: ScanRow, refused: Refused) -> None:
        """Count a row of the target under the key of a source row that no copy takes."""
        self._digested(source, source.content, target)
        paths = self._paths(source.content, target)
        self._name(compared(FindingKind.STALE, source, source.content, target, paths, refused.reason))

    def _equivalent(self, source: ScanRow, expected: Expected) -> None:
        """Count a row that is right on the target and stored in another form in the source."""
        result = self.result.tenants[source.label]
        number = document_number(expected.content)
        result.source.add(number)
        result.target.add(number)
        result.equivalences.update({change.kind for change in expected.changes})
        open_changes = [change for change in expected.changes if not is_harmless(change, self._looked_for)]
        if not open_changes:
            result.counts["equal"] += 1
            return
        digest = document_digest(expected.content)
        paths = [f"{change.path} ({change.kind})" for change in open_changes]
        self._name(
            RowFinding(
                kind=FindingKind.UNPROVED,
                key=source.key,
                tenant=source.label,
                paths=shown_paths(paths),
                path_count=len(paths),
                source_digest=digest,
                target_digest=digest,
            )
        )

    def _different(self, source: ScanRow, target: ScanRow, expected: Expected) -> None:
        self._digested(source, expected.content, target)
        paths = self._paths(expected.content, target)
        paths += [f"beside.{name}" for name in misplaced(expected, target)]
        self._name(compared(FindingKind.DIFFERENT, source, expected.content, target, paths))

    def _paths(self, wanted: bytes, target: ScanRow) -> list[str]:
        """Return where a row of the target is not as wanted."""
        sides = (self._apart.compared(content) for content in (wanted, target.content))
        paths = differing_paths(*map(jsontext.loads, sides))
        if not has_marks(target.content) and not self._expecting.accepts(target.content):
            paths.insert(0, UNREADABLE_TARGET)
        return paths

    def _digested(self, source: ScanRow, wanted: bytes, target: ScanRow) -> None:
        self.result.tenants[source.label].source.add(document_number(wanted))
        # What nothing stands beside has the digest that the same content has in the source.
        stored = target.content if target.beside == NOTHING_BESIDE else target.content + target.beside
        self.result.tenants[target.label].target.add(document_number(stored))

    def _only_source(self, row: ScanRow) -> None:
        expected = self._expecting.of(row)
        # The copy keeps such a row back, so its absence in the target is known and not a loss.
        if isinstance(expected, Refused):
            self._quarantined(row, expected.reason)
            return
        digest, number = document_digest(expected.content), document_number(expected.content)
        finding = RowFinding(kind=FindingKind.MISSING, key=row.key, tenant=row.label, source_digest=digest)
        self._missing.append((finding, number))
        if len(self._missing) == ASKED:
            self.settle()

    def settle(self) -> None:
        """Count the rows that are not in the target: kept back because it refused them, or missing."""
        keys = [finding.key for finding, _ in self._missing if finding.key is not None]
        kept = self._work.kept_back(self._work.entity, keys) if keys else frozenset[Key]()
        for finding, number in self._missing:
            if finding.key in kept:
                named = replace(finding, kind=FindingKind.QUARANTINED, source_digest=None, reason=KEPT)
            else:
                self.result.tenants[finding.tenant].source.add(number)
                named = finding
            self._name(named)
        self._missing.clear()

    def _only_target(self, row: ScanRow) -> None:
        self.result.tenants[row.label].target.add(document_number(row.content))
        digest = document_digest(row.content)
        self._name(RowFinding(kind=FindingKind.EXTRA, key=row.key, tenant=row.label, target_digest=digest))

    def _quarantined(self, row: ScanRow, reason: str) -> None:
        self._name(RowFinding(kind=FindingKind.QUARANTINED, key=row.key, tenant=row.label, reason=reason))

    def _name(self, finding: RowFinding) -> None:
        self.result.tenants[finding.tenant].counts[finding.kind.value] += 1
        self.result.findings.add(self._work.entity.name, finding)
