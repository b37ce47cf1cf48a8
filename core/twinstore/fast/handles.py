"""Reader programs as the native library holds them: made once for each program, and kept as long as it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from twinstore.fast.native import declared

if TYPE_CHECKING:
    from twinstore.fast.program import Program

__all__ = ["Handle", "program_handle"]

Address = ctypes.c_void_p
Size = ctypes.c_size_t
FUNCTIONS: Final = {
    "ts_program_new": (Address, ctypes.c_char_p, Size),
    "ts_program_free": (None, Address),
}


class Handle:
    """Something that the library made, and that it forgets with this object."""

    __slots__ = ("_free", "_library", "address")

    def __init__(self, found: ctypes.CDLL, address: int | None, free: str) -> None:
        """Take the library, what it made, and the function that forgets it.

        Raises:
            ValueError: the library made nothing of what it was given.
        """
        self._library, self._free = found, free
        self.address = address
        if not address:
            raise ValueError(f"{free.removesuffix('_free')} takes no such description; rebuild the library")

    def __del__(self) -> None:
        """Forget it."""
        address, self.address = getattr(self, "address", None), None
        if address:
            getattr(self._library, self._free)(address)


# By identity, which costs less than comparing programs; each is kept here, so no number comes again.
_handles: Final[dict[int, tuple[Program, Handle]]] = {}


def program_handle(found: ctypes.CDLL, program: Program) -> Handle:
    """Return a program as the library holds it."""
    known = _handles.get(id(program))
    if known is None:
        native = declared(found, FUNCTIONS)
        made = Handle(native, native.ts_program_new(program.data, len(program.data)), "ts_program_free")
        known = _handles.setdefault(id(program), (program, made))
    return known[1]
