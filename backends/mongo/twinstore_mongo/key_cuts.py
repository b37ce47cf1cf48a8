"""Where ranges of few rows end: many of these keys from one part of an index.

A query for each of them takes longer than to send all keys between them, which are short.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from twinstore.forks import ending
from twinstore_mongo.key_order import KEYS_AT_ONCE, SIMPLE, key_after, key_in, keys_from
from twinstore_mongo.raw import raw_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

    from twinstore.bulk import Key
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Document

__all__ = ["cuts_after"]

# From here on the server passes over rows sooner than it sends their keys.
MOST_ROWS: Final = 500
LENGTH: Final = struct.Struct("<i")


def cuts_after(
    collection: Collection[Document], codec: Codec[Any], lower: Key | None, rows: int, condition: Document
) -> list[Key]:
    """Return the next keys at which ranges end, one or more, as :func:`key_after` gives them one by one.

    There is none beyond the last.
    """
    found = _cuts_in_part(collection, codec, lower, rows, condition) if rows <= MOST_ROWS else []
    if not found and (one := key_after(collection, codec, lower, rows, condition)) is not None:
        found.append(one)
    return found


def _cuts_in_part(
    collection: Collection[Document], codec: Codec[Any], lower: Key | None, rows: int, condition: Document
) -> list[Key]:
    """Return the keys at which ranges end in the part of the index that begins at a key."""
    cursor = collection.find_raw_batches(
        condition,
        limit=KEYS_AT_ONCE,
        batch_size=KEYS_AT_ONCE,
        collation=SIMPLE,
        **keys_from(codec, lower),
    )
    cuts: list[Key] = []
    last, since = lower, 0
    with ending(cursor.close):
        for batch in raw_batches(cursor):
            for start, end in places_of(batch):
                this = key_in(batch[start:end], codec) if since >= rows else None
                # Rows that share a key, which only a missing unique index allows, stay in one range.
                if this is not None and this != last:
                    cuts.append(this)
                    last, since = this, 0
                since += 1
    return cuts


def places_of(batch: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each document of a raw batch begins and ends."""
    start, size_at = 0, LENGTH.unpack_from
    while start < len(batch):
        end = start + size_at(batch, start)[0]
        yield start, end
        start = end
