"""What test doubles of the client lack, done in this process: ranges of documents in key order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo.collection import Collection

    from twinstore.bulk import KeyRange
    from twinstore_mongo.connection import Document

__all__ = ["raw_batches"]


def raw_batches(
    collection: Collection[Document],
    key: Sequence[str],
    within: KeyRange,
    condition: Document,
    batch_size: int,
) -> Iterator[bytes]:
    """Yield raw batches of a range; keys that are no text come last, as they do on the server's open end."""
    found = [(key_of(document, key), document) for document in collection.find(condition)]
    chosen = sorted(
        (pair for pair in found if inside(pair[0], within)), key=lambda pair: (pair[0] is None, pair[0] or ())
    )
    for start in range(0, len(chosen), batch_size):
        yield b"".join(bson.encode(document) for _, document in chosen[start : start + batch_size])


def key_of(document: Document, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the key of a document, ``None`` when it is no text."""
    values: list[Any] = [document.get(name) for name in names]
    return tuple(values) if all(isinstance(value, str) for value in values) else None


def inside(key: tuple[str, ...] | None, within: KeyRange) -> bool:
    """Whether a key lies in a range; the open upper end holds what is no text."""
    if key is None:
        return within.upper is None
    return (within.lower is None or key >= within.lower) and (within.upper is None or key < within.upper)
