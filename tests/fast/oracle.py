"""What the exact way makes of a stored document, packed as native code should have packed it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from twinstore.canonical import CanonicalModel
from twinstore.fast.nodes import NodeKind
from twinstore.jsontext import dumps, encodable
from twinstore.normalform import marker_not_normal
from twinstore_mongo.bulk_export import Exporter
from twinstore_mongo.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.bulk import Record
    from twinstore.fast.program import Program, Slot

__all__ = ["Oracle", "packed_row"]

PackedRow = list[tuple[int, Any]]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
TAGS: Final = {NodeKind.INT: 2, NodeKind.FLAG: 3, NodeKind.NUMBER: 7}
NESTED: Final = frozenset({NodeKind.OBJECT, NodeKind.LIST, NodeKind.MAP, NodeKind.JSON})


class Oracle:
    """The exact way of one entity."""

    def __init__(self, program: Program) -> None:
        """Take the program of the entity."""
        self.program = program
        self.entity = program.entity
        self._exporter = Exporter(codec_of(program.entity))

    def packed(self, raw: bytes) -> PackedRow | None:
        """Return the packed row of a document, ``None`` where a copy would put it aside."""
        record = self.record(raw)
        if record is None or record.model is None:
            return None
        if record.text_timestamp or marker_not_normal(self.entity, record.storage, record.model) is not None:
            return None
        return packed_row(self.program, record.model, record.storage)

    def record(self, raw: bytes) -> Record | None:
        """Return the record of a document, ``None`` for bytes that are none."""
        try:
            (record,) = self._exporter.records(raw)
        except (ValueError, IndexError, TypeError, OverflowError):
            # Bytes that no server stores: what walks over them does not check each length.
            return None
        return record


def packed_row(program: Program, model: CanonicalModel, storage: Mapping[str, object]) -> PackedRow:
    """Return the packed row of a model and its storage markers."""
    wire = model.wire()
    return [
        packed_value(program, slot, storage.get(slot.name) if slot.is_marker else wire.get(slot.name))
        for slot in program.slots
    ]


def packed_value(program: Program, slot: Slot, value: Any) -> tuple[int, Any]:  # noqa: ANN401  # any value
    """Return the tag and the value of one slot."""
    if value is None:
        return 0, b""
    if slot.kind in NESTED:
        return 5, dumps(encodable(value))
    if slot.kind is NodeKind.ENUM:
        return 6, [item.text for item in program.nodes[slot.node].texts].index(value)
    if slot.kind is NodeKind.INSTANT:
        return 4, (value - EPOCH) // MILLISECOND
    tag = TAGS.get(slot.kind)
    return (1, str(value).encode()) if tag is None else (tag, value)
