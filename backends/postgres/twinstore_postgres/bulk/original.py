"""A stored row for a quarantine: its text output, as the server writes it, made of what a binary COPY sent.

The text is a line of ``COPY ... TO STDOUT``: columns separated by tabs, what separates escaped. It
can be given back with ``COPY table (columns) FROM STDIN``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.originals import LONGEST_READABLE, Original, base64_pieces
from twinstore_postgres.bulk.outputs import (
    array_output,
    float_output,
    instant_output,
    quoted,
    uuid_output,
    whole_output,
)

if TYPE_CHECKING:
    from psycopg.abc import Buffer

    from twinstore_postgres.columns import Column

__all__ = ["RowOriginal"]

HEADER: Final = b"PGCOPY\n\xff\r\n\x00"
# The signature, four bytes of flags, and the length of an extension that does not exist.
HEADER_BYTES: Final = len(HEADER) + 8
NULL: Final = b"\\N"
ESCAPED: Final = (
    (b"\\", b"\\\\"),
    (b"\b", b"\\b"),
    (b"\t", b"\\t"),
    (b"\n", b"\\n"),
    (b"\v", b"\\v"),
    (b"\f", b"\\f"),
    (b"\r", b"\\r"),
)
# A value beyond it is left out of the readable form, so that the names and the small values find room.
LARGEST_SHOWN: Final = 4096
# Of a longer one: enough to recognise it.
SHOWN_BEGIN: Final = 64
DEEPEST_SHOWN: Final = 100


class RowOriginal(Original):
    """A row as a binary COPY sent it."""

    __slots__ = ("_columns", "_message")

    def __init__(self, columns: Sequence[Column], message: Buffer) -> None:
        """Take the columns that were selected and what the server sent of one row."""
        self._columns = columns
        self._message = message

    @override
    def pieces(self) -> Iterator[str]:
        """Yield ``{"row": base64 of the line, "columns": [...], "document": the text of each column}``."""
        texts = [
            None if value is None else OUTPUTS[column.sql_type](value)
            for column, value in zip(self._columns, values_of(self._message), strict=True)
        ]
        yield '{"row":"'
        yield from base64_pieces(line_of(texts))
        yield f'","columns":{json.dumps([column.name for column in self._columns])},"document":{{'
        yield ",".join(members(self._columns, texts))
        yield "}}"


def values_of(message: Buffer) -> Iterator[bytes | None]:
    """Yield the values of a row: the number of columns, then each length with its bytes, -1 for null."""
    data = bytes(message)
    position = HEADER_BYTES + 2 if data.startswith(HEADER) else 2
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], signed=True)
        position += 4
        yield None if length < 0 else data[position : position + length]
        position += max(length, 0)


def line_of(texts: Sequence[bytes | None]) -> bytes:
    """Return the line of a COPY in text form."""
    return b"\t".join(NULL if text is None else escaped(text) for text in texts) + b"\n"


def escaped(text: bytes) -> bytes:
    """Return a value as COPY writes it."""
    for plain, written in ESCAPED:
        text = text.replace(plain, written)
    return text


def members(columns: Sequence[Column], texts: Sequence[bytes | None]) -> Iterator[str]:
    """Yield the columns as members of a JSON object while there is room for them."""
    room = LONGEST_READABLE
    for column, text in zip(columns, texts, strict=True):
        told = f"{json.dumps(column.name)}:{shown(column, text)}"
        if len(told) > room:
            yield '"$omitted":true'
            return
        # The comma counts too.
        room -= len(told) + 1
        yield told


def shown(column: Column, text: bytes | None) -> str:
    """Return the text of a column as JSON; what is long is left out."""
    if text is None:
        return "null"
    if len(text) > LARGEST_SHOWN:
        begin = json.dumps(text[:SHOWN_BEGIN].decode(errors="backslashreplace"), ensure_ascii=False)
        return f'{{"$omitted":{len(text)},"begin":{begin}}}'
    # As it is, unless a reader could meet its limit of depth in it.
    if column.sql_type == "jsonb" and text.count(b"[") + text.count(b"{") <= DEEPEST_SHOWN:
        return text.decode()
    return json.dumps(text.decode(errors="backslashreplace"), ensure_ascii=False)


OUTPUTS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "bool": lambda value: b"t" if value == b"\x01" else b"f",
    "float8": float_output,
    "int2": whole_output,
    "int4": whole_output,
    "int8": whole_output,
    "int4[]": lambda value: array_output(value, whole_output),
    "int8[]": lambda value: array_output(value, whole_output),
    # The text follows the version of the binary form.
    "jsonb": lambda value: value[1:],
    "text": bytes,
    "text[]": lambda value: array_output(value, quoted),
    "timestamptz": instant_output,
    "uuid": uuid_output,
}
