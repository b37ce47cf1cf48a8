"""Documents as packed rows: how a collection holds them, and what native code makes of raw documents."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from twinstore.fast.encoding import Writer
from twinstore.fast.handles import Handle, program_handle
from twinstore.fast.native import BROKEN, Buffer, checked, declared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.fast.program import Program

__all__ = ["Identity", "NativeDocuments", "ReadDocuments", "StoredSlot"]

Address = ctypes.c_void_p
Size = ctypes.c_size_t
FUNCTIONS: Final = {
    "ts_documents_new": (Address, Address, ctypes.c_char_p, Size),
    "ts_documents_free": (None, Address),
    "ts_read_documents": (ctypes.c_int64, Address, ctypes.c_char_p, Size, Address, Address, Address),
    "ts_accepts_document": (ctypes.c_int, Address, ctypes.c_char_p, Size, Address),
}


class Identity(IntEnum):
    """What stands as ``_id``."""

    SLOT = 0
    JOINED = 1
    """The parts of the key, joined to a text."""
    GENERATED = 2
    """An ``ObjectId``."""


@dataclass(frozen=True, slots=True)
class StoredSlot:
    """How documents hold a slot.

    Attributes:
        name: its name there, empty for the one that stands as ``_id``.
        is_long: whether integers always have 64 bits.
    """

    name: str
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class ReadDocuments:
    """What became of raw documents.

    Attributes:
        rows: the packed rows.
        places: three numbers of 32 bits for each, see :class:`~twinstore.fast.packed.Stored`.
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
        self._library = declared(library, FUNCTIONS)
        # It must not end before these documents do.
        self._program = program_handle(library, program)
        layout = layout_of(identity, slots, versioned=versioned, skipped=skipped, ignored=ignored)
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
        """Whether a document would be packed."""
        scratch = Buffer(self._library)
        answer = self._library.ts_accepts_document(
            self.handle.address, document, len(document), scratch.handle
        )
        return checked(answer) == 1


def layout_of(
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
