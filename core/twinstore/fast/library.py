"""The native library: found or not, and why not; and the memory that it hands over."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.fast.sources import is_cut_short, machine_of, source_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SWITCH: Final = "TWINSTORE_FAST_PATH"
LIBRARY: Final = Path(__file__).with_name("libtwinstore.so.1")
REASON: Final = LIBRARY.with_name("libtwinstore.txt")
SOURCES: Final = Path(__file__).parents[2] / "native"
Address = ctypes.c_void_p
Size = ctypes.c_size_t
# Why there are no digests.
NO_LIBRARY: Final = "the native library is off"
# Answers that are no numbers of rows.
BROKEN: Final = -1
NO_MEMORY: Final = -2
# The result of each function, then its arguments.
FUNCTIONS: Final[Mapping[str, Sequence[object]]] = {
    "ts_buffer_new": (Address,),
    "ts_buffer_free": (None, Address),
    "ts_buffer_bytes": (Address, Address),
    "ts_buffer_size": (Size, Address),
    "ts_buffer_failed": (ctypes.c_int, Address),
    "ts_buffer_clear": (None, Address),
}


@dataclass(frozen=True, slots=True)
class FastPath:
    """Whether the native library is used, and if not, why."""

    library: ctypes.CDLL | None
    reason: str = ""

    @property
    def is_on(self) -> bool:
        """Whether it is used."""
        return self.library is not None

    def __str__(self) -> str:
        return "native" if self.is_on else f"off ({self.reason})"


def fast_path() -> FastPath:
    """Return whether the native library is used; the switch in the environment is read each time."""
    setting = os.environ.get(SWITCH, "")
    match setting.strip().casefold():
        case "" | "on":
            return _loaded()
        case "off":
            return FastPath(None, f"{SWITCH}=off")
        case _:
            # Not an error: this is read by every process, and off is the way that always works.
            return FastPath(None, f"{SWITCH}={setting!r} is not on or off")


def library() -> ctypes.CDLL | None:
    """Return the native library, ``None`` where it is off."""
    return fast_path().library


@cache
def _loaded() -> FastPath:
    if not LIBRARY.exists():
        return FastPath(None, _why_missing())
    try:
        if is_cut_short(LIBRARY):
            return FastPath(None, f"the library is cut short; {_how_to_repair()}")
        found = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return FastPath(None, _why_not_loaded(error))
    try:
        return FastPath(declared(found, FUNCTIONS)) if _is_current(found) else _of_another_version()
    except AttributeError:
        return _of_another_version()


def _of_another_version() -> FastPath:
    return FastPath(None, f"the library is of another version; {_how_to_repair()}")


def _why_not_loaded(error: OSError) -> str:
    with suppress(OSError):
        # Of such a one the loader of some systems says that there is no file.
        own, other = machine_of(Path(sys.executable)), machine_of(LIBRARY)
        if own is not None and other is not None and own != other:
            return f"the library is for another kind of processor; {_how_to_repair()}"
    return f"the library cannot be loaded: {error}"


def _why_missing() -> str:
    if not LIBRARY.parent.is_dir():
        return f"no library can be loaded from an archive, as {LIBRARY.parents[2]} is"
    try:
        # The build writes it where it found no compiler, or one that failed.
        return REASON.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return (
            "the library is not compiled; run: make setup" if _is_checkout() else "built without a C compiler"
        )


def _how_to_repair() -> str:
    return "run: make setup" if _is_checkout() else "install twinstore again"


def _is_checkout() -> bool:
    return (SOURCES / "buffer.h").is_file()


def _is_current(found: ctypes.CDLL) -> bool:
    """Return whether the library was built from the C files of this checkout; a wheel has no C files."""
    if not _is_checkout():
        return True
    declared(found, {"ts_version": (ctypes.c_char_p,)})
    return bool(found.ts_version() == source_version(SOURCES).encode())


def declared(found: ctypes.CDLL, functions: Mapping[str, Sequence[object]]) -> ctypes.CDLL:
    """Return the library with what some of its functions return and take; without that numbers are cut."""
    for name, (result, *arguments) in functions.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def checked(answer: int) -> int:
    """Return the answer of a function of the library that needs memory.

    Raises:
        MemoryError: there was none.
    """
    if answer == NO_MEMORY:
        raise MemoryError
    return answer


class Buffer:
    """Bytes that the library writes; they live as long as this object and are not copied to look at them."""

    __slots__ = ("handle", "library")

    def __init__(self, found: ctypes.CDLL) -> None:
        self.library = found
        self.handle: int | None = found.ts_buffer_new()
        if not self.handle:
            raise MemoryError

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle:
            self.library.ts_buffer_free(handle)

    def __len__(self) -> int:
        return int(self.library.ts_buffer_size(self.handle))

    @property
    def address(self) -> int | None:
        """Where the bytes are, until something is added."""
        found: int | None = self.library.ts_buffer_bytes(self.handle)
        return found

    def clear(self) -> None:
        """Forget the bytes, and keep the memory for the next."""
        self.library.ts_buffer_clear(self.handle)

    def tobytes(self) -> bytes:
        """Return a copy."""
        size = len(self)
        return ctypes.string_at(self.address or 0, size) if size else b""
