"""Batches whose rows are packed by the native library; each becomes a record when it is read."""

from __future__ import annotations

import ctypes
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Final, overload

from typing_extensions import override

from twinstore.bulk.port import Record
from twinstore.catalog.tenancy import NO_TENANT, StoredOwner, label_of, owner_of
from twinstore.fast.library import BROKEN, Address, Buffer, Size, checked, declared
from twinstore.fast.program import Handle, Writer, program_handle
from twinstore.models import json_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from twinstore.catalog.keys import Key
    from twinstore.fast.program import Program

FUNCTIONS: Final = {
    "ts_examine": (ctypes.c_int64, Address, Address, Size, ctypes.c_int64, Address, Address),
    "ts_without": (ctypes.c_int64, Address, Size, Address, Size, Address),
}
# Of a value by its tag, if the size is fixed; texts and JSON carry theirs.
TEXT: Final = 1
INTEGER: Final = 2
SIZES: Final = {0: 0, 2: 8, 3: 1, 4: 8, 6: 1, 7: 8}
LENGTH: Final = 4
# Numbers in the place of a packed row.
PLACE_WORDS: Final = 3
IGNORED: Final = 1 << 31
# The length of the text of a tenant that is none.
ABSENT: Final = 0xFFFFFFFF
NEVER: Final = -(2**63)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What the packed rows of a batch amount to.

    Attributes:
        read: their number by the label of their owner.
        expired: how many of these are due.
        due: which, as numbers of packed rows that rise.
    """

    read: Counter[str]
    expired: Counter[str]
    due: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """What packed rows were made of.

    Attributes:
        content: the bytes that hold them as they are stored.
        places: three numbers of 32 bits for each packed row: where it is packed, where it is stored, and how
            many bytes it takes there, with the highest bit set if a property of it is ignored.
        record_of: makes a record of the stored bytes of one row, the exact way.
        rules: the rules that changed a packed row before, by its number, for rows with any.
    """

    content: bytes
    places: bytes
    record_of: Callable[[bytes], Record]
    rules: Mapping[int, Sequence[int]] = field(default_factory=dict[int, Sequence[int]])


class AcceptsPacked:
    """A range writer that writes packed batches as they are.

    For any other one a tool reads records at once, which costs less than making them of packed rows.
    """

    __slots__ = ()


class PackedBatch(Sequence[Record]):
    """The rows of a batch in key order, as :meth:`~twinstore.bulk.port.RangeWriter.write` takes them.

    Nearly all are packed. Other code sees a sequence of records: each is made of its stored bytes, by the
    exact way, when it is read, and is not kept.

    Attributes:
        program: by which the rows are packed; its slots say what they hold.
        rows: the packed rows, one behind the other.
        exact: the records that are not packed, each with its position among all.
    """

    def __init__(
        self, program: Program, rows: Buffer, stored: Stored, exact: Iterable[tuple[int, Record]] = ()
    ) -> None:
        """Take the packed rows, what they were made of, and the others."""
        self._library = declared(rows.library, FUNCTIONS)
        self.program = program
        self.rows = self._all = rows
        self._stored = stored
        self._place = memoryview(stored.places).cast("I")
        # Of those that were packed at first, if some were removed since.
        self._kept: Sequence[int] = range(len(self._place) // PLACE_WORDS)
        self._examined: BatchCounts | None = None
        self._take(exact)

    def _take(self, exact: Iterable[tuple[int, Record]]) -> None:
        self.exact = tuple(exact)
        self._positions = [position for position, _ in self.exact]

    @property
    def packed(self) -> int:
        """The number of packed rows."""
        return len(self._kept)

    @override
    def __len__(self) -> int:
        return len(self._kept) + len(self.exact)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    @override
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        found = self._at(index)
        return self.record(found) if isinstance(found, int) else found

    @override
    def __iter__(self) -> Iterator[Record]:
        return (self[position] for position in range(len(self)))

    def is_packed(self, index: int) -> bool:
        """Whether the row at a position is packed."""
        return isinstance(self._at(index), int)

    def record(self, number: int) -> Record:
        """Return a packed row as a record, by its number among the packed ones."""
        place = self._kept[number] * PLACE_WORDS
        at, size = self._place[place + 1], self._place[place + 2] & ~IGNORED
        return self._stored.record_of(self._stored.content[at : at + size])

    def key(self, index: int) -> Key | None:
        """Return the key at a position."""
        found = self._at(index)
        return self.key_of(found) if isinstance(found, int) else found.key

    def key_of(self, number: int) -> Key | None:
        """Return the key of a packed row, by its number among the packed ones."""
        values = self._values(number, self.program.key)
        key = tuple(value for value in values if value is not None)
        # A row holds other kinds of values in another form, so only its record has the key.
        return key if len(key) == len(values) else self.record(number).key

    def owner_of(self, number: int) -> StoredOwner:
        """Return the owner of a packed row, by its number among the packed ones."""
        if self.program.tenant is None:
            return NO_TENANT
        (tenant,) = self._values(number, (self.program.tenant,))
        return owner_of(tenant) if isinstance(tenant, str) else self.record(number).owner

    def numbers_of(self, keys: Collection[Key]) -> dict[Key, int]:
        """Return the numbers of the packed rows with some keys; see :meth:`examined`."""
        numbers = range(self.packed)
        if len(keys) * len(numbers).bit_length() > len(numbers):
            known = {self.key_of(number): number for number in numbers}
            return {key: known[key] for key in keys if key in known}
        found = {key: bisect_left(numbers, key, key=lambda item: self.key_of(item) or ()) for key in keys}
        return {key: at for key, at in found.items() if at in numbers and self.key_of(at) == key}

    def examined(self, limit: datetime | None = None) -> BatchCounts | None:
        """Count the packed rows, and find those that are due at a limit.

        Return ``None`` if their keys do not strictly rise: then callers must read the records.
        """
        if limit is None and self._examined is not None:
            return self._examined
        counts, due = Buffer(self._library), Buffer(self._library)
        answer = self._library.ts_examine(
            program_handle(self._library, self.program).address,
            self.rows.address,
            len(self.rows),
            NEVER if limit is None else (limit - EPOCH) // MILLISECOND,
            counts.handle,
            due.handle,
        )
        if checked(answer) == BROKEN:
            return None
        self._examined = _examined(counts.tobytes(), due.tobytes())
        return self._examined

    def rules(self) -> dict[int, Sequence[int]]:
        """Return the rules that changed a packed row, by its number among the packed ones."""
        rules = self._stored.rules
        return {number: rules[kept] for number, kept in enumerate(self._kept) if kept in rules}

    def ignored(self, counts: Counter[str], dropped: Collection[int] = ()) -> Counter[str]:
        """Return the packed rows of which a property is ignored, by the label of their owner.

        Args:
            counts: all packed rows by that label, as :meth:`examined` has them.
            dropped: the numbers of further rows, of which a rule dropped a property.
        """
        found = [
            number
            for number, kept in enumerate(self._kept)
            if self._place[kept * PLACE_WORDS + PLACE_WORDS - 1] & IGNORED or number in dropped
        ]
        # To look at each row takes as long as to copy it; usually they all have it, or none has.
        if len(found) == len(self._kept):
            return counts if found else Counter()
        return Counter(label_of(self.owner_of(number)) for number in found)

    def without(self, due: Sequence[int], positions: Collection[int] = ()) -> PackedBatch:
        """Return the batch without some packed rows, whose numbers rise, and some records by position."""
        if not due and not positions:
            return self
        left = PackedBatch(self.program, self.rows, self._stored)
        left._all, left._kept = self._all, self._kept
        if due:
            numbers, gone = array("I", due), set(due)
            address, size = numbers.buffer_info()
            left.rows = Buffer(self._library)
            checked(
                self._library.ts_without(self.rows.address, len(self.rows), address, size, left.rows.handle)
            )
            left._kept = array("I", (kept for number, kept in enumerate(self._kept) if number not in gone))
        left._take(self._staying(due, positions))
        return left

    def _staying(self, due: Sequence[int], positions: Collection[int]) -> Iterator[tuple[int, Record]]:
        """Yield the records that stay, each with its position then."""
        staying = [
            (position - number, record)
            for number, (position, record) in enumerate(self.exact)
            if position not in positions
        ]
        for number, (before, record) in enumerate(staying):
            yield number + before - bisect_left(due, before), record

    def _at(self, index: int) -> Record | int:
        """Return what is at a position: a record, or the number of a packed row."""
        position = range(len(self))[index]
        before = bisect_left(self._positions, position)
        is_exact = before < len(self._positions) and self._positions[before] == position
        return self.exact[before][1] if is_exact else position - before

    def _values(self, number: int, slots: Sequence[int]) -> list[str | int | None]:
        """Return the texts and integers of some slots of a packed row, ``None`` for anything else."""
        at = (self._all.address or 0) + self._place[self._kept[number] * PLACE_WORDS]
        row = ctypes.string_at(at, int.from_bytes(ctypes.string_at(at, LENGTH), "little"))
        found: dict[int, str | int | None] = {}
        at = LENGTH
        for slot in range(max(slots, default=-1) + 1):
            tag = row[at]
            length = SIZES.get(tag, -1)
            start = at + 1
            if length < 0:
                length = int.from_bytes(row[start : start + LENGTH], "little")
                start += LENGTH
            at = start + length
            if tag == TEXT:
                found[slot] = row[start:at].decode()
            elif tag == INTEGER:
                found[slot] = int.from_bytes(row[start:at], "little", signed=True)
        return [found.get(slot) for slot in slots]


def counted(library: ctypes.CDLL, program: Program, address: int, size: int) -> Counter[str]:
    """Return the number of packed rows by the label of their owner; their keys rise."""
    native = declared(library, FUNCTIONS)
    counts, due = Buffer(native), Buffer(native)
    handle = program_handle(native, program).address
    answer = native.ts_examine(handle, address, size, NEVER, counts.handle, due.handle)
    if checked(answer) == BROKEN:
        raise ValueError("the keys of packed rows do not rise")  # met by programmers only
    return _examined(counts.tobytes(), due.tobytes()).read


def _examined(counts: bytes, due: bytes) -> BatchCounts:
    """Return what the library counted: a text and two numbers of 64 bits for each owner."""
    read, expired = Counter[str](), Counter[str]()
    at = 0
    while at < len(counts):
        length = int.from_bytes(counts[at : at + LENGTH], "little")
        start = at + LENGTH
        end = start if length == ABSENT else start + length
        label = label_of(NO_TENANT if length == ABSENT else owner_of(counts[start:end].decode()))
        read[label] += int.from_bytes(counts[end : end + 8], "little")
        expired[label] += int.from_bytes(counts[end + 8 : end + 16], "little")
        at = end + 16
    return BatchCounts(read, +expired, memoryview(due).cast("I"))


# Packed rows as rows of a binary COPY: the layout of a table for native code.


COPY_FUNCTIONS: Final = {
    "ts_columns_new": (Address, Address, ctypes.c_char_p, Size),
    "ts_columns_free": (None, Address),
    "ts_write_copy": (ctypes.c_int64, Address, Address, Size, Address),
}
NO_SLOT: Final = -1
NULL: Final = b"\xff\xff\xff\xff"
"""The field of COPY without a value."""


class ColumnKind(IntEnum):
    """How a column holds a value; the numbers are those of ``copier/columns.h``."""

    TEXT = 0
    INT2 = 1
    INT4 = 2
    INT8 = 3
    JSONB = 4
    TIMESTAMPTZ = 5
    BOOL = 6
    TEXTS = 7
    INT4S = 8
    INT8S = 9
    FLOAT8 = 10
    UUID = 11
    ENUM = 12
    """As its members say: a number or a text."""
    PAYLOAD = 13
    """JSONB of the whole model."""
    NUMERIC = 14
    BYTEA = 15


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How a column holds a slot of a program.

    Attributes:
        slot: its number; a payload has none, nor has a column that follows from others.
        kind: how.
        absent: the field of an absent value, see :func:`copy_field`; empty where none may be absent.
        members: of an enumeration the fields of its texts, in the order of the node.
    """

    slot: int
    kind: ColumnKind
    absent: bytes = NULL
    members: tuple[bytes, ...] = ()


