"""A document whose decoded values do not tell what is stored: the same values, with marks where they do not.

Of a name that stands twice the client keeps one value, and some old types it replaces. A comparison that
shows such a document has to say where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidDocument

from twinstore.stored import marked
from twinstore_mongo.raw import elements

if TYPE_CHECKING:
    from twinstore_mongo.connection import Document

__all__ = ["exact_document", "given_back"]

STORED: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
OBJECT: Final = 0x03
ARRAY: Final = 0x04
NESTED: Final = frozenset({OBJECT, ARRAY})
# So often a value is decoded once more; deeper down each is walked, or the time would grow with the depth.
SHORT: Final = 4
# Undefined, a pointer into another collection, and a symbol, which the client gives as something else.
REPLACED: Final = frozenset({0x06, 0x0C, 0x0E})


def given_back(raw: bytes) -> Document | None:
    """Return a document whose values give it back byte by byte, ``None`` where none do.

    The client alone takes a map with ``$ref`` behind another name for a reference, and forgets the order.
    """
    found = exact_document(raw)
    try:
        return found if bson.encode(found) == raw else None
    except InvalidDocument:  # no name may hold what marks begin with
        return None


def exact_document(raw: bytes, depth: int = 0) -> Document:
    """Return a document that the client can decode, with marks where the decoded values are not exact.

    Args:
        raw: the document.
        depth: how many documents lie around it.
    """
    found: Document = {}
    repeated: dict[str, list[object]] = {}
    for kind, name, value in members(raw):
        if name in found:
            repeated.setdefault(name, [found[name]]).append(value_of(kind, value, depth))
        else:
            found[name] = value_of(kind, value, depth)
    return found | {name: marked("repeated", values) for name, values in repeated.items()}


def value_of(kind: int, value: bytes, depth: int) -> object:
    """Return one value."""
    if kind in REPLACED:
        return marked("bson", {"type": kind, "value": value.hex()})
    if kind not in NESTED or depth < SHORT:
        element = bytes([kind]) + b"v\x00" + value
        document = (len(element) + 5).to_bytes(4, "little") + element + b"\x00"
        decoded = bson.decode(document, STORED)
        # Most of it is as the client gives it, which is a hundred times faster.
        if kind not in NESTED or bson.encode(decoded) == document:
            return decoded["v"]
    if kind == OBJECT:
        return exact_document(value, depth + 1)
    items = members(value)
    values = [value_of(inner, item, depth + 1) for inner, _, item in items]
    regular = [name for _, name, _ in items] == [str(number) for number in range(len(items))]
    return values if regular else marked("array", values)


def members(raw: bytes) -> list[tuple[int, str, bytes]]:
    """Return type, name and bytes of each value of a document."""
    # The client does not look at the names in a list, which may be any bytes.
    return [
        (kind, name.decode(errors="backslashreplace"), raw[start:end])
        for kind, name, start, end in elements(raw)
    ]
