"""Documents that native code has made of packed rows, on their way into the store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from twinstore.bulk import Record
from twinstore.fast.reversing import highest, write_documents
from twinstore.tenancy import label_of
from twinstore_mongo.bulk_documents import DocumentWrite
from twinstore_mongo.derive import derived_fields
from twinstore_mongo.packing import native_documents

if TYPE_CHECKING:
    from collections import Counter

    from twinstore.bulk import Key
    from twinstore.catalog import Entity
    from twinstore.fast.packed import PackedBatch
    from twinstore.fast.reversing import WrittenDocuments

__all__ = [
    "PackedWrites",
    "Run",
    "Write",
    "documents_in",
    "expanded",
    "highest_of",
    "keys_of",
    "packed_pieces",
    "parted",
    "plain_inserts",
    "runs_of",
]

# No document of packed rows is larger, see copier/write_documents.c; a server that takes less gets records.
LARGEST_DOCUMENT: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class PackedWrites:
    """Documents of a batch whose rows lie one behind the other.

    Attributes:
        batch: the batch.
        documents: all documents of the batch.
        start: the number of the first document.
        stop: the number behind that of the last one.
        row: the number of the packed row of the first document.
    """

    batch: PackedBatch
    documents: WrittenDocuments
    start: int
    stop: int
    row: int

    def __len__(self) -> int:
        """Return the number of documents."""
        return self.stop - self.start

    @property
    def weight(self) -> int:
        """How many bytes they have."""
        return self.documents.end(self.stop - 1) - self.documents.end(self.start - 1)

    def labels(self) -> Counter[str]:
        """Return their number by the label of their owner."""
        return self.documents.counts(self.start, self.stop)

    def raw(self, at: int) -> bytes:
        """Return one document."""
        return self.documents.document(self.start + at)

    def key(self, at: int) -> Key:
        """Return the key of one; -1 is the last."""
        return self.batch.key_of(self.row + range(len(self))[at]) or ()

    def label(self, at: int) -> str:
        """Return the label of the owner of one."""
        return label_of(self.batch.owner_of(self.row + at))

    def write(self, at: int) -> DocumentWrite:
        """Return the write of one, with its record."""
        return DocumentWrite(self.batch.record(self.row + at), self.raw(at))

    def within(self, start: int, stop: int) -> PackedWrites:
        """Return some of them."""
        return replace(self, start=self.start + start, stop=self.start + stop, row=self.row + start)

    def fitting(self, room: int) -> int:
        """Return how many fill some room; the last one may go beyond it, and there is one at least."""
        wanted = self.documents.end(self.start - 1) + room
        numbers = range(self.start, self.stop)
        found = bisect_left(numbers, wanted, key=self.documents.end)
        return min(found + 1, len(self))


Write: TypeAlias = DocumentWrite | PackedWrites
"""What waits to be written."""
Run: TypeAlias = Sequence[Write]
"""What is sent together: writes of one kind."""


def packed_pieces(batch: PackedBatch, largest: int | None) -> list[PackedWrites | Record] | None:
    """Return the documents of a batch and the records that have none, in key order.

    Return ``None`` where native code makes no documents of such rows, or a server may refuse their size.
    """
    entity = batch.program.entity
    native = native_documents(entity)
    if native is None or derived_fields(entity) or (largest is not None and largest < LARGEST_DOCUMENT):
        return None
    # Where keys do not rise, nothing is known of what lies between the first and the last one.
    if batch.examined() is None:
        return None
    ids = b"".join(ObjectId().binary for _ in range(batch.packed)) if entity.generated_id else None
    documents = write_documents(native, batch.rows, ids)
    return None if documents is None else list(_pieces(batch, documents))


def _pieces(batch: PackedBatch, documents: WrittenDocuments) -> Iterator[PackedWrites | Record]:
    row = number = 0
    for before, record in _between(batch, documents):
        if before > row:
            yield PackedWrites(batch, documents, number, number + before - row, row)
            number += before - row
        row = before if record is not None else before + 1
        yield batch.record(before) if record is None else record
    if number < len(documents):
        yield PackedWrites(batch, documents, number, len(documents), row)


def _between(batch: PackedBatch, documents: WrittenDocuments) -> list[tuple[int, Record | None]]:
    """Return how many packed rows stand before each row without a document, and its record if not packed."""
    found: list[tuple[int, Record | None]] = [
        (position - number, record) for number, (position, record) in enumerate(batch.exact)
    ]
    found += [(row, None) for row in documents.declined]
    # A record that is not packed stands before the packed row of that number.
    return sorted(found, key=lambda item: (item[0], item[1] is None))


def highest_of(entity: Entity, records: Sequence[Record], packed: Sequence[PackedWrites]) -> int:
    """Return the highest insertion number of some records and of a batch, 0 for none."""
    name = entity.assigned
    if name is None:
        return 0
    numbers = [record.storage.get(name) for record in records]
    for batch in {id(piece.batch): piece.batch for piece in packed}.values():
        slots = [
            slot for slot, item in enumerate(batch.program.slots) if item.is_marker and item.name == name
        ]
        numbers += [highest(batch.program, batch.rows, slot) for slot in slots]
    return max((number for number in numbers if isinstance(number, int)), default=0)


def keys_of(write: Write, *, but_packed: bool) -> Iterable[Key]:
    """Return the keys of some writes; those of packed rows only where they are wanted."""
    if isinstance(write, DocumentWrite):
        return (write.key,)
    return () if but_packed else map(write.key, range(len(write)))


def runs_of(writes: Iterable[Write]) -> Iterator[Run]:
    """Yield writes as they are sent together, in order: those of packed rows, and those of records."""
    for _, run in groupby(writes, type):
        yield list(run)


def documents_in(run: Run) -> int:
    """Return the number of documents of some writes."""
    return sum(len(write) if isinstance(write, PackedWrites) else 1 for write in run)


def plain_inserts(run: Run) -> list[RawBSONDocument] | None:
    """Return the documents of some writes, ``None`` where one of them takes the place of another document."""
    found: list[RawBSONDocument] = []
    for write in run:
        if isinstance(write, PackedWrites):
            found += [RawBSONDocument(write.raw(at)) for at in range(len(write))]
        elif write.replaces is None:
            found.append(RawBSONDocument(write.raw))
        else:
            return None
    return found


def parted(writes: Sequence[Write], position: int) -> tuple[list[Write], DocumentWrite, list[Write]]:
    """Return the writes before a position among all documents, the one there, and those behind it."""
    before: list[Write] = []
    for number, write in enumerate(writes):
        size = len(write) if isinstance(write, PackedWrites) else 1
        if position >= size:
            before.append(write)
            position -= size
            continue
        after = list(writes[number + 1 :])
        if isinstance(write, DocumentWrite):
            return before, write, after
        ends = (write.within(0, position), write.within(position + 1, size))
        head, tail = ([part] if len(part) else [] for part in ends)
        return [*before, *head], write.write(position), [*tail, *after]
    raise LookupError("the store refused a document that was not sent")  # met by programmers only


def expanded(writes: Sequence[Write]) -> Iterator[DocumentWrite]:
    """Yield the writes one by one, each with its record."""
    for write in writes:
        if isinstance(write, PackedWrites):
            yield from map(write.write, range(len(write)))
        else:
            yield write
