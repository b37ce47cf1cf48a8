"""Dividing the rows of an entity: into the ranges that reports show, and into smaller ones for digests.

The smaller ones divide the former, and any keys divide them well: they decide only how many rows are compared
one by one for each that differs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from twinstore.bulk import Key, KeyRange, NoDigests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Partition", "partition", "readers_of", "rows_per_digest"]

# Few, because all of them are compared one by one where one differs; fewer would take longer to cut.
ROWS_PER_DIGEST: Final = 250
# Of one entity; so many are cut in a second or two, and take little memory.
MOST_RANGES: Final = 4000
# Of one reader: about 20 MB. With more of them the larger ranges have to do, and then the rows one by one.
MOST_CELLS: Final = 80_000
# Of all readers of one side: rows that stand in no order leave cells of every range to each of them.
MOST_CELLS_READ: Final = 4 * MOST_CELLS


@dataclass(frozen=True, slots=True)
class Partition:
    """The ranges of a report, and the keys that divide all rows for digests, in rising order.

    The first range for digests ends at the first of the keys, and the last one begins at the last of them.
    """

    ranges: tuple[KeyRange, ...]
    bounds: tuple[Key, ...]

    def parts(self, within: KeyRange) -> range:
        """Return the numbers of the ranges for digests that make up a range."""
        first = 0 if within.lower is None else bisect_right(self.bounds, within.lower)
        last = len(self.bounds) if within.upper is None else bisect_right(self.bounds, within.upper) - 1
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
        lower = self.bounds[first - 1] if first else None
        return KeyRange(lower, self.bounds[last] if last < len(self.bounds) else None)


def rows_per_digest(rows: int) -> int:
    """Return how many rows a range for digests has, where there are so many in all."""
    return max(ROWS_PER_DIGEST, rows // MOST_RANGES)


def partition(ranges: Sequence[KeyRange], fine: Iterable[Key], owners: int) -> Partition | NoDigests:
    """Return how rows are divided, or why digests of them would take too much memory.

    Args:
        ranges: those that the report shows; together they hold every key.
        fine: keys that divide them further.
        owners: how many owners the rows have.
    """
    shown = {within.upper for within in ranges if within.upper is not None}
    if any(left.upper != right.lower for left, right in pairwise(ranges)):
        return NoDigests("the source was cut into ranges with gaps between them")
    keys = list(fine)
    for bounds in (*(shown | set(keys[::step]) for step in (1, 2, 4, 8)), shown):
        if (len(bounds) + 1) * max(owners, 1) <= MOST_CELLS:
            return Partition(tuple(ranges), tuple(sorted(bounds)))
    needed = f"{len(shown) + 1:,} ranges of {owners:,} owners"
    return NoDigests(f"{needed} would need more than {MOST_CELLS:,} digests in memory")


def readers_of(ranges: int, owners: int, most: int) -> int:
    """Return how many may read the digests of one side at the same time without taking too much memory."""
    return max(1, min(most, MOST_CELLS_READ // (ranges * max(owners, 1))))
