"""What the digests of both sides prove.

A range is proved where every owner has the same number of rows with the same keyed digest on both sides.
Digests without the key are only shown, because rows can be chosen that agree in them. Digests never say that
two rows differ: of every other range the rows are compared one by one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from twinstore.bulk import Cell
from twinstore_backfill.verify.digests import Digest
from twinstore_backfill.verify.equivalences import IGNORED
from twinstore_backfill.verify.results import RangeResult

if TYPE_CHECKING:
    from twinstore.bulk import KeyRange, RangeDigests

__all__ = ["Proof"]

NOTHING = Cell()


def why_nothing(source: RangeDigests, target: RangeDigests) -> str | None:
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
        nothing: why they prove none, ``None`` where they may.
    """

    def __init__(self, source: RangeDigests, target: RangeDigests) -> None:
        """Take the digests, which were made with the same bounds."""
        self._source, self._target = source.cells, target.cells
        self._open = source.unproven | target.unproven
        # Whether a copy takes a row is known of those of the source that the target has, too. An expired one
        # need not be there, and one that no copy takes is in quarantine however old it is.
        self._expired_are_known = source.judged and source.unique
        # Of two rows of one key only the first counts, and an expired one may have the key of another.
        self._expired_are_apart = target.unique
        self.nothing = why_nothing(source, target)
        self._owners: defaultdict[int, set[str]] = defaultdict(set)
        for number, label in (*self._source, *self._target):
            self._owners[number].add(label)
        self._open.update(number for number in self._owners if not self._agree(number))

    def proves(self, number: int) -> bool:
        """Whether both sides hold the same rows in a range, each of which a copy takes."""
        return self.nothing is None and number not in self._open

    def _agree(self, number: int) -> bool:
        for label in self._owners[number]:
            source = self._source.get((number, label), NOTHING)
            target = self._target.get((number, label), NOTHING)
            if (source.count, source.keyed) != (target.count, target.keyed):
                return False
            if source.expired and not self._expired_are_known:
                return False
            if target.expired and not self._expired_are_apart:
                return False
        return True

    def rows(self) -> int:
        """How many rows of the source are in proved ranges."""
        return sum(cell.count for (number, _), cell in self._source.items() if self.proves(number))

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

    def _add(self, result: RangeResult, number: int, label: str) -> None:
        source = self._source.get((number, label), NOTHING)
        target = self._target.get((number, label), NOTHING)
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
        part.equivalences.update({IGNORED: source.ignored} if source.ignored else {})