def copy_field(value: bytes | None) -> bytes:
    """Return a field of a binary COPY: its length and its bytes."""
    return NULL if value is None else len(value).to_bytes(4, "big") + value


class NativeColumns:
    """The columns of a table as the library holds them; every thread may use them."""

    def __init__(self, library: ctypes.CDLL, program: Program, columns: Sequence[ColumnLayout]) -> None:
        """Take the columns in the order of a COPY.

        Raises:
            ValueError: the library takes no such layout.
        """
        self.library: Final = declared(library, COPY_FUNCTIONS)
        self.program: Final = program
        # It must not end before these columns do.
        self._program = program_handle(library, program)
        layout = layout_of(program, columns)
        made = self.library.ts_columns_new(self._program.address, layout, len(layout))
        self.handle: Final = Handle(self.library, made, "ts_columns_free")

    def write(self, rows: Buffer, out: Buffer) -> bool:
        """Add rows of a binary COPY; return whether the columns hold every value, so far as that shows here.

        Otherwise what was added is of no use, and only the server has the words for the row it would refuse.
        """
        answer = self.library.ts_write_copy(self.handle.address, rows.address, len(rows), out.handle)
        return checked(answer) != BROKEN


def layout_of(program: Program, columns: Sequence[ColumnLayout]) -> bytes:
    """Return the bytes of a layout, as ``copier/columns.c`` reads them."""
    writer = Writer()

    def column(item: ColumnLayout) -> None:
        writer.number(item.slot)
        writer.number(item.kind)
        writer.text(item.absent)
        writer.many(item.members, writer.text)

    writer.many(columns, column)
    names = [field.name for field in program.nodes[program.root].fields]
    writer.many([json_text.dumps(name) + b":" for name in names], writer.text)
    return writer.tobytes()


