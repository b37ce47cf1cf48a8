"""Which ranges of rows are compared, and how: by digests first if both sides have them.

count both sides, cut the source -> digests of all entities, each side by its own threads
-> entity by entity: what the digests prove, and tasks for the rest -> results in key order
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.bulk.release import copy_counts, without_local_rows
from twinstore.bulk.rows import Counted, NoDigests, RangeDigests
from twinstore.catalog.keys import KeyRange
from twinstore.fast.library import fast_path
from twinstore_backfill.subset import intersection
from twinstore_backfill.verify.digest_ranges import DigestReader, Proof, no_digests_reason
from twinstore_backfill.verify.findings import RangeResult
from twinstore_backfill.verify.kept import Mark, refusal
from twinstore_backfill.verify.partition import (
    RANGES_AT_ONCE,
    EarlyCuts,
    partition,
    rows_per_digest,
)
from twinstore_backfill.verify.rules import ranges_after
from twinstore_backfill.verify.sampling import sample_rates
from twinstore_backfill.verify.tasks import OpenPartsTask, RangeTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.context import VerifyContext
    from twinstore_backfill.verify.digest_ranges import LargestRow, Reading
    from twinstore_backfill.verify.kept import Earlier
    from twinstore_backfill.verify.options import VerifyOptions
    from twinstore_backfill.verify.partition import Partition
    from twinstore_backfill.verify.processes import WorkerPool
    from twinstore_backfill.verify.ranges import RowCounts

# Rows that are read to learn how large they are, so that lists need not wait for their comparison.
FEW: Final = 2000
# With fewer open ranges another process would only begin when this one is done.
WORTH_A_PROCESS: Final = 80
# Of entities, or parts of one, that are read while others are compared.
READ_AHEAD: Final = 40_000
# So that the progress moves.
RANGES_TOGETHER: Final = 1000
WRITTEN: Final = "rows were written while their digests were read"


@dataclass(frozen=True, slots=True)
class Planned:
    """Rows of one entity that are compared together; without a ``partition`` range by range, one by one.

    Attributes:
        ranges: all of them, ``None`` for those of the whole entity.
    """

    entity: Entity
    tenant: str | None
    ranges: Sequence[KeyRange] | None = None
    partition: Partition | None = None

    @property
    def cells(self) -> int:
        """How many digests are in memory at most."""
        return 0 if self.partition is None else self.partition.cells


class RangePlan(AbstractContextManager["RangePlan"]):
    """The ranges of one verification."""

    def __init__(
        self,
        context: VerifyContext,
        options: VerifyOptions,
        stop: StopSwitch,
        on_progress: Callable[[int], None],
        earlier: Earlier | None = None,
        *,
        workers: WorkerPool | None = None,
    ) -> None:
        """Take both sides, the request, the callback that counts rows, what is decided, and who reads.

        Negative numbers correct the count.
        """
        self._context, self._options, self._stop, self._on_rows = context, options, stop, on_progress
        self._earlier, self._workers = earlier, workers
        # Ranges since the last mark.
        self._unmarked = 0
        self._open = ExitStack()
        self._reader: DigestReader | None = None
        # With the readings that have begun, in the order in which they are used, and what is read next.
        self._begun: deque[tuple[Planned, Reading | None]] = deque()
        self._plans: Iterator[Planned] = iter(())
        self._next: Planned | None = None
        self._counted: Mapping[str, Mapping[str, RowCounts]] = {}
        self._digested = set[str]()
        self._without = dict[str, str]()
        self._cuts: EarlyCuts | None = None

    @property
    def largest(self) -> LargestRow | None:
        """The object that learns how large rows are while digests are read; ``None`` if none are read."""
        return None if self._reader is None else self._reader.largest

    @property
    def without_digests(self) -> Mapping[str, str]:
        """Why no digests are used, by entity; complete when all tasks have been yielded."""
        return self._without

    @property
    def _tenants(self) -> Sequence[str | None]:
        return sorted(set(self._options.tenants)) or (None,)

    def prepare(self, entities: Sequence[Entity]) -> None:
        """Find out of which entities both sides have digests, and begin to cut those while others count."""
        self._digested = self._digestible(entities)
        if not self._digested:
            return
        self._cuts = self._open.enter_context(EarlyCuts(self._context.source.bulk))
        rows = rows_per_digest(0)
        for entity, tenant in self._undecided(entities):
            if entity.name in self._digested and self._is_cut_further(entity, rows):
                self._cuts.begin(entity, tenant, rows)

    def begin(self, entities: Sequence[Entity], counted: Mapping[str, Mapping[str, RowCounts]]) -> None:
        """Begin to read digests, where both sides have them."""
        self._counted = counted
        if self._digested:
            jobs = self._options.jobs
            reader = DigestReader(self._context, jobs, self._stop, self._on_rows, self._workers)
            self._reader = self._open.enter_context(reader)
        self._plans = self._plan_all(entities)
        self._next = next(self._plans, None)
        self._read_ahead()

    def _plan_all(self, entities: Sequence[Entity]) -> Iterator[Planned]:
        for entity, tenant in self._undecided(entities):
            self._stop.check()
            yield from self._plan(entity, tenant, digested=entity.name in self._digested)
        if self._reader is not None:
            self._reader.largest.add(0 if self._earlier is None else self._earlier.mark.largest)

    def _undecided(self, entities: Sequence[Entity]) -> Iterator[tuple[Entity, str | None]]:
        """Yield whose rows are not all decided."""
        pairs = ((entity, tenant) for entity in entities for tenant in self._tenants)
        if self._earlier is None:
            return pairs
        last = self._earlier.mark
        left = dropwhile(lambda pair: (pair[0].name, pair[1]) != (last.entity, last.tenant), pairs)
        return islice(left, 1 if last.upper is None else 0, None)

    def _read_ahead(self) -> None:
        """Begin readings as long as there are few digests that are not used yet.

        Digests of entity after entity are read while the rows of the first ones are still compared, which may
        take hours if much differs. Their memory is limited meanwhile; a single reading may always begin.
        """
        waiting = sum(planned.cells for planned, _ in self._begun)
        while self._next is not None and (not waiting or waiting + self._next.cells <= READ_AHEAD):
            waiting += self._next.cells
            self._begun.append((self._next, self._read(self._next)))
            self._next = next(self._plans, None)

    def _read(self, planned: Planned) -> Reading | None:
        if self._reader is None or planned.partition is None:
            return None
        return self._reader.begin(planned.entity, planned.tenant, planned.partition)

    def _digestible(self, entities: Sequence[Entity]) -> set[str]:
        """Return the entities that are compared in full and by digests."""
        whole = self._why_row_by_row()
        reasons = {entity.name: whole or no_digests_reason(self._context, entity) for entity in entities}
        self._without = {name: reason for name, reason in reasons.items() if reason is not None}
        digested = reasons.keys() - self._without.keys()
        if self._earlier is not None:
            self._without |= self._earlier.mark.without
        return digested

    def _why_row_by_row(self) -> str | None:
        """Return why no entity at all is compared by digests."""
        options = self._options
        if options.mode == "sample":
            return "a sample is compared"
        if options.narrowed_rows:
            return "a part of the rows or of their fields is compared"
        return None if fast_path().is_on else "the fast path is off"

    def _plan(self, entity: Entity, tenant: str | None, *, digested: bool) -> Iterator[Planned]:
        """Cut the source for digests of an entity, or leave it to its tasks."""
        if self._reader is None:
            yield Planned(entity, tenant)
            return
        if digested:
            owners = len(self._counted[entity.name]) if tenant is None else 1
            ranges, fine = self._both_cuts(entity, tenant)
            while some := tuple(islice(ranges, RANGES_AT_ONCE)):
                found = partition(some, fine, owners)
                if isinstance(found, NoDigests):
                    self._without.setdefault(entity.name, found.reason)
                    self._measure_rows(self._reader, entity, tenant)
                    yield Planned(entity, tenant, some)
                else:
                    yield Planned(entity, tenant, some, found)
            return
        self._measure_rows(self._reader, entity, tenant)
        yield Planned(entity, tenant)

    def _measure_rows(self, reader: DigestReader, entity: Entity, tenant: str | None) -> None:
        """Learn how large the rows of an entity without digests are, if there are few."""
        if sum(pair[0] for pair in self._counted[entity.name].values()) <= FEW:
            reader.measure_rows(entity, tenant)
        else:
            reader.largest.expect()
            reader.largest.add(None)

    def _both_cuts(self, entity: Entity, tenant: str | None) -> tuple[Iterator[KeyRange], list[Key]]:
        """Return the ranges of the report, and keys that divide them further."""
        rows = rows_per_digest(sum(pair[0] for pair in self._counted[entity.name].values()))
        if self._cuts is None or not self._is_cut_further(entity, rows):
            return self._cut(entity, tenant), []
        self._cuts.begin(entity, tenant, rows)
        return self._cut(entity, tenant), self._cuts.take(entity, tenant)

    def _is_cut_further(self, entity: Entity, rows: int) -> bool:
        return self._options.range_size > rows and entity.name not in self._context.slow

    def _cut(self, entity: Entity, tenant: str | None) -> Iterator[KeyRange]:
        """Cut the source; its last range ends where the question does: rows of the target are seen."""
        source, context = self._context.source, self._context
        if entity.name in source.changes.keys and entity.name in context.slow:
            # Without an index of this field each range would read and sort the whole collection again.
            ranges: Iterable[KeyRange] = [KeyRange()]
        else:
            owner = None if context.moves_tenants(entity) else tenant
            found = source.bulk.cut(entity, self._options.range_size, tenant_id=owner)
            ranges = ranges_after(source.changes, entity, found)
        return self._after_mark(entity, tenant, self._options.subset.ranges(entity, iter(ranges)))

    def _after_mark(
        self, entity: Entity, tenant: str | None, ranges: Iterator[KeyRange]
    ) -> Iterator[KeyRange]:
        """Yield the ranges that are not decided.

        Raises:
            PreflightError: rows of the others were written since.
        """
        earlier = self._earlier
        if earlier is None or (entity.name, tenant) != (earlier.mark.entity, earlier.mark.tenant):
            yield from ranges
            return
        for within in ranges:
            left = intersection(within, KeyRange(earlier.mark.upper))
            # Where retention has removed rows, ranges end elsewhere.
            if left not in {None, within} and not self._context.removals(entity).possible:
                raise refusal(earlier.path, f"keys of {entity.name} were added or removed since")
            if left is not None:
                yield left

    def tasks(self) -> Iterator[RangeTask | OpenPartsTask | Mark]:
        """Yield the tasks, whose results in this order are in the order of entities and keys, and marks.

        Raises:
            StopRequestedError: a stop was requested.
        """
        while self._begun:
            yield from self._tasks_of(*self._begun[0])
            self._begun.popleft()
            self._read_ahead()

    def _tasks_of(
        self, planned: Planned, reading: Reading | None
    ) -> Iterator[RangeTask | OpenPartsTask | Mark]:
        entity, tenant, found = planned.entity, planned.tenant, planned.partition
        ranges = self._cut(entity, tenant) if planned.ranges is None else planned.ranges
        if reading is None or found is None:
            yield from self._row_by_row(entity, tenant, ranges)
            return
        proof = reading.proof()
        owners = None
        if found.is_folded and isinstance(proof, Proof) and proof.unusable_reason is None:
            owners = self._by_owner(entity, tenant, found, proof)
            proof = owners if isinstance(owners, NoDigests) else proof
        without = proof.reason if isinstance(proof, NoDigests) else proof.unusable_reason
        if without is not None:
            self._without.setdefault(entity.name, without)
        # Their results count all the others again.
        self._on_rows((0 if isinstance(proof, NoDigests) else proof.rows()) - reading.reported_rows)
        if isinstance(proof, NoDigests):
            yield from self._row_by_row(entity, tenant, ranges)
            return
        if isinstance(owners, RangeResult):
            yield OpenPartsTask(owners, (), 0)
        yield from open_parts_tasks(entity, tenant, found, proof)
        yield from self._mark(entity, tenant, found.within.upper, len(found.ranges))

    def _mark(self, entity: Entity, tenant: str | None, upper: Key | None, ranges: int = 1) -> Iterator[Mark]:
        """Yield a mark after as many ranges as are compared together."""
        self._unmarked += ranges
        if self._unmarked >= RANGES_AT_ONCE:
            self._unmarked = 0
            yield Mark(entity.name, tenant, upper, dict(self._without))

    def _by_owner(
        self, entity: Entity, tenant: str | None, found: Partition, proof: Proof
    ) -> RangeResult | NoDigests:
        """Return the proved rows by owner, for which those of the other ranges are read again."""
        others = (RangeDigests(), RangeDigests())
        numbers = [number for number in range(len(found.bounds) + 1) if not proof.proves(number)]
        if numbers and self._reader is not None:
            read = self._reader.owners_in(entity, tenant, list(found.joined(numbers)))
            others = read or others
        return proof.owners(entity.name, tenant, others) or NoDigests(WRITTEN)

    def _row_by_row(
        self, entity: Entity, tenant: str | None, ranges: Iterable[KeyRange]
    ) -> Iterator[RangeTask | Mark]:
        options, rates = self._options, None
        if options.mode == "sample":
            counts = {label: pair[0] for label, pair in self._counted[entity.name].items()}
            rates = sample_rates(counts, options.sample_size)
        for within in ranges:
            yield RangeTask(entity.name, tenant, within, rates, options.seed)
            yield from self._mark(entity, tenant, within.upper)

    @override
    def __exit__(self, *_: object) -> None:
        self._open.close()


def is_long(rows: int, range_size: int) -> bool:
    """Whether a verification has so many ranges that it can be continued."""
    return rows >= RANGES_AT_ONCE * range_size


def open_parts_tasks(
    entity: Entity, tenant: str | None, found: Partition, proof: Proof
) -> Iterator[OpenPartsTask]:
    """Yield what the digests prove of each range, with what they leave open; proved ones together."""
    left = sum(not proof.proves(number) for number in range(len(found.bounds) + 1))
    run = None
    for within in found.ranges:
        numbers = found.parts(within)
        others = [number for number in numbers if not proof.proves(number)]
        if run is not None and (others or len(run.proved) == RANGES_TOGETHER):
            yield OpenPartsTask(run, (), 0)
            run = None
        if not others:
            run = run or RangeResult(entity.name, tenant, within, is_range=False)
            proof.add_range(run, within, numbers)
            continue
        proved = [number for number in numbers if proof.proves(number)]
        yield OpenPartsTask(
            proof.result(entity.name, tenant, within, proved),
            tuple(found.joined(others)),
            len(others),
            is_small=left <= WORTH_A_PROCESS,
        )
    if run is not None:
        yield OpenPartsTask(run, (), 0)


@dataclass(frozen=True, slots=True)
class CountedSides:
    """The counts of both sides.

    Attributes:
        rows: by entity and tenant the rows of both.
        largest: the bytes of the largest row of the source as it is stored, ``None`` if it is not reported.
    """

    rows: dict[str, dict[str, RowCounts]]
    largest: int | None


def counted_sides(context: VerifyContext, tenants: Iterable[str], entities: Sequence[Entity]) -> CountedSides:
    """Return the rows that each side counts; with ``tenants`` only theirs."""
    wanted = frozenset(tenants)
    # Counted before the scans: a number that differs from the rows read then reveals a writer.
    with ThreadPoolExecutor(1, thread_name_prefix="counts") as pool:
        right = pool.submit(_counts, context.target, entities)
        left = [_counted(context.source, entity) for entity in entities]
        rows = {
            entity.name: {
                tenant: (source.get(tenant, 0), target.get(tenant, 0))
                for tenant in sorted(source.keys() | target.keys())
                if not wanted or tenant in wanted
            }
            for entity, found, target in zip(entities, left, right.result(), strict=True)
            # Owners before the rules say nothing; until the rows are read those of the target stand for them.
            for source in [target if context.moves_tenants(entity) else found.rows]
        }
    sizes = [source.largest for source in left]
    known = [size for size in sizes if size is not None]
    return CountedSides(rows, max(known, default=0) if len(known) == len(sizes) else None)


def _counted(side: Store, entity: Entity) -> Counted:
    found = side.bulk.counted(entity)
    return Counted(without_local_rows(side.bulk, entity, found.rows), found.largest)


def _counts(side: Store, entities: Sequence[Entity]) -> list[dict[str, int]]:
    return [copy_counts(side.bulk, entity) for entity in entities]
