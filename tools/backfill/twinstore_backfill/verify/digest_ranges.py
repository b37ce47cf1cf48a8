"""Reading the digests of both sides in threads: native code and servers hold no lock of Python.

source: entity after entity   --+
                                +--> Proof of each entity, in order
target: entity after entity   --+
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from logging import getLogger
from secrets import token_bytes
from threading import Event, Lock
from typing import TYPE_CHECKING, Self, TypeAlias

from typing_extensions import override

from twinstore.bulk.rows import (
    EVERY_RANGE,
    FOLDED,
    SECRET_BYTES,
    Cell,
    Digestible,
    NoDigests,
    RangeDigests,
)
from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import Key, KeyRange
from twinstore_backfill.connection_budget import readers_at_once
from twinstore_backfill.process.children import stop_with_parent
from twinstore_backfill.process.memory import cache_small_batch_memory, release_cached_memory
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.rules.model import DropRule
from twinstore_backfill.verify.context import Task, VerifyContext
from twinstore_backfill.verify.expected import IGNORED, RowExpectation
from twinstore_backfill.verify.findings import RangeResult
from twinstore_backfill.verify.memory_lock import LARGE_BYTES
from twinstore_backfill.verify.partition import readers_of
from twinstore_backfill.verify.set_digest import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore_backfill.verify.partition import Partition
    from twinstore_backfill.verify.processes import WorkerPool

log = getLogger(__name__)
Digests: TypeAlias = RangeDigests | None


class UnwantedError(Exception):
    """The other side has no digests, or the verification has ended."""


def no_digests_reason(context: VerifyContext, entity: Entity) -> str | None:
    """Return why an entity has no digests; ``None`` if both sides have, and a copy keeps rows as they are."""
    if entity.release is not None:
        return f"its rows are {entity.copy_policy.value}"
    if entity.local_keys:
        return "each side keeps some of its rows to itself"
    if context.moves_tenants(entity):
        return "rules decide whose rows they are"
    if entity.derived_key is not None:
        return "its key is computed from the content of a row"
    for name, side in (("source", context.source), ("target", context.target)):
        if isinstance(found := side.bulk.digestible(entity), NoDigests):
            return f"{name}: {found.reason}"
    return None


class LargestRow:
    """Learns from several threads how large the rows of the source are."""

    def __init__(self, large: Callable[[], None]) -> None:
        """Begin with nothing known.

        Args:
            large: is called when a row may be large, before anybody who waits hears of it.
        """
        self._large, self._large_reported = large, False
        self._lock = Lock()
        self._expected = 1
        self._largest: int | None = 0
        self._complete = Event()

    def expect(self, parts: int = 1) -> None:
        """Wait for this many more parts before the result is known."""
        with self._lock:
            self._expected += parts

    def add(self, largest: int | None) -> None:
        """Take the bytes of the largest row of a part, ``None`` where they are not known."""
        if (largest is None or largest >= LARGE_BYTES) and not self._large_reported:
            self._large_reported = True
            self._large()
        with self._lock:
            if self._largest is not None:
                self._largest = None if largest is None else max(self._largest, largest)
            self._expected -= 1
            if not self._expected or self._largest is None:
                self._complete.set()

    def wait(self) -> int | None:
        """Wait for all parts; return the bytes of the largest row, ``None`` where they are not known."""
        self._complete.wait()
        return self._largest


class Reading:
    """The digests of one entity, or of one tenant of it, while they are read."""

    def __init__(
        self,
        stop: StopSwitch,
        on_progress: Callable[[int], None],
        drops: Sequence[DropRule] = (),
    ) -> None:
        """Take who may stop it, who hears of rows of the source, and the drops."""
        self.source: list[Future[Digests]] = []
        self.target: list[Future[Digests]] = []
        self._stop, self._on_rows = stop, on_progress
        self._drops = drops
        self._unwanted = Event()
        self._lock = Lock()
        self.reported_rows = 0
        self._without: str | None = None

    def proof(self) -> Proof | NoDigests:
        """Wait for both sides; return what their digests prove, or why a side has none.

        Raises:
            StopRequestedError: a stop was requested.
            TwinstoreError: a side cannot be read.
        """
        source, target = [merged(parts) for parts in (self.source, self.target)]
        if source is None or target is None:
            return NoDigests(self._without or "the reading was ended")
        return Proof(source, target, self._drops)

    def end(self, without: str | None = None) -> None:
        """End what is still read; the first reason why a side has no digests is kept."""
        with self._lock:
            self._without = self._without or without
        self._unwanted.set()

    def go_on(self, _rows: int = 0) -> None:
        """Count rows; end the reading if it must stop, or if its result is not needed any more."""
        self._stop.check()
        if self._unwanted.is_set():
            raise UnwantedError

    def count(self, rows: int) -> None:
        """Hear of rows of the source."""
        self.go_on()
        with self._lock:
            self.reported_rows += rows
        self._on_rows(rows)


def merged(parts: list[Future[Digests]]) -> Digests:
    """Wait for the parts of a side and forget them; return their digests, ``None`` where one has none."""
    wait(parts)
    found = [part.result() for part in parts]
    parts.clear()
    whole, *others = found
    for part in others:
        if whole is None or part is None:
            return None
        whole.merge(part)
    return whole


class DigestReader(AbstractContextManager["DigestReader"]):
    """Reads digests in the order in which they are requested, each side with its own threads."""

    def __init__(
        self,
        context: VerifyContext,
        jobs: int,
        stop: StopSwitch,
        on_progress: Callable[[int], None],
        workers: WorkerPool | None = None,
    ) -> None:
        """Take both sides, how many threads read each, who hears of rows of the source, and who reads."""
        self._context, self._stop, self._on_rows, self._workers = context, stop, on_progress, workers
        # Drawn for each run and known to this process alone: it must be unknown when rows are written.
        self._secret = token_bytes(SECRET_BYTES)
        lent = workers.slots if workers is not None and workers.is_engine else 0
        self._parts = readers_at_once(max(jobs, lent))
        self._source, self._target = (
            ThreadPoolExecutor(self._parts, thread_name_prefix=f"digests-{side}")
            for side in ("source", "target")
        )
        self._readings: list[Reading] = []
        # What is kept of the memory of small batches would be missing where large documents are compared.
        self.largest = LargestRow(release_cached_memory)
        self._kept = ExitStack()

    @override
    def __enter__(self) -> Self:
        """Keep the memory of small batches while they are read, as long as no row may be large."""
        self._kept.enter_context(cache_small_batch_memory())
        return self

    def begin(self, entity: Entity, tenant: str | None, found: Partition) -> Reading:
        """Begin to read the digests of some ranges of an entity, or of the rows of one tenant in them."""
        parts = readers_of(found.cells, self._parts)
        reading = Reading(self._stop, self._on_rows, self._context.rules.of(entity, DropRule))
        self._readings.append(reading)
        source, target = self._context.source.bulk, self._context.target.bulk
        # Once is enough, and best by the side that hardly has to ask.
        of_target = Digestible.PREVALIDATED is target.digestible(entity) is not source.digestible(entity)
        self.largest.expect(parts)
        for part in range(parts):
            task = DigestTask(
                entity.name,
                found.bounds,
                tenant,
                (found.within,),
                part=part,
                parts=parts,
                of_source=True,
                judges=not of_target,
                folded=found.is_folded,
                secret=self._secret,
            )
            reading.source.append(self._source.submit(self._read_measured, reading, task))
            other = replace(task, of_source=False, judges=of_target)
            reading.target.append(self._target.submit(self._read, reading, other))
        return reading

    def owners_in(
        self, entity: Entity, tenant: str | None, ranges: Sequence[KeyRange]
    ) -> tuple[RangeDigests, RangeDigests] | None:
        """Read the digests of both sides in some ranges by owner; ``None`` if a side has none."""
        reading = Reading(self._stop, lambda _rows: None)
        self._readings.append(reading)
        task = DigestTask(entity.name, (), tenant, tuple(ranges), of_source=True, secret=self._secret)
        reading.source.append(self._source.submit(self._read, reading, task))
        reading.target.append(self._target.submit(self._read, reading, replace(task, of_source=False)))
        source, target = merged(reading.source), merged(reading.target)
        return None if source is None or target is None else (source, target)

    def measure_rows(self, entity: Entity, tenant: str | None) -> None:
        """Learn how large the rows of an entity are of which there are few and no digests."""
        self.largest.expect()
        reading = Reading(self._stop, self._on_rows)
        self._readings.append(reading)
        self._source.submit(self._measure_rows, reading, entity, tenant)

    def _read(self, reading: Reading, task: DigestTask) -> Digests:
        """Return the digests of a part, ``None`` if there are none or they are not needed any more."""
        found: RangeDigests | NoDigests | None = None
        count = reading.count if task.of_source else reading.go_on
        workers = self._workers
        try:
            reading.go_on()
            if workers is None or not workers.is_engine:
                found = task.read(self._context, count)
            else:
                found = workers.run(task, reading.go_on)
                count(found.rows if isinstance(found, RangeDigests) else 0)
        except UnwantedError:
            return None
        finally:
            if not isinstance(found, RangeDigests):
                # Nor does anybody need those of the other side.
                reading.end(None if found is None else f"{task.side}: {found.reason}")
        return found if isinstance(found, RangeDigests) else None

    def _read_measured(self, reading: Reading, task: DigestTask) -> Digests:
        found: Digests = None
        try:
            found = self._read(reading, task)
        finally:
            complete = found is not None and not found.unproven and not found.unplaced
            cells = found.cells.values() if found is not None else ()
            self.largest.add(max((cell.largest for cell in cells), default=0) if complete else None)
        return found

    def _measure_rows(self, reading: Reading, entity: Entity, tenant: str | None) -> None:
        largest: int | None = None
        try:
            with self._context.source.bulk.view() as view:
                sizes = [0]
                for batch in view.rows(entity, KeyRange(), tenant_id=tenant):
                    reading.go_on()
                    sizes.append(max((row.size for row in batch), default=0))
                largest = max(sizes)
        except UnwantedError:
            return
        finally:
            self.largest.add(largest)

    @override
    def __exit__(self, *_: object) -> None:
        """End what is still read, and wait for its end."""
        for reading in self._readings:
            reading.end()
        for pool in (self._source, self._target):
            pool.shutdown(cancel_futures=True)
        # For callers that wait for a part that was never read.
        self.largest.add(None)
        self._kept.close()


@dataclass(frozen=True, slots=True)
class DigestTask(Task["RangeDigests | NoDigests"]):
    """Read the digests of a part of one side.

    Attributes:
        bounds: the keys that divide the rows.
        ranges: whose rows are read; the digests of several are added.
        judges: whether the models judge the rows.
        secret: the key of the digests.
    """

    entity: str
    bounds: tuple[Key, ...]
    tenant: str | None
    ranges: tuple[KeyRange, ...]
    of_source: bool
    part: int = 0
    parts: int = 1
    judges: bool = False
    folded: bool = False
    secret: bytes = field(repr=False, kw_only=True)

    @property
    def side(self) -> str:
        """The name of the side that is read."""
        return "source" if self.of_source else "target"

    @override
    def run(self, context: VerifyContext) -> RangeDigests | NoDigests:
        stop = stop_with_parent(StopSwitch())
        with cache_small_batch_memory():
            return self.read(context, lambda _rows: stop.check())

    def read(self, context: VerifyContext, on_progress: Callable[[int], None]) -> RangeDigests | NoDigests:
        """Return the digests, or why there are none; ``on_progress`` hears of rows and may end it."""
        entity = context.entity(self.entity)
        port = (context.source if self.of_source else context.target).bulk
        # Each row with another name is named, and only a comparison of the rows does that.
        ignored = context.rules.dropped(entity, with_reason=True) if self.of_source else frozenset[str]()
        whole: RangeDigests | None = None
        for within in self.ranges:
            try:
                with port.view() as view:
                    found = view.digests(
                        entity,
                        self.bounds,
                        secret=self.secret,
                        within=within,
                        folded=self.folded,
                        tenant_id=self.tenant,
                        cutoff=context.cutoff(entity),
                        part=self.part,
                        parts=self.parts,
                        of_source=self.of_source,
                        ignored=ignored,
                        accepts=RowExpectation(entity).is_normal if self.judges else None,
                        on_progress=on_progress,
                    )
            except MemoryError:
                log.warning(
                    "there is too little memory for digests of %s; its rows are compared", entity.name
                )
                return NoDigests("there is too little memory for them")
            if isinstance(found, NoDigests):
                return found
            if whole is not None:
                # Whoever divides rows says so of parts of a range, not of several ranges.
                whole.file = found.file = None
                found.merge(whole)
            whole = found
        return whole or RangeDigests()


# What the digests of both sides prove.
#
# A range is proved if every owner has the same number of rows with the same keyed digest on both sides.
# Digests without the key are only shown, because rows can be crafted that agree in them. Digests never prove
# that two rows differ: the rows of every other range are compared one by one.


NO_CELL = Cell()


def why_unusable(source: RangeDigests, target: RangeDigests) -> str | None:
    """Return why digests prove no range at all, ``None`` where they may prove some."""
    if source.unplaced or target.unplaced:
        return f"rows without a range: {source.unplaced:,} of the source, {target.unplaced:,} of the target"
    if not (source.judged or target.judged):
        return "neither side judged the rows"
    if not (source.unique or target.unique):
        return "no unique index keeps two rows of one key out of either side"
    return None


class Proof:
    """The digests of both sides of one entity, and which ranges they prove.

    Attributes:
        unusable_reason: why they prove none, ``None`` where they may.
    """

    def __init__(self, source: RangeDigests, target: RangeDigests, drops: Sequence[DropRule] = ()) -> None:
        """Take the digests, which were made with the same bounds, and the rules that drop properties."""
        self._rules, self._drops = source.rules, frozenset(rule.number for rule in drops)
        unexplained = frozenset(rule.number for rule in drops if not rule.reason)
        self._source, self._target = source.cells, target.cells
        self._open = source.unproven | target.unproven
        # Each such row is named, and only a comparison of the rows does that.
        self._open.update(
            place[0]
            for place, changed in source.rules.items()
            if any(not unexplained.isdisjoint(numbers) for numbers in changed)
        )
        # Whether a copy takes a row is known of those of the source that the target has, too. An expired one
        # need not be there, and one that no copy takes is in quarantine however old it is.
        self._expired_are_checked = source.judged and source.unique
        # Of two rows of one key only the first counts, and an expired one may have the key of another.
        self._expired_keys_differ = target.unique
        self.unusable_reason = why_unusable(source, target)
        self._owners: defaultdict[int, set[str]] = defaultdict(set)
        for number, label in (*self._source, *self._target):
            self._owners[number].add(label)
        self._labels = self._owners.pop(EVERY_RANGE, set[str]())
        self._is_folded = bool(self._labels)
        self._open.update(number for number in self._owners if not self._agree(number))

    def proves(self, number: int) -> bool:
        """Whether both sides hold the same rows in a range, each of which a copy takes."""
        return self.unusable_reason is None and number not in self._open

    def _agree(self, number: int) -> bool:
        for label in self._owners[number]:
            source = self._source.get((number, label), NO_CELL)
            target = self._target.get((number, label), NO_CELL)
            if (source.count, source.keyed) != (target.count, target.keyed):
                return False
            if source.expired and not self._expired_are_checked:
                return False
            if target.expired and not self._expired_keys_differ:
                return False
        return True

    def rows(self) -> int:
        """How many rows of the source are in proved ranges."""
        return self._sum(self._source).count

    def _sum(self, cells: Mapping[tuple[int, str], Cell]) -> Cell:
        """Return all rows of a side in proved ranges."""
        whole = Cell()
        for (number, _), cell in cells.items():
            if number != EVERY_RANGE and self.proves(number):
                whole.merge(cell)
        return whole

    def owners(
        self, entity: str, tenant: str | None, others: tuple[RangeDigests, RangeDigests]
    ) -> RangeResult | None:
        """Return the rows of proved ranges by owner, where the owners of each were folded.

        Args:
            entity: whose rows they are.
            tenant: the only one whose rows are compared, if there is one.
            others: the rows of both sides that are not in proved ranges.

        Returns:
            ``None`` if rows were written after the proof, so that it is unknown which owners it is of.
        """
        for cells, other in zip((self._source, self._target), others, strict=True):
            whole = Cell()
            for label in self._labels | {label for _, label in other.cells}:
                cell = cells.setdefault((EVERY_RANGE, label), Cell())
                cell.remove(other.cells.get((0, label), NO_CELL))
                whole.merge(cell)
            if replace(whole, largest=0) != replace(self._sum(cells), largest=0):
                return None
        for (_, label), changed in others[0].rules.items():
            self._rules.setdefault((EVERY_RANGE, label), Counter()).subtract(changed)
        result = RangeResult(entity, tenant, KeyRange(), is_range=False)
        for label in self._labels:
            place = (EVERY_RANGE, label)
            source, target = self._source.get(place, NO_CELL), self._target.get(place, NO_CELL)
            if (source.count, source.keyed) != (target.count, target.keyed):
                return None
            self._add(result, EVERY_RANGE, label)
        return result

    def result(self, entity: str, tenant: str | None, within: KeyRange, numbers: list[int]) -> RangeResult:
        """Return what comparing the rows of proved ranges one by one would amount to.

        Args:
            entity: whose rows they are.
            tenant: the only one whose rows are compared, if there is one.
            within: the range of which these are parts.
            numbers: the proved ranges.
        """
        result = RangeResult(entity, tenant, within)
        for number in numbers:
            for label in self._owners.get(number, ()):
                self._add(result, number, label)
        result.shares.proved = len(numbers)
        return result

    def add_range(self, result: RangeResult, within: KeyRange, numbers: Sequence[int]) -> None:
        """Add a range of the report to a result, all of whose parts are proved."""
        digest = Digest()
        for number in numbers:
            for label in self._owners.get(number, ()):
                cell = self._source.get((number, label), NO_CELL)
                digest.merge(Digest(cell.count, cell.xor, cell.sum))
                if not self._is_folded:
                    self._add(result, number, label)
        result.shares.proved += len(numbers)
        result.proved.append((within, digest))

    def _add(self, result: RangeResult, number: int, label: str) -> None:
        source = self._source.get((number, label), NO_CELL)
        target = self._target.get((number, label), NO_CELL)
        if label == FOLDED and self._is_folded:
            result.source.merge(Digest(source.count, source.xor, source.sum))
            result.target.merge(Digest(target.count, target.xor, target.sum))
            return
        result.largest = max(result.largest, source.largest, target.largest)
        result.shares.rows += source.count
        result.shares.expired += source.expired
        part = result.tenants[label]
        part.source.merge(Digest(source.count, source.xor, source.sum))
        part.target.merge(Digest(target.count, target.xor, target.sum))
        counts = {
            "equal": source.count,
            "expired_source": source.expired,
            "expired_target": target.expired,
        }
        part.counts.update({name: count for name, count in counts.items() if count})
        ignored = source.ignored
        for numbers, rows in (+self._rules.get((number, label), Counter())).items():
            part.rules.update(dict.fromkeys(numbers, rows))
            ignored += 0 if self._drops.isdisjoint(numbers) else rows
        part.equivalences.update({IGNORED: ignored} if ignored else {})
