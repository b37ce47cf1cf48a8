"""The top level of a document as it is stored, where the client would replace or drop something.

If a name occurs twice, the client keeps the last value, and the server finds the document by the first.
The client does not decode invalid UTF-8 at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from bson import InvalidBSON, decode

# Bytes of the values of fixed size, by the type of the element.
FIXED: Final = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16}
FIXED_ENDS: Final = {0x7F: 0, 0xFF: 0}
LENGTH_BYTES: Final = 4
# Of a raw batch, that are decoded at a time: a small value takes twelve times its bytes as an object.
PART_BYTES: Final = 250_000
TEXT: Final = 0x02
INTEGERS: Final = frozenset({0x10, 0x12})
ABSENT: Final = frozenset({0x06, 0x0A})
TEXTS: Final = frozenset({TEXT, 0x0D, 0x0E})
DOCUMENTS: Final = frozenset({0x03, 0x04, 0x0F})
BINARY: Final = 0x05
PATTERN: Final = 0x0B
POINTER: Final = 0x0C
IDENTITY_BYTES: Final = 12
# More than names have.
NAME_BYTES: Final = 64


def raw_batches(cursor: Iterable[Any]) -> Iterator[bytes]:
    """Yield what a raw cursor gives; the client declares documents there."""
    yield from cursor


def documents_of(batch: bytes) -> Iterator[bytes]:
    """Yield the documents of a raw batch; each starts with its length."""
    position = 0
    while position < len(batch):
        length = int.from_bytes(batch[position : position + LENGTH_BYTES], "little")
        yield batch[position : position + length]
        position += length


def parts_of(batch: bytes, size: int = PART_BYTES) -> Iterator[bytes]:
    """Yield a raw batch in parts of about that many bytes, so that few large documents are open at once."""
    if len(batch) <= size:
        yield from [batch] if batch else []
        return
    start = end = 0
    while end < len(batch):
        end += int.from_bytes(batch[end : end + LENGTH_BYTES], "little")
        following = int.from_bytes(batch[end : end + LENGTH_BYTES], "little")
        if end == len(batch):
            # Forgotten before it is given: a large document alone is the whole batch.
            last = [batch[start:end]]
            del batch
            yield last.pop()
            return
        if end - start + following > size:
            yield batch[start:end]
            start = end


def first_of(raw: bytes, name: str) -> str | int | bytes | None:
    """Return the first value of a name as a key or a tenant has it.

    That is text in UTF-8 or an integer. ``None`` where the name is absent, or null; the bytes of the value
    where it is anything else.
    """
    wanted = name.encode()
    for kind, found, start, end in elements(raw):
        if found != wanted:
            continue
        if kind in INTEGERS:
            return int.from_bytes(raw[start:end], "little", signed=True)
        if kind in ABSENT:
            return None
        text = text_of(raw[start + LENGTH_BYTES : end - 1]) if kind == TEXT else None
        return raw[start:end] if text is None else text
    return None


def first_element(raw: bytes, name: str) -> tuple[int, bytes] | None:
    """Return type and bytes of the first value of a name, ``None`` where the name is absent."""
    wanted = name.encode()
    found = ((kind, raw[start:end]) for kind, own, start, end in elements(raw) if own == wanted)
    return next(found, None)


def value_in(raw: bytes, name: str) -> object:
    """Return the first value of a name as the client has it, ``None`` where it has none."""
    try:
        return decode(framed(element_of(raw, name))).get(name)
    except (InvalidBSON, StopIteration):
        return None


def framed(elements: bytes) -> bytes:
    """Return the document of some elements."""
    return (len(elements) + LENGTH_BYTES + 1).to_bytes(LENGTH_BYTES, "little") + elements + b"\x00"


def element_of(raw: bytes, name: str) -> bytes:
    """Return the first element of a name as a document that has it stores it: type, name and value."""
    wanted = name.encode()
    start, end = next((start, end) for _, found, start, end in elements(raw) if found == wanted)
    return raw[start - len(wanted) - 2 : end]


def elements(raw: bytes | memoryview) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield type, name, start and end of each element; ends early where a type is not known."""
    position = 4
    while position < len(raw) - 1:
        kind, name_end = raw[position], end_of_name(raw, position + 1)
        start = name_end + 1
        size = size_of(raw, kind, start)
        if size is None:
            return
        yield kind, bytes(raw[position + 1 : name_end]), start, start + size
        position = start + size


def end_of_name(raw: bytes | memoryview, start: int) -> int:
    """Return where a name ends; an answer of many megabytes is not copied for that."""
    if isinstance(raw, bytes):
        return raw.index(b"\x00", start)
    while (end := bytes(raw[start : start + NAME_BYTES]).find(b"\x00")) < 0:
        start += NAME_BYTES
        if start >= len(raw):
            raise ValueError("a name does not end")
    return start + end


def size_of(raw: bytes | memoryview, kind: int, start: int) -> int | None:
    """Return the bytes of a value, ``None`` for a type that is not known."""
    fixed = FIXED.get(kind, FIXED_ENDS.get(kind))
    if fixed is not None:
        return fixed
    if kind == PATTERN:
        options = end_of_name(raw, start) + 1
        return end_of_name(raw, options) + 1 - start
    length = int.from_bytes(raw[start : start + 4], "little")
    if kind in DOCUMENTS:
        return length
    beside = {BINARY: 1, POINTER: IDENTITY_BYTES}.get(kind, 0 if kind in TEXTS else None)
    return None if beside is None else 4 + length + beside


def text_of(value: bytes) -> str | None:
    """Return a text, ``None`` where it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH: Final = EPOCH.replace(tzinfo=None)
