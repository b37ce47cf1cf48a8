"""Unique values that occur twice within a source: what a target would refuse, found without one.

    row -> key in a file -> (digest of a unique value, place of the key), sorted in runs on disk
    -> merged: equal digests are one value -> rows that are refused, by place -> their keys

A table of all values would not fit into memory: sorted runs take the same memory for any number of rows.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import merge
from itertools import groupby
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, Self

import orjson

from twinstore.bulk.unique_moves import UniqueConflict, conflict_reason, unique_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity

DIGEST_BYTES: Final = 16
PLACE_BYTES: Final = 8
# Of the number of an index within its entity.
INDEX_BYTES: Final = 1
# Whether the row is written: one that the target has already comes first among those with its value.
FLAG_BYTES: Final = 1
# Records in memory, each an object of about 60 bytes; a file of 10^8 records then has 250 runs.
RUN_RECORDS: Final = 400_000
# Of each run while all runs are merged.
READ_RECORDS: Final = 1000


class SortedRecords:
    """Sorts byte strings of one size on disk."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._file = TemporaryFile()  # noqa: SIM115  # closed by __exit__
        self._runs: list[tuple[int, int]] = []
        self._waiting: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, record: bytes) -> None:
        """Take a record."""
        self._waiting.append(record)
        if len(self._waiting) == RUN_RECORDS:
            self._write_run()

    def __iter__(self) -> Iterator[bytes]:
        """Return all records in order."""
        self._write_run()
        return merge(*(self._run(start, end) for start, end in self._runs))

    def _write_run(self) -> None:
        self._waiting.sort()
        start = self._file.seek(0, 2)
        self._file.write(b"".join(self._waiting))
        self._runs.append((start, self._file.tell()))
        self._waiting.clear()

    def _run(self, start: int, end: int) -> Iterator[bytes]:
        for at in range(start, end, READ_RECORDS * self._size):
            self._file.seek(at)
            some = self._file.read(min(READ_RECORDS * self._size, end - at))
            yield from (some[place : place + self._size] for place in range(0, len(some), self._size))


class UniqueValues:
    """The unique values of the rows of one entity that a copy would write or find in the target."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity
        self._numbers = {index.name: number for number, index in enumerate(entity.uniques)}
        self._values = SortedRecords(DIGEST_BYTES + INDEX_BYTES + FLAG_BYTES + PLACE_BYTES)
        self._keys = TemporaryFile()  # noqa: SIM115  # closed by __exit__
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keys.close()
        self._values.__exit__()

    def add(self, records: Iterable[Record], *, written: bool) -> None:
        """Take rows in the order in which a copy writes them; ``written`` if the target lacks them."""
        if not self._numbers:
            return
        for record in records:
            place = -1
            for unique in unique_keys(self._entity, record):
                if place < 0:
                    place = self._end
                    line = [record.key, record.label]
                    self._end += self._keys.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
                number = self._numbers[unique.index.name].to_bytes(INDEX_BYTES)
                value = orjson.dumps(unique.values)
                digest = blake2b(number + value, digest_size=DIGEST_BYTES).digest()
                self._values.add(digest + number + written.to_bytes() + place.to_bytes(PLACE_BYTES))

    def refused(self) -> Iterator[tuple[list[str | int], str, str]]:
        """Yield key, label of the owner and reason of each row that a target would refuse, in key order.

        Of rows with one value the target keeps the one that it has, or else stores the first.
        """
        with SortedRecords(2 * PLACE_BYTES + INDEX_BYTES) as found:
            for _, group in groupby(self._values, lambda record: record[:DIGEST_BYTES]):
                for record in _losers(group):
                    found.add(record)
            # A row that loses two values is refused once.
            for place, losses in groupby(found, lambda record: record[:PLACE_BYTES]):
                yield self._refusal(place, next(losses))

    def _refusal(self, place: bytes, loss: bytes) -> tuple[list[str | int], str, str]:
        key, label = self._line(place)
        holder, _ = self._line(loss[PLACE_BYTES : 2 * PLACE_BYTES])
        index = self._entity.uniques[loss[-1]]
        return key, label, conflict_reason(self._entity, UniqueConflict(index, tuple(holder)))

    def _line(self, place: bytes) -> tuple[list[str | int], str]:
        self._keys.seek(int.from_bytes(place))
        key, label = orjson.loads(self._keys.readline())
        return key, label


def _losers(group: Iterator[bytes]) -> Iterator[bytes]:
    """Yield for each row that loses a value its place, that of the row with the value, and the index."""
    holder = next(group)
    for record in group:
        if record[-PLACE_BYTES - FLAG_BYTES]:
            yield (
                record[-PLACE_BYTES:]
                + holder[-PLACE_BYTES:]
                + record[DIGEST_BYTES : DIGEST_BYTES + INDEX_BYTES]
            )
