"""What a store holds of a row byte by byte, as a quarantine keeps it.

A row may be as large as a store admits, so neither base64 nor readable form is ever made in one piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LONGEST_READABLE", "Original", "base64_pieces"]

LONGEST_READABLE: Final = 65_536
"""Characters of the readable form of a row, at most."""
# A multiple of three, so that the texts of the pieces make up one base64 text.
PIECE_BYTES: Final = 600_000


class Original(ABC):
    """The stored form of one row; it costs nothing until somebody asks for it."""

    __slots__ = ()

    @abstractmethod
    def pieces(self) -> Iterator[str]:
        """Yield one JSON object in pieces of at most a megabyte: the bytes in base64, and a readable form.

        The readable form has at most :data:`LONGEST_READABLE` characters and leaves out what is longer.
        """

    def __str__(self) -> str:
        """Return the whole object."""
        return "".join(self.pieces())


def base64_pieces(content: bytes) -> Iterator[str]:
    """Yield the base64 of some bytes in pieces."""
    for start in range(0, len(content), PIECE_BYTES):
        yield b64encode(content[start : start + PIECE_BYTES]).decode()
