"""Rows as tools read them: canonical bytes straight from the stored values, and records for a copy."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from twinstore import jsontext
from twinstore.bulk import Record, ScanRow
from twinstore.documents.rows import decode, instant
from twinstore.errors import DocumentDecodeError
from twinstore.mapnames import lossy_map, names_lost
from twinstore.stored import marked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.bulk import Key
    from twinstore.catalog import Entity
    from twinstore.documents.rows import DocumentRow
    from twinstore.shapes import FieldPath

__all__ = ["content", "extended_json", "has_text_timestamp", "key_of", "record_of", "scan_row"]


def record_of(row: DocumentRow, driver: str) -> Record:
    """Return a row for a copy: decoded, or with the reason why it cannot be."""
    record = Record(
        key=key_of(row),
        owner=row.owner,
        model=None,
        storage=row.markers,
        text_timestamp=has_text_timestamp(row),
    )
    try:
        model = decode(row.entity, row, driver).model
    except DocumentDecodeError as error:
        record.error, record.original = error.message, extended_json(row)
        return record
    if (path := lossy_map(row.document, model)) is not None:
        record.error, record.original = names_lost(path), extended_json(row)
        return record
    record.model = model
    return record


def scan_row(row: DocumentRow) -> ScanRow:
    """Return a row for comparison."""
    retention = row.entity.retention
    beside = {item.name: plain(row, row.derived.get(item.name)) for item in row.entity.derived}
    return ScanRow(
        key=key_of(row),
        owner=row.owner,
        content=content(row),
        beside=jsontext.dumps_sorted(beside),
        expires=None if retention is None else instant(row.value(retention.field)),
    )


def content(row: DocumentRow) -> bytes:
    """Return the bytes that are equal exactly when two rows hold the same; see :class:`ScanRow`."""
    shown = {"doc": plain(row, row.document), "storage": plain(row, row.markers)}
    return jsontext.dumps_sorted(shown)


def extended_json(row: DocumentRow) -> str:
    """Return a row that cannot be decoded, with everything that is there."""
    return jsontext.dumps_sorted(
        {
            "_id": [plain(row, part) for part in row.key],
            "doc": plain(row, row.document),
            "storage": plain(row, row.markers),
        }
    ).decode()


def key_of(row: DocumentRow) -> Key | None:
    """Return the key of a row, ``None`` when it cannot be a key of the entity."""
    return row.key if row.entity.admits_key(row.key) else None


def has_text_timestamp(row: DocumentRow) -> bool:
    """Whether an instant was stored as text."""
    sources = (row.document, row.markers)
    return any(isinstance(value, str) for source in sources for value in instants(row.entity, source))


def instants(entity: Entity, value: object, path: FieldPath = ()) -> Iterator[object]:
    """Yield what is stored where instants belong, at any depth."""
    if path in entity.instants:
        yield value
    elif isinstance(value, Mapping):
        for name, item in cast("Mapping[str, object]", value).items():
            yield from instants(entity, item, (*path, name))
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from instants(entity, item, path)


def plain(row: DocumentRow, value: object, path: FieldPath = ()) -> object:
    """Return a stored value as canonical JSON has it; what is never written so is marked."""
    if isinstance(value, datetime):
        return value if path in row.entity.instants and is_canonical(value) else marked("date", str(value))
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return {str(key): plain(row, item, (*path, key)) for key, item in members}
    if isinstance(value, (list, tuple)):
        return [plain(row, item, path) for item in cast("Sequence[object]", value)]
    if isinstance(value, str):
        # A lone surrogate has no UTF-8 and would end the comparison; as an escape it takes part in it.
        text = str(value).encode("utf-8", "backslashreplace").decode()
        return marked("text", text) if path in row.entity.instants else text
    return value if value is None or isinstance(value, bool) else number_or_other(value)


def is_canonical(value: datetime) -> bool:
    """Whether an instant is in UTC and has whole milliseconds."""
    return value.tzinfo is UTC and value.microsecond % 1000 == 0


def number_or_other(value: object) -> object:
    """Return a number that a model may hold as it is, and anything else under a mark."""
    if isinstance(value, int) and jsontext.INT64_MIN <= value <= jsontext.INT64_MAX:
        return value
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        return value
    if isinstance(value, float):
        return marked("double", repr(value))
    if isinstance(value, (bytes, bytearray)):
        return marked("bytes", base64.b64encode(value).decode())
    return marked(type(value).__name__, repr(value))
