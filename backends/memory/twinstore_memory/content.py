"""Rows as the verifier reads them: canonical bytes straight from the stored values, without the models."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.bulk import ScanRow
from twinstore_memory.compile import instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.bulk import Key
    from twinstore_memory.rows import Row

__all__ = ["extended_json", "has_text_timestamp", "scan_row", "text_key"]

INSTANTS: Final = frozenset(
    {
        "createdAt",
        "deletedAt",
        "detectedAt",
        "finishedAt",
        "generatedAt",
        "impactWindowFrom",
        "impactWindowTo",
        "lastFireAt",
        "nextFireAt",
        "occurredAt",
        "startedAt",
        "updatedAt",
    }
)
# Their keys are chosen by users, so a key that looks like an instant is none.
FREE_MAPS: Final = frozenset({"labels", "metadata"})


def scan_row(row: Row) -> ScanRow:
    """Return a row for comparison."""
    retention = row.entity.retention
    return ScanRow(
        key=text_key(row.key),
        tenant_id=row.tenant_id,
        content=content(row),
        expires=None if retention is None else instant(row.value(retention.field)),
        text_timestamp=has_text_timestamp(row),
    )


def content(row: Row) -> bytes:
    """Return the bytes that are equal exactly when two rows hold the same."""
    document = plain(row.document)
    if isinstance(document, dict) and document.get("deltas") == []:
        del document["deltas"]
    return jsontext.dumps_sorted({"doc": document, "storage": plain(row.markers)})


def extended_json(row: Row) -> str:
    """Return a row that cannot be decoded, with everything that is there."""
    return jsontext.dumps_sorted(
        {"_id": [plain(part) for part in row.key], "doc": plain(row.document), "storage": plain(row.markers)}
    ).decode()


def text_key(key: tuple[object, ...]) -> Key | None:
    """Return a key, ``None`` when it is no text."""
    texts = tuple(part for part in key if isinstance(part, str))
    return texts if len(texts) == len(key) else None


def has_text_timestamp(row: Row) -> bool:
    """Whether an instant was stored as text."""
    return any(isinstance(value, str) for source in (row.document, row.markers) for value in instants(source))


def instants(value: object) -> Iterator[object]:
    """Yield what is stored where instants belong, at any depth."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in INSTANTS:
                yield item
            elif name not in FREE_MAPS:
                yield from instants(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from instants(item)


def plain(value: object, name: str | None = None) -> object:
    """Return a stored value as canonical JSON has it; nulls inside objects are left out."""
    if name in INSTANTS and (found := instant(value)) is not None:
        return found
    if isinstance(value, Mapping):
        inner = {} if name in FREE_MAPS else dict(zip(value, value, strict=True))
        return {str(key): plain(item, inner.get(key)) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode()
    return value if value is None or isinstance(value, (bool, datetime)) else number_or_other(value)


def number_or_other(value: object) -> object:
    """Return a number in its canonical spelling, and anything else as extended JSON."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and jsontext.INT64_MIN <= value <= jsontext.INT64_MAX:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return jsontext.encodable(value)
    if isinstance(value, (bytes, bytearray)):
        return {"$binary": base64.b64encode(value).decode()}
    return {f"${type(value).__name__}": repr(value)}