# Documents as packed rows: how a collection holds them, and what native code makes of raw documents.


READ_FUNCTIONS: Final = {
    "ts_documents_new": (Address, Address, ctypes.c_char_p, Size),
    "ts_documents_free": (None, Address),
    "ts_read_documents": (ctypes.c_int64, Address, ctypes.c_char_p, Size, Address, Address, Address),
    "ts_accepts_document": (ctypes.c_int, Address, ctypes.c_char_p, Size, Address),
}


class Identity(IntEnum):
    """What is stored as ``_id``."""

    SLOT = 0
    JOINED = 1
    """The parts of the key, joined to a text."""
    GENERATED = 2
    """An ``ObjectId``."""


@dataclass(frozen=True, slots=True)
class StoredSlot:
    """How documents hold a slot.

    Attributes:
        name: its name there, empty for the one that is stored as ``_id``.
        is_long: whether integers always have 64 bits.
    """

    name: str
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class ReadDocuments:
    """What became of raw documents.

    Attributes:
        rows: the packed rows.
        places: three numbers of 32 bits for each, see :class:`~twinstore.fast.records.Stored`.
        declined: the other documents: where each lies, its length, and how many packed rows come before it.
    """

    rows: Buffer
    places: bytes
    declined: tuple[tuple[int, int, int], ...]


