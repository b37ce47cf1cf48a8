"""BSON as a tree of elements that can be changed in ways that no encoder would."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

DOUBLE: Final = 1
TEXT: Final = 2
DOCUMENT: Final = 3
ARRAY: Final = 4
BINARY: Final = 5
SIZES: Final = {1: 8, 6: 0, 7: 12, 8: 1, 9: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16}
# Bytes in front of a value that its length does not count.
HEADS: Final = {TEXT: 4, DOCUMENT: 0, ARRAY: 0, BINARY: 5}
INT32: Final = struct.Struct("<i")


@dataclass(slots=True)
class Element:
    """One element: its type, its name and the bytes of its value; of a nested one its content.

    ``weight`` is the number of its elements, including all nested ones.
    """

    kind: int
    name: bytes
    value: bytes
    inner: Tree | None = None
    weight: int = 1

    @property
    def raw(self) -> bytes:
        """Its bytes."""
        return b"%c%b\0%b" % (self.kind, self.name, self.value)


Tree = list[Element]


def parsed(raw: bytes) -> Tree:
    """Return the elements of a document of types that a generator makes.

    Raises:
        ValueError: it is malformed, or holds another type.
    """
    found: Tree = []
    at = 4
    while raw[at]:
        kind = raw[at]
        end = raw.index(0, at + 1)
        start = end + 1
        size = SIZES.get(kind)
        if size is None:
            if kind not in HEADS:
                raise ValueError(f"type {kind}")
            size = INT32.unpack_from(raw, start)[0] + HEADS[kind]
        if size < 0 or start + size >= len(raw):
            raise ValueError("an element is longer than its document")
        value = raw[start : start + size]
        inner = parsed(value) if kind in {DOCUMENT, ARRAY} else None
        weight = 1 + sum(element.weight for element in inner or ())
        found.append(Element(kind, raw[at + 1 : end], value, inner, weight))
        at = start + size
    return found


def encoded(parts: list[bytes]) -> bytes:
    """Return the document of some encoded elements."""
    body = b"".join(parts)
    return INT32.pack(len(body) + 5) + body + b"\0"
