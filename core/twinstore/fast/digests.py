"""Digests of ranges of rows, from whole batches as a store sends them.

The library shows a row as a comparison does, or declines it; nothing of the copier is behind it. Only whether
the models accept a document is asked of what copies it, and of the models where that does not know.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from twinstore.bulk.rows import FOLDED, SECRET_BYTES, Cell, RangeDigests
from twinstore.catalog.conditions import Equals, OneOf
from twinstore.fast.library import BROKEN, Address, Buffer, Size, checked, declared
from twinstore.fast.program import Handle, Writer
from twinstore.fast.records import EPOCH, MILLISECOND, NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity, Retention
    from twinstore.catalog.keys import Key

Number = ctypes.c_int64
# Of one part of one side: about 40 MB as objects. What has more owners is compared row by row.
MOST_CELLS: Final = 100_000
COUNT: Final = struct.Struct("<q")
LENGTH: Final = struct.Struct("<I")
REQUEST_HEADER: Final = struct.Struct("<II")
CELL: Final = struct.Struct("<ii4Q6Q")
HALF: Final = 64
DIGEST_BYTES: Final = 32
NO_CELL: Final = 0xFFFFFFFF
FUNCTIONS: Final = {
    "ts_document_form_new": (Address, ctypes.c_char_p, Size),
    "ts_document_form_free": (None, Address),
    "ts_table_form_new": (Address, ctypes.c_char_p, Size),
    "ts_table_form_free": (None, Address),
    "ts_digests_new": (Address, ctypes.c_char_p, Size, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_int),
    "ts_digests_free": (None, Address),
    "ts_digests_read": (ctypes.c_int, Address, Address),
    "ts_scan_documents": (Number, Address, ctypes.c_char_p, Size, Address),
    "ts_scan_lines": (Number, Address, ctypes.c_char_p, Size, Address),
    "ts_show_document": (Number, Address, ctypes.c_char_p, Size, Address),
    "ts_show_line": (Number, Address, ctypes.c_char_p, Size, Address),
    "ts_sha256": (None, ctypes.c_char_p, Size, ctypes.c_char_p, ctypes.c_int),
}


class Sink(ctypes.Structure):
    """Where the library puts what it reads; as in verifier.h."""

    _fields_ = (
        ("digests", Address),
        ("cutoff", Number),
        ("accepts", Address),
        ("documents", Address),
        ("unvalidated", Address),
        ("cells", Address),
    )


@dataclass(frozen=True, slots=True)
class NativeValidator:
    """A function of the library that returns whether the models accept a stored document.

    Attributes:
        function: its address; it takes what is below, the document, its size and a buffer.
        documents: what it knows of the documents.
    """

    function: int
    documents: Handle


def document_form(found: ctypes.CDLL, data: bytes) -> Handle:
    """Return the form of documents, as the library holds it."""
    native = declared(found, FUNCTIONS)
    return Handle(native, native.ts_document_form_new(data, len(data)), "ts_document_form_free")


def table_form(found: ctypes.CDLL, data: bytes) -> Handle:
    """Return what the columns of a COPY hold, as the library holds it."""
    native = declared(found, FUNCTIONS)
    return Handle(native, native.ts_table_form_new(data, len(data)), "ts_table_form_free")


class Scanner:
    """Takes the rows of one entity, in any order, and digests them by range and owner."""

    def __init__(
        self,
        found: ctypes.CDLL,
        form: Handle,
        entity: Entity,
        bounds: Sequence[Key],
        *,
        secret: bytes,
        folded: bool = False,
        cutoff: datetime | None = None,
        accepts: Callable[[bytes], bool] | None = None,
        validator: NativeValidator | None = None,
    ) -> None:
        """Take the form of the rows, the ranges, and who judges; see ``BulkView.digests``.

        Args:
            found: the library.
            form: of what kind the rows are; see :func:`document_form` and :func:`table_form`.
            entity: what is read.
            bounds: where its ranges end.
            secret: the key of the digests.
            folded: whether the owners of a range share a cell.
            cutoff: when rows have expired.
            accepts: called for what the judge does not accept: a document as it is stored, or the content of
                a line; without it nothing is judged.
            validator: called for each document before.
        """
        self._library, self._form, self._accepts, self._validator = found, form, accepts, validator
        data = bounds_data(entity, bounds)
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret of digests has {SECRET_BYTES} bytes, not {len(secret)}")
        digests = found.ts_digests_new(data, len(data), MOST_CELLS, secret, folded)
        self._digests = Handle(found, digests, "ts_digests_free")
        self._unvalidated = None if accepts is None else Buffer(found)
        self._refused: set[int] = set()
        self._sink = Sink(
            digests=self._digests.address,
            cutoff=NEVER if cutoff is None else (cutoff - EPOCH) // MILLISECOND,
        )
        if self._unvalidated is not None:
            self._sink.unvalidated = self._unvalidated.handle
            if validator is not None:
                self._sink.accepts, self._sink.documents = validator.function, validator.documents.address
        self._into = ctypes.addressof(self._sink)
        self._cells = Buffer(found)
        self._changed = Counter[tuple[int, tuple[int, ...]]]()

    def add_documents(self, raw: bytes, rules: Sequence[tuple[int, ...]] = ()) -> int:
        """Add whole BSON documents; return how many there are.

        Args:
            raw: the documents.
            rules: of each document the numbers of the rules that changed it; empty for no rules at all.
        """
        self._sink.cells = self._cells.handle if rules else None
        rows = self._added(self._library.ts_scan_documents(self._form.address, raw, len(raw), self._into))
        if rules:
            cells = memoryview(self._cells.tobytes()).cast("I")
            self._cells.clear()
            for each in (cells[::2], cells[1::2]):
                pairs = zip(each, rules, strict=True)
                self._changed.update(pair for pair in pairs if pair[1] and pair[0] != NO_CELL)
        return rows

    def add_lines(self, raw: bytes) -> int:
        """Add whole lines of a COPY in text form; return how many there are."""
        return self._added(self._library.ts_scan_lines(self._form.address, raw, len(raw), self._into))

    def result(self, *, unique: bool) -> RangeDigests:
        """Return the digests of everything that was added.

        Args:
            unique: whether the store admits no two rows of one key.
        """
        out = Buffer(self._library)
        checked(self._library.ts_digests_read(self._digests.address, out.handle))
        found = read_digests(out.tobytes())
        found.unproven |= self._refused
        places = list(found.cells)
        for (cell, numbers), rows in self._changed.items():
            found.rules.setdefault(places[cell], Counter())[numbers] += rows
        found.judged, found.unique = self._accepts is not None, unique
        return found

    def _added(self, rows: int) -> int:
        if checked(rows) == BROKEN:
            raise ValueError("a batch of rows does not end where its last row ends")  # no server sends it
        if self._unvalidated is not None:
            self._validate_pending(self._unvalidated, self._accepts or never)
        return rows

    def _validate_pending(self, unvalidated: Buffer, accepts: Callable[[bytes], bool]) -> None:
        """Have the models judge what is not judged yet, once for each range that they refuse."""
        data = unvalidated.tobytes()
        unvalidated.clear()
        at = 0
        while at < len(data):
            number, size = REQUEST_HEADER.unpack_from(data, at)
            at += REQUEST_HEADER.size
            if number not in self._refused and not accepts(data[at : at + size]):
                self._refused.add(number)
            at += size


def never(_content: bytes) -> bool:
    """Accept nothing."""
    return False


def bounds_data(entity: Entity, bounds: Sequence[Key]) -> bytes:
    """Return the bounds of ranges as the library reads them."""
    writer = Writer()
    numbers = [part.type.is_number for part in entity.key_parts]
    writer.number(len(numbers))
    for is_number in numbers:
        writer.number(is_number)
    writer.many(list(bounds), partial(write_key, writer))
    return writer.tobytes()


def write_key(writer: Writer, key: Key) -> None:
    """Write a key as the library reads it."""
    for part in key:
        if isinstance(part, int):
            writer.number(part)
        else:
            writer.text(part)


def read_digests(data: bytes) -> RangeDigests:
    """Return digests as the library writes them."""
    rows, unplaced, ranges = struct.unpack_from("<3q", data)
    at = 3 * COUNT.size
    unproven = {number for number, flag in enumerate(data[at : at + ranges]) if flag}
    labels, at = read_labels(data, at + ranges)
    cells = dict(read_cells(data[at + COUNT.size :], labels))
    return RangeDigests(cells=cells, unproven=unproven, unplaced=unplaced, rows=rows)


def read_labels(data: bytes, at: int) -> tuple[list[str], int]:
    """Return the owners stored at some place, and where they end."""
    (count,) = COUNT.unpack_from(data, at)
    at += COUNT.size
    labels: list[str] = []
    for _ in range(count):
        (size,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        labels.append(data[at : at + size].decode())
        at += size
    return labels, at


def read_cells(data: bytes, labels: list[str]) -> Iterator[tuple[tuple[int, str], Cell]]:
    """Yield the cells."""
    for number, owner, count, expired, largest, ignored, *halves in CELL.iter_unpack(data):
        xor, added, keyed = (high << HALF | low for low, high in zip(halves[::2], halves[1::2], strict=True))
        cell = Cell(count, expired, xor, added, largest, keyed=keyed, ignored=ignored)
        yield (number, FOLDED if owner < 0 else labels[owner]), cell


def render_document(found: ctypes.CDLL, form: Handle, raw: bytes) -> bytes | None:
    """Return the content of one document, ``None`` where it is declined."""
    return render(found, found.ts_show_document, form, raw)


def render_line(found: ctypes.CDLL, form: Handle, raw: bytes) -> bytes | None:
    """Return the content of one line of a COPY without its end, ``None`` where it is declined."""
    return render(found, found.ts_show_line, form, raw)


def render(
    found: ctypes.CDLL, show: Callable[[int | None, bytes, int, int | None], int], form: Handle, raw: bytes
) -> bytes | None:
    """Return what a function shows of one row."""
    content = Buffer(found)
    return content.tobytes() if checked(show(form.address, raw, len(raw), content.handle)) else None


def sha256(found: ctypes.CDLL, content: bytes, *, portable: bool) -> bytes:
    """Return a digest of the library, by the instructions of the processor or without them."""
    digest = ctypes.create_string_buffer(DIGEST_BYTES)
    declared(found, FUNCTIONS).ts_sha256(content, len(content), digest, portable)
    return digest.raw


# The conditions of retention as native code reads them: texts, of which a field has one.


def write_removal(writer: Writer, retention: Retention | None, number_of: Callable[[str], int]) -> None:
    """Write which rows retention removes of those whose instant has passed.

    Whether all conditions are understood, how many there are, how many texts they have together, and for each
    the number of its field and its texts.
    """
    where = () if retention is None else retention.where
    texts = [texts_of(condition) for condition in where]
    known = [(number_of(item.field), found) for item, found in zip(where, texts, strict=True) if found]
    writer.number(all(texts))
    writer.number(len(known))
    writer.number(sum(len(found) for _, found in known))
    for number, found in known:
        writer.number(number)
        writer.number(len(found))
        for text in found:
            writer.text(text)


def texts_of(condition: Condition) -> tuple[str, ...]:
    """Return the texts of which a field must have one, none where the condition is of another kind."""
    match condition:
        case Equals(_, str(text)):
            return (str(text),)
        case OneOf(_, texts):
            return tuple(map(str, texts))
        case _:
            return ()
