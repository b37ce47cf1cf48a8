"""Records as the documents that a copy writes, and whether a stored document says the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import bson
from bson import ObjectId
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import InsertOne, ReplaceOne
from pymongo.errors import OperationFailure

from twinstore.bulk.changes import ChangeRefusedError
from twinstore.bulk.port import TOO_LARGE, Record
from twinstore.bulk.unique_moves import INDEX_TAKEN
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import label_of
from twinstore.fast.library import library
from twinstore.fast.nodes import NodeKind
from twinstore.fast.program import Program, program_of
from twinstore.fast.records import Identity, NativeDocuments, StoredSlot, highest, write_documents
from twinstore.models.json_text import dumps_sorted
from twinstore_mongo.client.bson import element_of, first_of, framed
from twinstore_mongo.client.errors import DUPLICATE_KEY, violated_index
from twinstore_mongo.client.types import EXACT
from twinstore_mongo.mapping.codec import FIRST_VERSION, codec_of, next_version
from twinstore_mongo.mapping.free_json import lossless_document
from twinstore_mongo.mapping.layout import ID, VERSION, derived_fields, internal_names

if TYPE_CHECKING:
    import ctypes
    from collections import Counter
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.fast.records import PackedBatch, WrittenDocuments
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.codec import Codec

LENGTH_BYTES: Final = 4
# The record waits with its document. As an object a small value takes about a hundred bytes, and it has about
# five zeros in the document.
HEAVY_BYTES: Final = 250_000
BYTES_OF_ZERO: Final = 16
VALIDATION_FAILURE: Final = 121
# The last bytes of a document that ends with a 64-bit _version: type, name, value, end.
VERSION_TAIL: Final = len(b"\x12_version\x00") + 8 + 1


class UnfitError(Exception):
    """A record cannot be stored in MongoDB so that a read gives the same again."""


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """One document on its way.

    Attributes:
        replaces: the filter of the document that it takes the place of.
        moves: that one has another ``_id``, which the server lets no replacement change, or the new one has a
            name that no replacement may have.
    """

    record: Record
    raw: bytes
    replaces: RawBSONDocument | None = None
    moves: bool = False

    @property
    def key(self) -> Key:
        """The key of the record, which every write has."""
        return self.record.key or ()

    @property
    def weight(self) -> int:
        """About how many bytes it takes while it waits."""
        if len(self.raw) < HEAVY_BYTES:
            return len(self.raw)
        # Names and lengths of texts end with zero bytes, so their number shows how many values there are.
        return len(self.raw) + BYTES_OF_ZERO * self.raw.count(b"\x00")


def encoded(codec: Codec[Any], record: Record, *, largest: int | None) -> DocumentWrite:
    """Return the write of a record.

    Raises:
        UnfitError: no document reads back as the same record, or it has more than ``largest`` bytes.
    """
    raw = bson.encode(document_of(codec, record))
    if largest is not None and len(raw) > largest:
        raise UnfitError(TOO_LARGE)
    return DocumentWrite(record, raw)


def replacing(codec: Codec[Any], write: DocumentWrite, stored: bytes) -> DocumentWrite:
    """Return the write that takes the place of a stored document."""
    document = document_of(codec, write.record, next_version(first_of(stored, VERSION)))
    identity = element_of(stored, ID)
    replaces = RawBSONDocument(framed(identity))
    raw = identified(codec, bson.encode(document), stored)
    # If the id is separate from the key, the stored document is another row, and the server refuses to turn
    # it into this one.
    moves = (codec.entity.own_id is None and element_of(raw, ID) != identity) or bool(codec.entity.unpathed)
    return DocumentWrite(write.record, raw, replaces, moves=moves)


def identified(codec: Codec[Any], raw: bytes, stored: bytes) -> bytes:
    """Return a new document with the ``_id`` of a stored one, where that is free and has its type."""
    if not codec.entity.generated_id:
        return raw
    identity = element_of(stored, ID)
    # Of one type they are equally long, and a new document begins with its own.
    same_type = identity[0] == raw[LENGTH_BYTES]
    return raw[:LENGTH_BYTES] + identity + raw[LENGTH_BYTES + len(identity) :] if same_type else raw


def document_of(codec: Codec[Any], record: Record, version: Int64 = FIRST_VERSION) -> Document:
    """Return the document of a record; its markers are kept as they are, not computed again.

    Raises:
        UnfitError: there is none that reads back as the same record.
    """
    if record.model is None or record.key is None:
        raise UnfitError(record.error or "it has no usable key")
    row = Row(record.model, record.storage)
    if codec.differs_when_read(row):
        own = codec.entity.single_key
        raise UnfitError(f"its key is neither its own {own} nor the one derived from its content")
    try:
        return codec.encode(row, version)
    except ChangeRefusedError as error:
        raise UnfitError(str(error)) from None


def is_same_row(record: Record, stored: Record) -> bool:
    """Whether a document reads, after the changes of its store, as the row that would be written."""
    one, other = record.model, stored.model
    if one is None or other is None or dict(record.storage) != dict(stored.storage):
        return False
    return dumps_sorted(one.wire()) == dumps_sorted(other.wire())


def is_equal(codec: Codec[Any], new: bytes, stored: bytes) -> bool:
    """Whether a stored document holds what would be written: each value with its type, names in any order.

    The number of its changes may differ, and so may a generated ``_id``: any ObjectId. Every other ``_id``
    next to the key is made from it, and the validator refuses the next write of the service to a document
    with another one.
    """
    versioned = codec.entity.versioned
    raw = identified(codec, new, stored)
    if raw == stored or (versioned and same_but_version(raw, stored)):
        return True
    wanted, found = bson.decode(raw, EXACT), lossless(stored)
    if found is None:
        return False
    if versioned and type(found.get(VERSION)) is Int64:
        found[VERSION] = wanted[VERSION]
    return same(wanted, found)


def lossless(raw: bytes) -> Document | None:
    """Return a stored document, ``None`` where its values do not give it back."""
    try:
        document = bson.decode(raw, EXACT)
    except bson.InvalidBSON:
        return None
    return document if bson.encode(document) == raw else lossless_document(raw)


def same(one: object, other: object) -> bool:
    """Whether two stored values are of one type and equal; the order of names does not matter."""
    # The client shows a map as a reference or not, depending on the order of its names.
    one, other = (dict(item.as_doc()) if isinstance(item, bson.DBRef) else item for item in (one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else one == other


def same_but_version(one: bytes, other: bytes) -> bool:
    """Whether two documents that end with ``_version`` are equal before it."""
    return (
        len(one) == len(other)
        and other[-VERSION_TAIL:-9] == b"\x12_version\x00"
        and one[LENGTH_BYTES:-VERSION_TAIL] == other[LENGTH_BYTES:-VERSION_TAIL]
    )


def operation(write: DocumentWrite) -> InsertOne[RawBSONDocument] | ReplaceOne[RawBSONDocument]:
    """Return the operation of a write."""
    new = RawBSONDocument(write.raw)
    return InsertOne(new) if write.replaces is None or write.moves else ReplaceOne(write.replaces, new)


class RefusedError(Exception):
    """The store refused one document of a bulk write."""

    def __init__(self, position: int, details: Mapping[str, Any]) -> None:
        super().__init__(position)
        self.position = position
        self.error = OperationFailure(str(details.get("errmsg", "")), details.get("code"), details)

    @property
    def reason(self) -> str:
        """Why, without any content of the document."""
        if self.error.code == DUPLICATE_KEY:
            return f"{INDEX_TAKEN} {violated_index(self.error) or 'unknown'} is taken in the target"
        if self.error.code == VALIDATION_FAILURE:
            return "the validator of the target refuses it"
        return f"the target refuses it with code {self.error.code}"


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
    """Return how many packed rows precede each row without a document, and its record if not packed."""
    found: list[tuple[int, Record | None]] = [
        (position - number, record) for number, (position, record) in enumerate(batch.exact)
    ]
    found += [(row, None) for row in documents.declined]
    # A record that is not packed comes before the packed row of that number.
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


def split_at(writes: Sequence[Write], position: int) -> tuple[list[Write], DocumentWrite, list[Write]]:
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


# As native code has it.
MOST_SKIPPED: Final = 256
# By identity, as codecs; what has none is remembered too.
_documents: Final[dict[tuple[int, frozenset[str]], tuple[Entity, NativeDocuments | None]]] = {}


def native_documents(entity: Entity, ignored: AbstractSet[str] = frozenset()) -> NativeDocuments | None:
    """Return how native code reads the documents of an entity, ``None`` where it cannot.

    Args:
        entity: the entity.
        ignored: unknown properties at the top that the rows skip.
    """
    found, key = library(), (id(entity), frozenset(ignored))
    if found is None:
        return None
    known = _documents.get(key)
    if known is None:
        known = _documents.setdefault(key, (entity, _build(found, entity, key[1])))
    return known[1]


def _build(found: ctypes.CDLL, entity: Entity, ignored: frozenset[str]) -> NativeDocuments | None:
    program = program_of(entity)
    return documents_of(found, program, ignored) if isinstance(program, Program) else None


def documents_of(
    found: ctypes.CDLL, program: Program, ignored: frozenset[str] = frozenset()
) -> NativeDocuments | None:
    """Return how native code reads the documents of a program, ``None`` where it cannot."""
    entity = program.entity
    codec = codec_of(entity)
    slots = [
        StoredSlot(
            "" if codec.names[slot.name] == ID else codec.names[slot.name],
            slot.name in codec.longs or (slot.is_marker and slot.kind is NodeKind.INT),
        )
        for slot in program.slots
    ]
    own = sum(not slot.name for slot in slots)
    if entity.generated_id:
        identity = Identity.GENERATED
    else:
        identity = Identity.JOINED if entity.document_id is None else Identity.SLOT
    # An `_id` that follows from the content is not a slot.
    names = {slot.name for slot in slots}
    # What is a field of the row is never ignored.
    internal = internal_names(entity) - {*names, ID}
    others = ignored - {*codec.names.values(), *internal, *names, ID}
    has_room = len(internal) + len(others) <= MOST_SKIPPED
    if own != (identity is Identity.SLOT) or len(names) != len(slots) or not has_room:
        return None
    return NativeDocuments(
        found,
        program,
        identity,
        slots,
        versioned=entity.versioned,
        skipped=sorted(internal),
        ignored=sorted(others),
    )
