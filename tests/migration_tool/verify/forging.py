"""Choosing rows so that others have the same count, XOR and sum of digests. The result is kept in a file.

Each of 9,408 rows has a good and a bad content. XOR is linear: in a block of 147 rows, 2^19 sets of bad rows
leave the XOR of the block unchanged. Each set changes the sum. Among the sets of two blocks, many pairs
change it by a multiple of 2^19; pairs of such pairs by one of 2^37, and so on in a tree until it does not
change at all (D. Wagner, A Generalized Birthday Problem, 2002). It takes some minutes. Run it again if the
content of an audit record changes:

    python -m tests.migration_tool.verify.forging
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import bson

from twinstore.catalog.row import Row
from twinstore.scheduler.catalog import AUDIT
from twinstore.testing.scheduler.builders import make_audit_record
from twinstore_backfill.verify.set_digest import document_number
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.scheduler.audit import AuditRecord

BLOCKS: Final = 64
BLOCK: Final = 147
ROWS: Final = BLOCKS * BLOCK
BAD: Final = "changed"
TENANT: Final = "acme"
BITS: Final = 128
MODULUS: Final = 2**BITS
# Sets of a block, and sums of a list.
SETS: Final = 370_000
MOST: Final = 600_000
# What each step of the tree cancels; the first bit is free, because the XOR of a set cancels it.
STEPS: Final = (19, 18, 18, 18, 18, 37)
WANTED: Final = 3
FILE: Final = Path(__file__).with_name("forged_ranges.txt")


def record(number: int, message: str = "good") -> AuditRecord:
    """Return a row."""
    return make_audit_record(TENANT, f"record-{number:04}", message=message)


def forged_ranges() -> list[list[str]]:
    """Return the ids of the bad rows, for each of some sets of them that escape notice."""
    sets = (int(line, 16) for line in FILE.read_text("ascii").split())
    return [[record(number).id for number in range(ROWS) if chosen >> number & 1] for chosen in sets]


def number_of(number: int, message: str) -> int:
    """Return the digest of a row."""
    raw = bson.encode(codec_of(AUDIT).encode(Row(record(number, message))))
    (row,) = CollectionScan.of(AUDIT).rows(raw)
    return document_number(row.content)


class Block:
    """Sets of the rows of a block that leave the XOR as it is."""

    def __init__(self, first: int) -> None:
        numbers = range(first, first + BLOCK)
        pairs = [(number_of(number, "good"), number_of(number, BAD)) for number in numbers]
        self._kernel = kernel([good ^ bad for good, bad in pairs])
        self._added = [(bad - good) % MODULUS for good, bad in pairs]

    def chosen(self, number: int) -> int:
        """Return the set of a number."""
        found = 0
        for place, basis in enumerate(self._kernel):
            found ^= basis if (number ^ number >> 1) >> place & 1 else 0
        return found

    def sums(self) -> Iterator[int]:
        """Yield what each set adds to the sum, in Gray's order."""
        tables = [sums_of(self._added[first : first + 8]) for first in range(0, BLOCK, 8)]
        chosen = 0
        for number in range(1, SETS + 1):
            yield sum(map(list.__getitem__, tables, chosen.to_bytes(len(tables), "little")))
            chosen ^= self._kernel[(number & -number).bit_length() - 1]


def sums_of(values: Sequence[int]) -> list[int]:
    """Return the sum of each set of a few values."""
    found = [0]
    for value in values:
        found += [value + other for other in found]
    return found


def kernel(vectors: Sequence[int]) -> list[int]:
    """Return sets of vectors whose XOR is 0, as bits."""
    rows: dict[int, tuple[int, int]] = {}
    found: list[int] = []
    for number, vector in enumerate(vectors):
        left, chosen = vector, 1 << number
        while left and (row := rows.get(left.bit_length())):
            left, chosen = left ^ row[0], chosen ^ row[1]
        if left:
            rows[left.bit_length()] = left, chosen
        else:
            found.append(chosen)
    return found


@dataclass(slots=True)
class Sums:
    """Sums of some blocks whose lower bits are 0 and omitted, and the two sums that make each of them."""

    values: list[int]
    made_of: tuple[array[int], array[int]] = (array("I"), array("I"))
    below: tuple[Sums, Sums] | None = None
    block: Block | None = None

    def chosen(self, number: int) -> int:
        """Return the set of rows of a sum."""
        if self.below is None:
            return 0 if self.block is None else self.block.chosen(number)
        sides = zip(self.below, self.made_of, strict=True)
        first, second = (side.chosen(made[number]) for side, made in sides)
        return first | second << BLOCK * self.below[0].blocks

    @property
    def blocks(self) -> int:
        """How many blocks they are of."""
        return 1 if self.below is None else 2 * self.below[0].blocks


def sums(first: int, level: int) -> Sums:
    """Return sums of 2^level blocks."""
    if not level:
        block = Block(first * BLOCK)
        return Sums([value % MODULUS for value in block.sums()], block=block)
    half = 2 ** (level - 1)
    return merged(sums(first, level - 1), sums(first + half, level - 1), STEPS[level - 1])


def merged(left: Sums, right: Sums, bits: int) -> Sums:
    """Return sums of two lists that cancel some more bits."""
    places, mask = defaultdict[int, list[int]](list), 2**bits - 1
    for number, value in enumerate(left.values):
        places[-value & mask].append(number)
    pairs = (
        (other, number) for number, value in enumerate(right.values) for other in places.get(value & mask, ())
    )
    made_of, values = (array("I"), array("I")), list[int]()
    for other, number in islice(pairs, MOST):
        made_of[0].append(other)
        made_of[1].append(number)
        values.append((left.values[other] + right.values[number]) >> bits)
    left.values, right.values = [], []
    return Sums(values, made_of, (left, right))


def main() -> None:
    """Write sets of rows."""
    found = sums(0, len(STEPS))
    chosen = [found.chosen(number) for number in range(len(found.values))]
    # The first set of every block is empty.
    some = sorted(filter(None, set(chosen)))[:WANTED]
    FILE.write_text("".join(f"{one:x}\n" for one in some), "ascii")


if __name__ == "__main__":
    main()
