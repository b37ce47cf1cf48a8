"""Packed rows from rows of a binary COPY, and documents from packed rows."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.fast.handles import program_handle
from twinstore.fast.native import BROKEN, Buffer, checked, declared
from twinstore.fast.packed import counted
from twinstore.fast.reading import ReadDocuments

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from twinstore.fast.copying import NativeColumns
    from twinstore.fast.program import Program
    from twinstore.fast.reading import NativeDocuments

__all__ = ["WrittenDocuments", "highest", "read_copy", "write_documents"]

Address = ctypes.c_void_p
Size = ctypes.c_size_t
FUNCTIONS: Final = {
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
PLACE: Final = 3


def read_copy(columns: NativeColumns, data: bytes) -> ReadDocuments | None:
    """Return the packed rows of a binary COPY without its header and trailer, ``None`` for other bytes."""
    found = declared(columns.library, FUNCTIONS)
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
        """Return the number of documents."""
        return len(self.places) // PLACE

    def end(self, number: int) -> int:
        """Return where a document ends; before the first one that is the beginning."""
        found: int = self.places[PLACE * number] if number >= 0 else 0
        return found

    def document(self, number: int) -> bytes:
        """Return one document."""
        return self.raw[self.end(number - 1) : self.end(number)]

    def counts(self, start: int, stop: int) -> Counter[str]:
        """Return how many rows each owner has among documents whose rows lie one behind the other."""
        first: int = self.places[PLACE * start + 1]
        end: int = self.places[PLACE * (stop - 1) + 2]
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
    found = declared(rows.library, FUNCTIONS)
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
    found = declared(rows.library, FUNCTIONS)
    number = ctypes.c_int64()
    handle = program_handle(found, program)
    checked(found.ts_highest(handle.address, rows.address, len(rows), slot, ctypes.byref(number)))
    return number.value
