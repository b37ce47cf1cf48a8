"""Dividing the rows of an entity: into the ranges that reports show, and into smaller ones for digests.

The smaller ones divide the former, and any keys divide them well: they decide only how many rows are compared
one by one for each that differs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from threading import Event
from typing import TYPE_CHECKING, Final, TypeAlias

from typing_extensions import override

from twinstore.bulk.rows import NoDigests
from twinstore.catalog.keys import Key, KeyRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity

# Few, because all of them are compared one by one where one differs; fewer would take longer to cut.
ROWS_PER_DIGEST: Final = 250
# Of one entity; this number is cut in a second or two, and takes little memory.
MOST_RANGES: Final = 4000
# Of one reader: about 20 MB.
MOST_CELLS: Final = 80_000
# With more of them the owners of a range share a cell: both sides make, send and compare fewer.
MOST_UNFOLDED: Final = 40_000
# Of all readers of one side: unordered rows give each reader cells of every range.
MOST_CELLS_READ: Final = 4 * MOST_CELLS
# Whose digests are read together. More are read some at a time, for which both sides read along their keys.
RANGES_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Partition:
    """Ranges of a report that follow one another, and the keys that divide their rows for digests.

    The keys rise. The first range for digests ends at the first of them, and the last one begins at the last.

    Attributes:
        owners: how many owners the rows have.
    """

    ranges: tuple[KeyRange, ...]
    bounds: tuple[Key, ...]
    owners: int = 1

    @property
    def within(self) -> KeyRange:
        """The range of all rows."""
        return KeyRange(self.ranges[0].lower, self.ranges[-1].upper)

    @property
    def is_folded(self) -> bool:
        """Whether the owners of a range share a cell."""
        return (len(self.bounds) + 1) * self.owners > MOST_UNFOLDED

    @property
    def cells(self) -> int:
        """How many cells a reader has at most."""
        ranges = len(self.bounds) + 1
        return ranges + self.owners if self.is_folded else ranges * self.owners

    def parts(self, within: KeyRange) -> range:
        """Return the numbers of the ranges for digests that make up a range."""
        first = 0 if within.lower is None else bisect_right(self.bounds, within.lower)
        last = len(self.bounds) if within.upper is None else bisect_left(self.bounds, within.upper)
        return range(first, last + 1)

    def joined(self, numbers: Iterable[int]) -> Iterator[KeyRange]:
        """Yield ranges for digests, neighbours as one; numbers in rising order."""
        run: list[int] = []
        for number in numbers:
            if run and number != run[-1] + 1:
                yield self._between(run[0], run[-1])
                run = []
            run.append(number)
        if run:
            yield self._between(run[0], run[-1])

    def _between(self, first: int, last: int) -> KeyRange:
        lower = self.bounds[first - 1] if first else self.within.lower
        return KeyRange(lower, self.bounds[last] if last < len(self.bounds) else self.within.upper)


def rows_per_digest(rows: int) -> int:
    """Return how many rows a range for digests has, given the total number."""
    return max(ROWS_PER_DIGEST, rows // MOST_RANGES)


def partition(ranges: Sequence[KeyRange], fine: Iterable[Key], owners: int) -> Partition | NoDigests:
    """Return how rows are divided, or why digests of them would take too much memory.

    Args:
        ranges: those that the report shows; together they hold every key between their ends.
        fine: keys that divide them further.
        owners: how many owners the rows have.
    """
    if any(left.upper != right.lower for left, right in pairwise(ranges)):
        return NoDigests("the source was cut into ranges with gaps between them")
    if owners > MOST_CELLS:
        return NoDigests(f"{owners:,} owners would need more than {MOST_CELLS:,} digests in memory")
    lower, upper = ranges[0].lower, ranges[-1].upper
    bounds = {within.lower for within in ranges[1:] if within.lower is not None}
    bounds |= {key for key in fine if (lower is None or lower < key) and (upper is None or key < upper)}
    return Partition(tuple(ranges), tuple(sorted(bounds)), max(owners, 1))


def readers_of(cells: int, most: int) -> int:
    """Return how many may read the digests of one side at the same time without taking too much memory."""
    return max(1, min(most, MOST_CELLS_READ // cells))


# Cutting the source for digests while both sides still count their rows.
#
# The number of rows decides how many rows a range has. That is nearly always the same number for all stores,
# so a cut before the count will do; if it will not, the source is cut again.


Rows: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Cut:
    """The keys that divide some rows, while they are looked for.

    Attributes:
        rows: how many rows are between two of them.
        keys: the keys.
        unwanted: set when they are not needed any more.
    """

    rows: int
    keys: Future[list[Key]]
    unwanted: Event


class EarlyCuts(AbstractContextManager["EarlyCuts"]):
    """Keys that divide the rows of entities, looked for in a thread, one entity after the other."""

    def __init__(self, source: BulkPort) -> None:
        self._source = source
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cut")
        self._cuts: dict[Rows, Cut] = {}

    def begin(self, entity: Entity, tenant: str | None, rows: int) -> None:
        """Begin to look for the keys of an entity, unless that has begun with as many rows between them."""
        known = self._cuts.get((entity.name, tenant))
        if known is not None:
            if known.rows == rows:
                return
            known.unwanted.set()
        unwanted = Event()
        keys = self._pool.submit(self._keys, entity, tenant, rows, unwanted)
        self._cuts[entity.name, tenant] = Cut(rows, keys, unwanted)

    def take(self, entity: Entity, tenant: str | None) -> list[Key]:
        """Wait for the keys and forget them.

        Raises:
            TwinstoreError: the source cannot be read.
        """
        return self._cuts.pop((entity.name, tenant)).keys.result()

    def _keys(self, entity: Entity, tenant: str | None, rows: int, unwanted: Event) -> list[Key]:
        keys: list[Key] = []
        if unwanted.is_set():
            return keys
        for within in self._source.cut(entity, rows, tenant_id=tenant):
            if unwanted.is_set():
                break
            if within.upper is not None:
                keys.append(within.upper)
        return keys

    @override
    def __exit__(self, *_: object) -> None:
        """End what is still looked for, and wait for its end."""
        for cut in self._cuts.values():
            cut.unwanted.set()
        self._pool.shutdown(cancel_futures=True)
