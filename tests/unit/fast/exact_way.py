"""What the product makes of a document, and whether a packed row is the same."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tests.unit.fast.programs import as_written
from twinstore.fast.nodes import NodeKind
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.bulk.port import Record
    from twinstore.fast.program import Program

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TEXT, INTEGER, FLAG, INSTANT, JSON, ENUM, NUMBER = range(1, 8)
LENGTH: Final = struct.Struct("<I")
INT64: Final = struct.Struct("<q")
FLOAT64: Final = struct.Struct("<d")
Value = tuple[int, bytes | int | float | None]


def values_of(row: bytes, slots: int) -> list[Value]:
    """Return tag and value of each slot of a packed row.

    Raises:
        ValueError: the row is not as long as it says, or has other tags than there are.
    """
    found: list[Value] = []
    at = 4
    for _ in range(slots):
        tag = row[at]
        at += 1
        if tag in {TEXT, JSON}:
            size = LENGTH.unpack_from(row, at)[0]
            found.append((tag, row[at + 4 : at + 4 + size]))
            at += 4 + size
        elif tag in {FLAG, ENUM}:
            found.append((tag, row[at]))
            at += 1
        elif tag in {INTEGER, INSTANT, NUMBER}:
            form = FLOAT64 if tag == NUMBER else INT64
            found.append((tag, form.unpack_from(row, at)[0]))
            at += 8
        elif tag:
            raise ValueError(f"tag {tag}")
        else:
            found.append((0, None))
    if at != len(row) or LENGTH.unpack_from(row)[0] != at:
        raise ValueError(f"{len(row)} bytes, of which {at} were read")
    return found


class Oracle:
    """Judges packed rows of one program by what the exact way makes of the same documents."""

    def __init__(self, program: Program) -> None:
        """Take the true program of an entity."""
        self._program = program
        self._exporter = Exporter(codec_of(program.entity))
        root = program.nodes[program.root]
        self._names = [b'"%b":' % field.name.encode() for field in root.fields]

    def record(self, raw: bytes) -> Record:
        """Return the record of a document."""
        return self._exporter.careful_record(raw)

    def wrong(self, raw: bytes, row: bytes) -> str:
        """Return what is wrong with a packed row of a document; nothing is for an empty answer."""
        record = self.record(raw)
        if record.model is None or record.error is not None:
            return f"the product refuses it: {record.error}"
        if record.text_timestamp:
            return "an instant is stored as text"
        try:
            values = values_of(row, len(self._program.slots))
            made = self._json(values)
        except (ValueError, IndexError, struct.error) as error:
            return f"the row cannot be read: {error}"
        program = self._program
        root = program.nodes[program.root]
        canonical = CanonicalJsonSerializer.serialize(record.model)
        # The slots are in canonical order, and only what is inside of them is not.
        expected = as_written(canonical, root, program.nodes, outside=False)
        if made != expected:
            pairs = enumerate(zip(made, expected, strict=False))
            at = next((at for at, (one, other) in pairs if one != other), min(len(made), len(expected)))
            begin = max(0, at - 40)
            return f"it is ...{made[begin : at + 40]!r} instead of ...{expected[begin : at + 40]!r}"
        return self._wrong_beside(record, values)

    def _wrong_beside(self, record: Record, values: Sequence[Value]) -> str:
        program = self._program
        storage = {
            marker.name: self._marker(value)
            for marker, value in zip(program.markers, values[len(self._names) :], strict=True)
            if value[0]
        }
        if storage != dict(record.storage):
            return f"its markers are {storage} instead of {dict(record.storage)}"
        key = tuple(self._plain(values[slot]) for slot in program.key)
        if key != record.key:
            return f"its key is {key} instead of {record.key}"
        return ""

    @staticmethod
    def _plain(value: Value) -> object:
        content = value[1]
        return content.decode() if isinstance(content, bytes) else content

    def _marker(self, value: Value) -> object:
        tag, content = value
        if tag == INSTANT and isinstance(content, int):
            return EPOCH + timedelta(milliseconds=content)
        return self._plain(value)

    def _json(self, values: Sequence[Value]) -> bytes:
        """Return the JSON of the model, put together from the slots."""
        slots = self._program.slots
        parts = [
            name + self._part(slot.kind, slot.node, value)
            for name, slot, value in zip(self._names, slots, values, strict=False)
            if value[0]
        ]
        return b"{" + b",".join(parts) + b"}"

    def _part(self, kind: NodeKind, node: int, value: Value) -> bytes:
        tag, content = value
        if tag != TAGS[kind]:
            raise ValueError(f"a {kind.name} has the tag {tag}")
        if tag == JSON and isinstance(content, bytes):
            return content
        if tag == TEXT and isinstance(content, bytes):
            return json_text.dumps(content.decode())
        if tag == ENUM and isinstance(content, int):
            return json_text.dumps(self._program.nodes[node].texts[content].text)
        if tag == FLAG:
            return {0: b"false", 1: b"true"}[int(content or 0)]
        if tag == INSTANT and isinstance(content, int):
            return b'"%b"' % json_text.format_timestamp(EPOCH + timedelta(milliseconds=content)).encode()
        if isinstance(content, (int, float)):
            return json_text.dumps(json_text.encodable(json_text.checked_number(content)))
        raise ValueError(f"a {kind.name} holds {content!r}")


TAGS: Final = {
    NodeKind.TEXT: TEXT,
    NodeKind.CONST: TEXT,
    NodeKind.INT: INTEGER,
    NodeKind.FLAG: FLAG,
    NodeKind.INSTANT: INSTANT,
    NodeKind.ENUM: ENUM,
    NodeKind.NUMBER: NUMBER,
    NodeKind.OBJECT_ID: TEXT,
    NodeKind.UUID: TEXT,
    NodeKind.DECIMAL: TEXT,
    NodeKind.BYTES: TEXT,
    NodeKind.OBJECT: JSON,
    NodeKind.LIST: JSON,
    NodeKind.MAP: JSON,
    NodeKind.JSON: JSON,
}
