"""Comparing one range of one entity, document by document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from twinstore.bulk.release import copyable_rows
from twinstore.bulk.rows import NO_ADDITIONAL_VALUES, has_marks
from twinstore.catalog.keys import Key, KeyRange
from twinstore.errors import TwinstoreError
from twinstore.models import json_text
from twinstore_backfill.causes import REPEATED, cause_of, no_key
from twinstore_backfill.ignored import content_without_fields
from twinstore_backfill.report.texts import IGNORED_FIELD
from twinstore_backfill.retention import instant_in, is_expired, is_meant
from twinstore_backfill.rules.model import NO_RULES, JobRules
from twinstore_backfill.subset import EVERYTHING, Subset
from twinstore_backfill.verify.acceptance import Acceptance
from twinstore_backfill.verify.expected import (
    Change,
    Expected,
    Refused,
    RowExpectation,
    additional_values_match,
    differing_paths,
    is_harmless,
    mismatched_values,
    queried_fields,
)
from twinstore_backfill.verify.findings import (
    UNREADABLE_TARGET,
    FindingKind,
    RangeResult,
    RowFinding,
    compared,
    none_quarantined,
    shown_paths,
)
from twinstore_backfill.verify.memory_lock import large_row_lock
from twinstore_backfill.verify.set_digest import document_digest, document_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.bulk.port import BulkPort, BulkView
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.ignored import IgnoredPath
    from twinstore_backfill.rules.model import DropRule

# Rows that are not in the target, of one question to the ledger.
KEYS_PER_LEDGER_QUERY: Final = 500


@dataclass(frozen=True, slots=True)
class RangeComparison:
    """The two sides and what is compared.

    Attributes:
        cutoff: the instant up to which rows have expired, ``None`` when they never do.
        removals: which rows may be removed while they are compared, ``None`` when none is.
        find_quarantined: returns by key why a copy into the target has those of some keys in quarantine.
        drops: rules that drop unknown properties of the source.
        ignored_fields: known ones that are not compared.
        subset: which rows are meant by their date.
        rules: what is accepted.
        moves_tenants: whether rules change the tenant, so that the source is read whole to select by it.
    """

    source: BulkPort
    target: BulkPort
    entity: Entity
    tenant: str | None
    cutoff: datetime | None
    batch_size: int = 1000
    removals: Removals | None = None
    find_quarantined: Callable[[Entity, Sequence[Key]], Mapping[Key, str]] = none_quarantined
    drops: tuple[DropRule, ...] = ()
    ignored_fields: tuple[IgnoredPath, ...] = ()
    subset: Subset = EVERYTHING
    rules: JobRules = NO_RULES
    moves_tenants: bool = False

    def rows_of_source(self, view: BulkView, within: KeyRange) -> Iterator[list[ScanRow]]:
        """Return the rows of a range of the source; the tenant is the one after the rules."""
        if self.tenant is None or not self.moves_tenants:
            return self.rows(view, within)
        batches = view.rows(self.entity, within, batch_size=self.batch_size)
        mine = ([row for row in batch if row.label == self.tenant] for batch in batches)
        return map(partial(copyable_rows, self.entity), mine)

    def rows(self, view: BulkView, within: KeyRange) -> Iterator[list[ScanRow]]:
        """Return the rows of a range through a view of one side."""
        batches = view.rows(self.entity, within, tenant_id=self.tenant, batch_size=self.batch_size)
        # A generator would remember a batch while it reads the next.
        return map(partial(copyable_rows, self.entity), batches)


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
        self.result = result
        self._work = work
        self._cutoff = work.cutoff
        self._expectation = RowExpectation(work.entity, work.drops)
        self._queried_fields = queried_fields(work.entity)
        self._acceptance = Acceptance(work.entity, work.rules)
        self._exclusion = FieldExclusion(work.entity, work.ignored_fields, self._expectation)
        self._row_filter = RowFilter(work.entity, work.subset, self._expectation)
        self._missing: list[tuple[RowFinding, int]] = []

    def source_rows(self, view: BulkView, within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of a range of the source that a copy can carry; count the others."""
        return self.keyed_source(self._track_largest(self._work.rows_of_source(view, within)), within)

    def target_rows(self, view: BulkView, within: KeyRange) -> Iterator[ScanRow]:
        """Return the rows of a range of the target that have a key; count the others."""
        return self.keyed_target(self._track_largest(self._work.rows(view, within)), within)

    def _track_largest(self, batches: Iterator[list[ScanRow]]) -> Iterator[list[ScanRow]]:
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
            with large_row_lock(max(row.size for row in (source, target) if row is not None)):
                self._pair(source, target)
            # Or both would stay until the next two are read.
            del source, target

    def _pair(self, source: ScanRow | None, target: ScanRow | None) -> None:
        """Judge a pair that is meant; an expired row counts as absent."""
        if not self._row_filter(source, target):
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
        if self._row_filter(row):
            self._quarantined(row, row.error or no_key(self._work.entity))

    def source_repeated(self, row: ScanRow) -> None:
        """Count a row whose key another row has: a copy takes the first one only."""
        if self._row_filter(row):
            judged = self._expectation.of(row)
            self._quarantined(row, judged.reason if isinstance(judged, Refused) else REPEATED)

    def target_without_key(self, row: ScanRow) -> None:
        """Count a row that cannot come from a copy."""
        if self._row_filter(None, row):
            self._only_target(row)

    def decodable(self, row: ScanRow) -> bool:
        """Return whether a copy accepts a row."""
        content = row.content
        return (not has_marks(content) and self._expectation.accepts(content)) or isinstance(
            self._expectation.of(row), Expected
        )

    def expired(self, row: ScanRow, side: Side) -> bool:
        """Return whether a row has expired by retention, and count it then.

        A row of the source that no copy accepts stays in quarantine, however old it is.
        """
        return is_expired(self._work.entity, row, self._cutoff) and self._count_expired(row, side)

    def removed(self, row: ScanRow, side: Side, *, lacking: Side) -> bool:
        """Return whether retention may have removed a row that only one side has; count it then."""
        removals = self._work.removals
        taken = removals is not None and removals.may_have_removed(row, lacking)
        return taken and self._count_expired(row, side)

    def _count_expired(self, row: ScanRow, side: Side) -> bool:
        if side == "source" and not self.decodable(row):
            return False
        self.result.tenants[row.label].counts[f"expired_{side}"] += 1
        return True

    def _both(self, source: ScanRow, target: ScanRow) -> None:
        is_equal = source.content == target.content and not self._expectation.drops(source)
        if is_equal:
            # Once is enough: judging takes a multiple of it.
            target.content = source.content
        if is_equal and self._is_plain(target) and self._expectation.is_normal(source.content):
            self._count_rules(source)
            self._equal(source)
        else:
            self._compare_forms(source, target)

    def _count_rules(self, source: ScanRow) -> None:
        """Count the rules that changed a row that a copy stores."""
        if source.rules:
            self.result.tenants[source.label].rules.update(source.rules)

    def _is_plain(self, row: ScanRow) -> bool:
        """Whether the content of a row is all that decides about it."""
        additional = self._expectation.has_additional_values or row.beside != NO_ADDITIONAL_VALUES
        return not additional and not has_marks(row.content)

    def _equal(self, source: ScanRow) -> None:
        """Count a row that both stores hold as a copy stores it."""
        result = self.result.tenants[source.label]
        number = document_number(source.content)
        result.source.add(number)
        result.target.add(number)
        result.counts["equal"] += 1

    def _compare_forms(self, source: ScanRow, target: ScanRow) -> None:
        """Count a row that a side holds in another form than a copy writes, or the target in a wrong one."""
        expected = self._expectation.of_pair(source, target)
        if isinstance(expected, Expected):
            self._count_rules(source)
            if expected.content == target.content and additional_values_match(expected, target):
                self._equivalent(source, expected)
            elif (agreed := self._exclusion.equal(expected, target)) is not None:
                self._equivalent(source, agreed)
            else:
                self._different(source, target, expected)
        elif source.content == target.content:
            self._undecodable(source, target)
        else:
            self._stale(source, target, expected)

    def _undecodable(self, source: ScanRow, target: ScanRow) -> None:
        """Count a row that no service can read, on either side."""
        self._add_digests(source, source.content, target)
        refused = self._expectation.of(source)
        reason = refused.reason if isinstance(refused, Refused) else None
        self._record(
            RowFinding(kind=FindingKind.UNDECODABLE, key=source.key, tenant=source.label, reason=reason)
        )

    def _stale(self, source: ScanRow, target: ScanRow, refused: Refused) -> None:
        """Count a row of the target under the key of a source row that no copy takes."""
        self._add_digests(source, source.content, target)
        paths = self._paths(source.content, target)
        self._record(compared(FindingKind.STALE, source, source.content, target, paths, refused.reason))

    def _equivalent(self, source: ScanRow, expected: Expected) -> None:
        """Count a row that is right on the target and stored in another form in the source."""
        result = self.result.tenants[source.label]
        number = document_number(expected.content)
        result.source.add(number)
        result.target.add(number)
        result.equivalences.update({change.kind for change in expected.changes})
        open_changes = [
            change for change in expected.changes if not is_harmless(change, self._queried_fields)
        ]
        accepted = [self._acceptance.equivalence(change) for change in open_changes]
        if None not in accepted:
            result.counts["equal"] += 1
            if accepted:
                result.counts["equal_approved"] += 1
            result.accepted.update(number for number in {*accepted} if number is not None)
            return
        open_changes = [
            change for change, number in zip(open_changes, accepted, strict=True) if number is None
        ]
        digest = document_digest(expected.content)
        paths = [f"{change.path} ({change.kind})" for change in open_changes]
        self._record(
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
        self._add_digests(source, expected.content, target)
        paths = self._paths(expected.content, target)
        paths += [f"beside.{name}" for name in mismatched_values(expected, target)]
        self._record(compared(FindingKind.DIFFERENT, source, expected.content, target, paths))

    def _paths(self, wanted: bytes, target: ScanRow) -> list[str]:
        """Return where a row of the target is not as wanted."""
        sides = (self._exclusion.compared(content) for content in (wanted, target.content))
        paths = differing_paths(*map(json_text.loads, sides))
        if not has_marks(target.content) and not self._expectation.accepts(target.content):
            paths.insert(0, UNREADABLE_TARGET)
        return paths

    def _add_digests(self, source: ScanRow, wanted: bytes, target: ScanRow) -> None:
        self.result.tenants[source.label].source.add(document_number(wanted))
        # A row without additional values has the digest that the same content has in the source.
        stored = target.content if target.beside == NO_ADDITIONAL_VALUES else target.content + target.beside
        self.result.tenants[target.label].target.add(document_number(stored))

    def _only_source(self, row: ScanRow) -> None:
        expected = self._expectation.of(row)
        # The copy keeps such a row back, so its absence in the target is known and not a loss.
        if isinstance(expected, Refused):
            self._quarantined(row, expected.reason)
            return
        self._count_rules(row)
        digest, number = document_digest(expected.content), document_number(expected.content)
        finding = RowFinding(kind=FindingKind.MISSING, key=row.key, tenant=row.label, source_digest=digest)
        self._missing.append((finding, number))
        if len(self._missing) == KEYS_PER_LEDGER_QUERY:
            self.settle()

    def settle(self) -> None:
        """Count the rows that are not in the target: quarantined because it refused them, or missing."""
        keys = [finding.key for finding, _ in self._missing if finding.key is not None]
        kept = self._work.find_quarantined(self._work.entity, keys) if keys else {}
        for finding, number in self._missing:
            reason = None if finding.key is None else kept.get(finding.key)
            if reason is not None:
                self._quarantined(finding, reason)
            else:
                self.result.tenants[finding.tenant].source.add(number)
                self._record(finding)
        self._missing.clear()

    def _only_target(self, row: ScanRow) -> None:
        self.result.tenants[row.label].target.add(document_number(row.content))
        digest = document_digest(row.content)
        self._record(
            RowFinding(
                kind=FindingKind.EXTRA,
                key=row.key,
                tenant=row.label,
                target_digest=digest,
                stored_key=row.stored_key,
            )
        )

    def _quarantined(self, row: ScanRow | RowFinding, reason: str) -> None:
        """Count a row that no copy takes; its cause may be accepted."""
        label = row.tenant if isinstance(row, RowFinding) else row.label
        cause = cause_of(self._work.entity, reason)
        accepted = self._acceptance.cause(cause)
        if accepted is not None:
            self.result.tenants[label].accepted[accepted] += 1
        self._record(
            RowFinding(
                kind=FindingKind.QUARANTINED,
                key=row.key,
                tenant=label,
                reason=reason,
                cause=str(cause),
                stored_key=row.stored_key,
            )
        )

    def _record(self, finding: RowFinding) -> None:
        self.result.tenants[finding.tenant].counts[finding.kind.value] += 1
        self.result.findings.add(self._work.entity.name, finding)


# Walking two sorted scans side by side.


Pair = tuple["ScanRow | None", "ScanRow | None"]


def keyed(
    batches: Iterator[list[ScanRow]],
    entity: Entity,
    within: KeyRange,
    side: str,
    without_key: Callable[[ScanRow], None],
    *,
    repeated: Callable[[ScanRow], None] | None = None,
) -> Iterator[ScanRow]:
    """Yield the rows of a scan that have a key; hand the others over.

    Args:
        batches: the scan.
        entity: what is scanned.
        within: its range.
        side: source or target, for messages.
        without_key: takes a row without a key.
        repeated: takes a row whose key another row has had; ``None`` if a unique index makes that a fault.

    Raises:
        TwinstoreError: keys out of order or outside the range: the rows that the scan skipped are unknown.
    """
    last: Key | None = None
    # Texts are compared by code point and numbers as numbers, so a part of another type has no place.
    types = tuple(int if part.type.is_number else str for part in entity.key_parts)
    for batch in batches:
        # Each row leaves the batch, and is forgotten before the next is read: it may be as large as any.
        batch.reverse()
        while batch:
            row = batch.pop()
            key = row.key
            if key is None:
                without_key(row)
                continue
            if tuple(map(type, key)) != types:
                raise _disorder(side, key, "of another type than its entity declares")
            if repeated is not None and key == last:
                repeated(row)
                continue
            if last is not None and key <= last:
                raise _disorder(side, key, "after a later or equal key")
            # Only the first can lie before the range, since the keys rise from there; the same for the last.
            if last is None and within.lower is not None and key < within.lower:
                raise _disorder(side, key, "before its range")
            last = key
            yield row
            del row
    if last is not None and within.upper is not None and last >= within.upper:
        raise _disorder(side, last, "beyond its range")


def _disorder(side: str, key: Key, where: str) -> TwinstoreError:
    return TwinstoreError(
        f"The scan of the {side} returned key {'/'.join(map(str, key))!r} {where}, so it cannot be trusted. "
        "This is a bug in the driver."
    )


def merge(source: Iterator[ScanRow], target: Iterator[ScanRow]) -> Iterator[Pair]:
    """Yield each key once: with both rows, or with the row of the side that has it."""
    left, right = next(source, None), next(target, None)
    while left is not None and right is not None:
        if left.key == right.key:
            yield left, right
            # Forgotten first, or two pairs would be in memory.
            left = right = None
            left, right = next(source, None), next(target, None)
        elif left.key is not None and right.key is not None and left.key < right.key:
            yield left, None
            left = None
            left = next(source, None)
        else:
            yield None, right
            right = None
            right = next(target, None)
    while left is not None:
        yield left, None
        left = None
        left = next(source, None)
    while right is not None:
        yield None, right
        right = None
        right = next(target, None)


# Rows that retention removes while both sides are compared.
#
# A TTL monitor or a purge does not stop for a verification. A row that only one side has, and that was due by
# the moment at which it was looked for, has expired; it is neither missing nor extra.


# The process that removes rows uses its own clock: another member of a set, or the host of a purge.
MARGIN: Final = timedelta(minutes=1)
# The lists of one tenant take seconds, those over all tenants may take minutes.
LIST_DURATION: Final = timedelta(minutes=15)
# The monitor of MongoDB comes every minute, and after a busy time much later; rows that were due longer ago
# than this were gone before a verification began.
DELAY: Final = timedelta(minutes=10)
# Thousands of rows may be due; the servers need not be queried for each.
CLOCK_CACHE_SECONDS: Final = 1.0

# Of source and target.
RowCounts: TypeAlias = tuple[int, int]
Side: TypeAlias = Literal["source", "target"]


class ServerTime:
    """The time of the server that is ahead, queried at most once a second."""

    def __init__(
        self, clocks: Sequence[Callable[[], datetime]], ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._clocks = clocks
        self._ticks = ticks
        self._queried_at = 0.0
        self._known: datetime | None = None

    def now(self, *, at_least: datetime | None = None) -> datetime:
        """Return the time; it may be a second old, unless that is too early for ``at_least``."""
        known = self._known
        early = known is None or (at_least is not None and known < at_least)
        if known is None or (early and self._ticks() - self._queried_at >= CLOCK_CACHE_SECONDS):
            # Before the answer, so that the time it takes makes what is kept older, never younger.
            self._queried_at = self._ticks()
            known = self._known = max(clock() for clock in self._clocks)
        return known


@dataclass(frozen=True, slots=True)
class ServerTtls:
    """By entity, the age at which the servers remove rows by themselves."""

    source: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])
    target: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])

    def of(self, entity: str) -> dict[Side, timedelta]:
        """Return the ages of one entity by side, without a side that removes nothing."""
        sides: tuple[tuple[Side, Mapping[str, timedelta]], ...] = (
            ("source", self.source),
            ("target", self.target),
        )
        return {side: ages[entity] for side, ages in sides if entity in ages}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Which rows of one entity may have been removed by now.

    Attributes:
        time: the time of the servers.
        as_of: the instant by which expired rows are skipped.
        since: when the verification began.
        age: the age at which rows expire by the settings of the target, ``None``: never.
        own: the age at which the server of a side removes rows by itself.
    """

    entity: Entity
    time: ServerTime
    as_of: datetime
    since: datetime
    age: timedelta | None
    own: Mapping[Side, timedelta] = field(default_factory=dict[Side, timedelta])

    @property
    def possible(self) -> bool:
        """Whether any row can be removed."""
        return self.age is not None or bool(self.own)

    def may_have_removed(self, row: ScanRow, lacking: Side) -> bool:
        """Return whether a row may have been removed for its age on the side that lacks it."""
        expires = row.expires
        if expires is None:
            return False
        return any(
            (earliest is None or expires > earliest)
            and is_expired(self.entity, row, self._limit(age, expires))
            for age, earliest in self._ages(lacking)
        )

    def removal_horizon(self) -> datetime | None:
        """Return the instant up to which rows may be gone on one side before a list is read to its end."""
        ages = list(self.own.values())
        # By the settings rows are removed during a purge; an ``as_of`` long ago includes all rows since.
        if self.age is not None and self.as_of >= self.since - DELAY:
            ages.append(self.age)
        return self.time.now() + LIST_DURATION - min(ages) if ages else None

    def _ages(self, lacking: Side) -> Iterator[tuple[timedelta, datetime | None]]:
        """Yield each age with the instant from which on rows count by it."""
        if self.age is not None:
            yield self.age, self.since - DELAY - self.age
        own = self.own.get(lacking)
        if own is not None:
            # With the age of the settings the server only does what is settled. With another one, rows that
            # it removed before the verification are no longer part of that side.
            yield own, None if own == self.age else self.since - DELAY - own

    def _limit(self, age: timedelta, expires: datetime) -> datetime:
        return self.time.now(at_least=expires + age - MARGIN) + MARGIN - age


def counted_rows(before: RowCounts, after: RowCounts, read: RowCounts) -> RowCounts:
    """Return how many rows source and target had when they were read.

    Args:
        before: the rows that each side counted before it was read.
        after: the same, counted afterwards.
        read: the rows that were read.
    """
    # Only if the count has fallen that far: rows that a scan skipped are still counted afterwards.
    source, target = (
        seen if end <= seen < start else start for start, end, seen in zip(before, after, read, strict=True)
    )
    return source, target


def sampled_rows(before: RowCounts, after: RowCounts, surplus: int) -> RowCounts:
    """Return how many rows each side may have had at the same time, where a sample has not read them all.

    Args:
        before: the rows that source and target counted at the beginning.
        after: the same, counted at the end.
        surplus: how many more rows the source must have than the target.
    """
    # The latest moment at which both numbers fit together, if there is one.
    source = min(before[0], before[1] + surplus)
    target = source - surplus
    return (source, target) if source >= after[0] and target >= after[1] else before


class FieldExclusion:
    """Compares rows of one entity apart from its ignored fields."""

    def __init__(self, entity: Entity, ignored: tuple[IgnoredPath, ...], expectation: RowExpectation) -> None:
        self._markers, self._ignored, self._expectation = entity.markers, ignored, expectation

    def equal(self, expected: Expected, target: ScanRow) -> Expected | None:
        """Return the content that both sides share, with a change for each ignored field that differs.

        ``None`` if they differ in anything else, if no service can read the row of the target, or if its
        additional values do not follow from its content.
        """
        if not self._ignored or not self.alike(expected.content, target.content):
            return None
        own = self._expectation.of(target)
        if not isinstance(own, Expected) or not additional_values_match(own, target):
            return None
        found = [
            Change(IGNORED_FIELD, self._place(item), item.path[0])
            for item in self._ignored
            if not self.alike(expected.content, target.content, but=item)
        ]
        # Values that follow from an ignored field are looked up under a separate name.
        tops = {item.path[0] for item in self._ignored}
        names = (expected.beside.keys() | own.beside.keys()) - tops
        found += [
            Change(IGNORED_FIELD, f"beside.{name}", name)
            for name in sorted(names)
            if expected.beside.get(name) != own.beside.get(name)
        ]
        content = content_without_fields(expected.content, self._ignored)
        return replace(expected, content=content, changes=(*expected.changes, *found))

    def _place(self, item: IgnoredPath) -> str:
        # A marker hides a field of its name.
        return ".".join(("storage" if item.path[0] in self._markers else "doc", *item.path))

    def alike(self, wanted: bytes, stored: bytes, *, but: IgnoredPath | None = None) -> bool:
        """Whether two contents agree in all fields that are not ignored; ``but`` one is not ignored."""
        left = [item for item in self._ignored if item is not but]
        return content_without_fields(wanted, left) == content_without_fields(stored, left)

    def compared(self, content: bytes) -> bytes:
        """Return the part of a content that is compared."""
        return content_without_fields(content, self._ignored) if self._ignored else content


class RowFilter:
    """Selects rows by their date; the ranges that are read select the keys."""

    def __init__(self, entity: Entity, subset: Subset, expectation: RowExpectation) -> None:
        self._entity, self._subset, self._expectation = entity, subset, expectation
        self._dated = entity.dated if subset.by_time else None

    def __call__(self, source: ScanRow | None, target: ScanRow | None = None) -> bool:
        """Whether a pair is selected: one of its rows is. A row without a readable date always is.

        So is a row of the source that a copy cannot accept, whatever its date, because a copy of any period
        quarantines it; a row that only the target has is not removed for that.
        """
        name = self._dated
        if name is None:
            return True
        return (source is not None and self._is_meant(source, name, judged=True)) or (
            target is not None and self._is_meant(target, name, judged=False)
        )

    def _is_meant(self, row: ScanRow, name: str, *, judged: bool) -> bool:
        instant = _instant_of(row, name)
        if instant is not None and (self._subset.admits(instant) or not judged):
            return self._subset.admits(instant)
        # In another form than a copy writes, or absent with a default: as a copy would read it.
        record = self._expectation.record(row)
        return record is None or is_meant(self._entity, self._subset, record)


def _instant_of(row: ScanRow, name: str) -> datetime | None:
    """Return the instant as it is stored, ``None`` where it is not stored in the form of a copy."""
    content = json_text.loads(row.content)
    if not isinstance(content, dict):
        return None
    # A marker hides a field of its name.
    for part in ("storage", "doc"):
        values = content.get(part)
        instant = instant_in(values.get(name)) if isinstance(values, dict) else None
        if instant is not None:
            return instant
    return None
