"""What identifies a row: values of typed parts, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = [
    "LONGEST_TEXT",
    "Key",
    "KeyPart",
    "KeyRange",
    "KeyType",
    "binary_uuid",
    "can_bound",
    "digits",
    "int64",
    "object_id",
    "text",
    "uuid",
]


# No id of a model is as long, and an index of a table takes no longer text. What is longer is data, and must
# not be repeated wherever a row is named.
LONGEST_TEXT: Final = 4096

Key = tuple[str | int, ...]
"""The values of a key; a UUID is its lower-case text, or its 32 lower-case digits alone.

An ObjectId is its 24 lower-case digits.
"""
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
HEX: Final = re.compile(r"[0-9a-f]{32}")
OBJECT_ID: Final = re.compile(r"[0-9a-f]{24}")
UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class KeyType(Enum):
    """The type of one part of a key; it decides how the part is compared."""

    TEXT = "text"
    INT64 = "int64"
    UUID = "uuid"
    HEX = "hex"
    OBJECT_ID = "ObjectId"
    BINARY_UUID = "binary UUID"

    @property
    def is_number(self) -> bool:
        """Whether values are compared as numbers; the others are compared as text."""
        return self is KeyType.INT64

    def admits(self, value: object) -> bool:
        """Whether a stored value can be this part of a key; text of more than 4,096 characters cannot."""
        if self is KeyType.INT64:
            return type(value) is int and INT64_MIN <= value <= INT64_MAX
        if (form := FORMS.get(self)) is not None:
            return type(value) is str and form.fullmatch(value) is not None
        return type(value) is str and len(value) <= LONGEST_TEXT


# Of these, every value has one form.
FORMS: Final[Mapping[KeyType, re.Pattern[str]]] = {
    KeyType.HEX: HEX,
    KeyType.OBJECT_ID: OBJECT_ID,
    KeyType.BINARY_UUID: UUID,
}


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One part of a key: a wire name, storage marker or derived field, and its type."""

    field: str
    type: KeyType = KeyType.TEXT


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``lower`` (included) to ``upper`` (excluded); ``None`` is unbounded.

    An unbounded end also covers stored keys that are of another type, so that no row stays unseen.
    """

    lower: Key | None = None
    upper: Key | None = None


def can_bound(key: Key) -> bool:
    """Whether every store can compare with a key: its texts hold neither U+0000 nor a lone surrogate."""
    texts = (part for part in key if isinstance(part, str))
    return all("\x00" not in part and part.encode(errors="ignore").decode() == part for part in texts)


def spread(keys: Iterable[Key | None], count: int) -> Sequence[Key]:
    """Return some of these keys, each once and in order, at even distances; at most ``count``."""
    found = sorted({key for key in keys if key is not None})
    return [found[number * len(found) // count] for number in range(count)] if len(found) > count else found


def text(name: str) -> KeyPart:
    """Return a part of a key that is text, compared by code point."""
    return KeyPart(name)


def int64(name: str) -> KeyPart:
    """Return a part of a key that is a signed integer of 64 bits."""
    return KeyPart(name, KeyType.INT64)


def uuid(name: str) -> KeyPart:
    """Return a part of a key that is the lower-case text of a UUID."""
    return KeyPart(name, KeyType.UUID)


def object_id(name: str) -> KeyPart:
    """Return a part of a key that is an ``ObjectIdText``; documents hold an ObjectId."""
    return KeyPart(name, KeyType.OBJECT_ID)


def binary_uuid(name: str) -> KeyPart:
    """Return a part of a key that is a ``BinaryUuid``; documents hold binary data of subtype 4."""
    return KeyPart(name, KeyType.BINARY_UUID)


def digits(name: str) -> KeyPart:
    """Return a part of a key that is the 32 lower-case digits of a UUID, without anything between them."""
    return KeyPart(name, KeyType.HEX)
