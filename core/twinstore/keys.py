"""What identifies a row: values of typed parts, in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Key", "KeyPart", "KeyType", "int64", "text", "uuid"]

Key = tuple[str | int, ...]
"""The values of a key; a UUID is its lower-case text."""


class KeyType(Enum):
    """The type of one part of a key; it decides how the part is compared."""

    TEXT = "text"
    INT64 = "int64"
    UUID = "uuid"

    @property
    def is_number(self) -> bool:
        """Whether values are compared as numbers; the others are compared as text."""
        return self is KeyType.INT64

    def admits(self, value: object) -> bool:
        """Whether a stored value can be this part of a key."""
        return type(value) is (int if self is KeyType.INT64 else str)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One part of a key: a wire name or storage marker, and its type."""

    field: str
    type: KeyType = KeyType.TEXT


def text(name: str) -> KeyPart:
    """Return a part of a key that is text, compared by code point."""
    return KeyPart(name)


def int64(name: str) -> KeyPart:
    """Return a part of a key that is a signed integer of 64 bits."""
    return KeyPart(name, KeyType.INT64)


def uuid(name: str) -> KeyPart:
    """Return a part of a key that is the lower-case text of a UUID."""
    return KeyPart(name, KeyType.UUID)