class NativeDocuments:
    """The documents of an entity as the library knows them; every thread may use them."""

    def __init__(
        self,
        library: ctypes.CDLL,
        program: Program,
        identity: Identity,
        slots: Sequence[StoredSlot],
        *,
        versioned: bool,
        skipped: Sequence[str] = (),
        ignored: Sequence[str] = (),
    ) -> None:
        """Take how documents hold the slots of a program, and the names that are no part of a row.

        ``ignored`` are those of other programs that a user drops; documents with one are counted.

        Raises:
            ValueError: the library takes no such layout.
        """
        self.program: Final = program
        self._library = declared(library, READ_FUNCTIONS)
        # It must not end before these documents do.
        self._program = program_handle(library, program)
        layout = read_layout_of(identity, slots, versioned=versioned, skipped=skipped, ignored=ignored)
        made = self._library.ts_documents_new(self._program.address, layout, len(layout))
        self.handle: Final = Handle(self._library, made, "ts_documents_free")

    def read(self, raw: bytes) -> ReadDocuments | None:
        """Return the packed rows of documents that lie one behind the other, ``None`` for other bytes."""
        rows, places, declined = (Buffer(self._library) for _ in range(3))
        answer = self._library.ts_read_documents(
            self.handle.address, raw, len(raw), rows.handle, places.handle, declined.handle
        )
        if checked(answer) == BROKEN:
            return None
        numbers = memoryview(declined.tobytes()).cast("I").tolist()
        return ReadDocuments(
            rows, places.tobytes(), tuple(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
        )

    def accepts(self, document: bytes) -> bool:
        """Whether a document would be packed, and a copy of it holds the same values."""
        scratch = Buffer(self._library)
        answer = self._library.ts_accepts_document(
            self.handle.address, document, len(document), scratch.handle
        )
        return checked(answer) == 1


def read_layout_of(
    identity: Identity,
    slots: Sequence[StoredSlot],
    *,
    versioned: bool,
    skipped: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> bytes:
    """Return the bytes of a layout, as ``copier/documents.h`` says."""
    writer = Writer()
    own = [number for number, slot in enumerate(slots) if not slot.name]
    for number in (identity, own[0] if own else -1, versioned):
        writer.number(number)

    def slot_of(slot: StoredSlot) -> None:
        writer.text(slot.name)
        writer.number(slot.is_long)

    writer.many(slots, slot_of)
    writer.many((*skipped, *ignored), writer.text)
    writer.number(len(skipped))
    return writer.tobytes()


# Packed rows from rows of a binary COPY, and documents from packed rows.


REVERSE_FUNCTIONS: Final = {
    "ts_read_copy": (ctypes.c_int64, Address, ctypes.c_char_p, Size, Address, Address, Address),
    "ts_write_documents": (
        ctypes.c_int64,
        Address,
        Address,
        Size,
        ctypes.c_char_p,
        Address,
        Address,
        Address,
    ),
    "ts_highest": (
        ctypes.c_int64,
        Address,
        Address,
        Size,
        ctypes.c_uint32,
        ctypes.POINTER(ctypes.c_int64),
    ),
}
REVERSED_PLACE_WORDS: Final = 3


def read_copy(columns: NativeColumns, data: bytes) -> ReadDocuments | None:
    """Return the packed rows of a binary COPY without its header and trailer, ``None`` for other bytes."""
    found = declared(columns.library, REVERSE_FUNCTIONS)
    rows, places, declined = (Buffer(found) for _ in range(3))
    answer = found.ts_read_copy(
        columns.handle.address, data, len(data), rows.handle, places.handle, declined.handle
    )
    if checked(answer) == BROKEN:
        return None
    numbers = memoryview(declined.tobytes()).cast("I").tolist()
    return ReadDocuments(
        rows, places.tobytes(), tuple(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
    )


@dataclass(frozen=True, slots=True)
class WrittenDocuments:
    """The documents of packed rows.

    Attributes:
        program: by which the rows are packed.
        rows: the packed rows.
        raw: the documents, one behind the other.
        places: three numbers for each document: where it ends, and where its row begins and ends.
        declined: the numbers of the rows that have none, rising.
    """

    program: Program
    rows: Buffer
    raw: bytes
    places: memoryview
    declined: Sequence[int]

    def __len__(self) -> int:
        return len(self.places) // REVERSED_PLACE_WORDS

    def end(self, number: int) -> int:
        """Return where a document ends; before the first one that is the beginning."""
        found: int = self.places[REVERSED_PLACE_WORDS * number] if number >= 0 else 0
        return found

    def document(self, number: int) -> bytes:
        """Return one document."""
        return self.raw[self.end(number - 1) : self.end(number)]

    def counts(self, start: int, stop: int) -> Counter[str]:
        """Return how many rows each owner has among documents whose rows lie one behind the other."""
        first: int = self.places[REVERSED_PLACE_WORDS * start + 1]
        end: int = self.places[REVERSED_PLACE_WORDS * (stop - 1) + 2]
        return counted(self.rows.library, self.program, (self.rows.address or 0) + first, end - first)


def write_documents(
    documents: NativeDocuments, rows: Buffer, ids: bytes | None = None
) -> WrittenDocuments | None:
    """Return the documents of packed rows, ``None`` for other bytes.

    Args:
        documents: how documents hold the slots of the rows.
        rows: the rows.
        ids: twelve bytes for each row where ``_id`` is generated.
    """
    found = declared(rows.library, REVERSE_FUNCTIONS)
    out, places, declined = (Buffer(found) for _ in range(3))
    answer = found.ts_write_documents(
        documents.handle.address,
        rows.address,
        len(rows),
        ids,
        out.handle,
        places.handle,
        declined.handle,
    )
    if checked(answer) == BROKEN:
        return None
    return WrittenDocuments(
        documents.program,
        rows,
        out.tobytes(),
        memoryview(places.tobytes()).cast("I"),
        memoryview(declined.tobytes()).cast("I").tolist(),
    )


def highest(program: Program, rows: Buffer, slot: int) -> int:
    """Return the highest integer in a slot of packed rows, 0 where none is higher."""
    found = declared(rows.library, REVERSE_FUNCTIONS)
    number = ctypes.c_int64()
    handle = program_handle(found, program)
    checked(found.ts_highest(handle.address, rows.address, len(rows), slot, ctypes.byref(number)))
    return number.value
