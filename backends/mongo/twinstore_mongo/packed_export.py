"""Reading ranges of rows packed: native code takes what it understands, the exporter all else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from twinstore.bulk import Record
from twinstore.fast.packed import PackedBatch, Stored
from twinstore_mongo.bulk_export import ReadSize
from twinstore_mongo.raw import PART_BYTES, parts_of

if TYPE_CHECKING:
    from twinstore.fast.reading import NativeDocuments, ReadDocuments
    from twinstore_mongo.bulk_export import Exporter

__all__ = ["PackedExporter", "packed_size"]

# As many bytes as one merge of a target takes. Few large batches cost the server less than many small ones.
BATCH_BYTES: Final = 4_000_000
# Some batches are larger than the average of all documents says.
PACKED_PART_BYTES: Final = 4_500_000
PLACE_BYTES: Final = 12
# Of the documents of a part: if more are declined, all are decoded together, which is faster for each.
MOST_DECLINED: Final = 0.5


def packed_size(batch_size: int) -> ReadSize:
    """Return how much is read at a time."""
    return ReadSize(batch_size, BATCH_BYTES, PACKED_PART_BYTES)


@dataclass(frozen=True, slots=True)
class PackedExporter:
    """Turns the documents of one entity into packed rows, and those that are declined into records."""

    exporter: Exporter
    documents: NativeDocuments

    def batches(self, parts: Iterator[bytes]) -> Iterator[Sequence[Record]]:
        """Return the rows of parts of raw batches; a generator would remember some too long."""
        return chain.from_iterable(map(self._packed, parts))

    def _packed(self, part: bytes) -> Iterator[Sequence[Record]]:
        read = self.documents.read(part)
        if read is not None and sum(size for _, size, _ in read.declined) <= PART_BYTES:
            # As an iterator, which forgets the batch before the next part is read.
            return iter([self._batch(read, part)])
        # As objects, documents take several times their bytes.
        return map(self._small, parts_of(part))

    def _small(self, part: bytes) -> Sequence[Record]:
        """Return the rows of a part of which every document may become an object, or of a large document."""
        read = self.documents.read(part)
        return self.exporter.records(part) if read is None else self._batch(read, part)

    def _batch(self, read: ReadDocuments, part: bytes) -> Sequence[Record]:
        declined = len(read.declined)
        if declined > MOST_DECLINED * (declined + len(read.places) // PLACE_BYTES):
            return self.exporter.records(part)
        exact = [
            (number + before, self._record(part[at : at + size]))
            for number, (at, size, before) in enumerate(read.declined)
        ]
        return PackedBatch(self.documents.program, read.rows, Stored(part, read.places, self._record), exact)

    def _record(self, raw: bytes) -> Record:
        """Return the record of a document, the exact way."""
        return self.exporter.cautious(raw)
