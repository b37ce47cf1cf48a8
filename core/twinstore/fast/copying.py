"""Packed rows as rows of a binary COPY: the layout of a table for native code."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.fast.encoding import Writer
from twinstore.fast.handles import Handle, program_handle
from twinstore.fast.native import BROKEN, checked, declared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.fast.native import Buffer
    from twinstore.fast.program import Program

__all__ = ["NO_SLOT", "NULL", "ColumnKind", "ColumnLayout", "NativeColumns", "copy_field"]

Address = ctypes.c_void_p
Size = ctypes.c_size_t
FUNCTIONS: Final = {
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
        self.library: Final = declared(library, FUNCTIONS)
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
    writer.many([jsontext.dumps(name) + b":" for name in names], writer.text)
    return writer.tobytes()
