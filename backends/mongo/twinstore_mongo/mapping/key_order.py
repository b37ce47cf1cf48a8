"""Documents in the order of their keys: along the index of the key, or sorted by the server without one.

A source may be a database that another service made, without our indexes and with another collation.
Texts are compared by code point all the same, because that is the order of every other store; an index in
another collation cannot give it.
"""

from __future__ import annotations

import struct
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from bson import ObjectId
from pymongo.collation import Collation
from pymongo.errors import OperationFailure

from twinstore.catalog.keys import KeyType, can_bound
from twinstore.runtime.forks import cleanup_unless_forked
from twinstore_mongo.client.bson import PART_BYTES, documents_of, parts_of, raw_batches
from twinstore_mongo.mapping.layout import ID, id_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pymongo.collection import Collection

    from twinstore.catalog.keys import Key
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.codec import Codec

Order: TypeAlias = list[tuple[str, int]]

# Makes a read compare texts by code point, even in a collection with its own collation.
SIMPLE: Final = Collation("simple")
VIEW: Final = 166  # CommandNotSupportedOnView
# An index with one of these leaves documents out, or has them in the order of another collation.
UNSUITABLE_OPTIONS: Final = ("sparse", "partialFilterExpression", "hidden", "collation")
# What a batch has on average, at most; the server itself ends one at 16 MB.
BATCH_BYTES: Final = 2_000_000
# How long the mean size of documents is taken to stay.
SIZE_SECONDS: Final = 30.0
# Keys are short, so a batch of them stays small and a large collection takes few round trips.
KEYS_AT_ONCE: Final = 10_000
# Of a range that the server has to sort.
SORTED_ROWS: Final = 1_000_000
# The server orders values by type first, so the first value of the next type is beyond all of one. Of the
# values that are neither numbers nor texts, the empty object comes first behind the texts.
TEXTS: Final = (KeyType.TEXT, KeyType.UUID, KeyType.HEX)
FIRST_OBJECT_ID: Final = ObjectId(bytes(12))
FIRST: Final[dict[KeyType, object]] = {
    **dict.fromkeys(TEXTS, ""),
    KeyType.INT64: float("-inf"),
    KeyType.BINARY_UUID: b"",
    KeyType.OBJECT_ID: FIRST_OBJECT_ID,
}
# Binary data is followed by ObjectIds, and those by booleans.
BEYOND: Final[dict[KeyType, object]] = {
    **{kind: {} for kind in TEXTS},
    KeyType.INT64: "",
    KeyType.BINARY_UUID: FIRST_OBJECT_ID,
    KeyType.OBJECT_ID: False,
}
TYPES: Final[dict[KeyType, object]] = {
    **dict.fromkeys(TEXTS, "string"),
    KeyType.INT64: ["int", "long"],
    KeyType.BINARY_UUID: "binData",
    KeyType.OBJECT_ID: "objectId",
}
# The same where ``_id`` holds the key as it is: a number, or a document, behind which lists and bytes come.
ID_TYPES: Final = (["int", "long", "double"], "object")
FIRST_DOCUMENT: Final[Document] = {}
BEYOND_DOCUMENTS: Final = b""


def order_of(key: Sequence[str]) -> Order:
    """Return the order of a key."""
    return [(name, 1) for name in key]


def gives_order(index: Mapping[str, Any], order: Order) -> bool:
    """Check whether an index, as the server describes it, holds every document in this order."""
    return list(index["key"].items()) == order and not any(index.get(option) for option in UNSUITABLE_OPTIONS)


def has_key_index(collection: Collection[Any], order: Order) -> bool:
    """Check whether some index of a collection holds every document in this order; a view has none."""
    try:
        return any(gives_order(index, order) for index in collection.list_indexes())
    except OperationFailure as error:
        if error.code != VIEW:
            raise
        return False


def fitting_batch(
    store: OpenDatabase, collection: Collection[Any], batch_size: int, most: int = BATCH_BYTES
) -> int:
    """Return how many documents to ask for at a time: fewer where they are large, so that few wait here."""
    try:
        size = average_size(store, collection)
    # A view has none, and a role that may only find may not ask.
    except OperationFailure:
        return batch_size
    return max(1, min(batch_size, most // size))


def average_size(store: OpenDatabase, collection: Collection[Any]) -> int:
    """Return about how many bytes a document has; asked seldom, because the server takes long to answer."""
    until, size = store.sizes.get(collection.name, (0.0, 1))
    if until < monotonic():
        stats = collection.database.command("collStats", collection.name)
        size = max(1, int(stats.get("avgObjSize", 1)))
        store.sizes[collection.name] = (monotonic() + SIZE_SECONDS, size)
    return size


def next_batch(store: OpenDatabase, cursor: Iterator[Any], *, indexed: bool) -> bytes | None:
    """Ask a raw cursor for one batch; ``None`` at the end. A sort of everything takes as long as it takes."""
    if indexed:
        return store.next_batch(cursor)
    with store.with_index_timeout():
        return next(cursor, None)


def next_parts(
    store: OpenDatabase, cursor: Iterator[Any], size: int = PART_BYTES, *, indexed: bool
) -> Iterator[bytes]:
    """Yield the rest of a raw cursor in parts; see :func:`~twinstore_mongo.client.bson.parts_of`."""
    while (batch := next_batch(store, cursor, indexed=indexed)) is not None:
        parts = parts_of(batch, size)
        # Not remembered while a part is worked on, nor while the next batch is read.
        del batch
        yield from parts


def key_after(
    collection: Collection[Document], codec: Codec[Any], lower: Key | None, rows: int, condition: Document
) -> Key | None:
    """Return the key ``rows`` places after a key, from the index alone, or the next one that can end a range.

    That one is another key than ``lower``, because many rows may share one where no unique index forbids it,
    and a key that every store can compare with.
    """
    found = (key_in(raw, codec) for raw in _keys_at(collection, codec, lower, rows, condition))
    return next((key for key in found if key is not None and key != lower), None)


def sorted_cuts(
    store: OpenDatabase,
    collection: Collection[Document],
    codec: Codec[Any],
    rows: int,
    stages: Sequence[Document],
) -> list[Key]:
    """Return the keys at which ranges of about ``rows`` rows end, from one pass over what stages leave."""
    fields = projection(codec)
    order = {"$sort": dict(order_of(codec.key))}
    pipeline: list[Document] = [{"$match": typed(codec)}, *stages, {"$project": fields}, order]
    cuts: list[Key] = []
    last: Key | None = None
    since = 0
    with store.with_index_timeout():
        # A sort in memory is refused from 100 MB on.
        cursor = collection.aggregate_raw_batches(
            pipeline, allowDiskUse=True, collation=SIMPLE, batchSize=KEYS_AT_ONCE
        )
        for batch in raw_batches(cursor):
            for raw in documents_of(batch):
                this = key_in(raw, codec)
                # Rows that share a key, which only a missing unique index allows, stay in one range.
                if since >= rows and this is not None and this != last:
                    cuts.append(this)
                    since = 0
                since, last = since + 1, this
    return cuts


def typed(codec: Codec[Any]) -> Document:
    """Return the filter of the rows whose key is one of the entity."""
    if codec.entity.key_as_id:
        return {ID: {"$type": ID_TYPES[bool(id_parts(codec.entity))]}}
    parts = zip(codec.key, codec.entity.key_parts, strict=True)
    return {name: {"$type": TYPES[part.type]} for name, part in parts}


def _keys_at(
    collection: Collection[Document], codec: Codec[Any], lower: Key | None, skip: int, condition: Document
) -> Iterator[bytes]:
    """Yield documents that hold a key alone, as they are stored, from some places after a key on."""
    # Nearly always the first one will do.
    for place, limit in ((skip, 1), (skip + 1, 0)):
        cursor = collection.find_raw_batches(
            condition, **keys_from(codec, lower), skip=place, limit=limit, collation=SIMPLE
        )
        with cleanup_unless_forked(cursor.close):
            for batch in raw_batches(cursor):
                yield from documents_of(batch)


def keys_from(codec: Codec[Any], lower: Key | None) -> dict[str, Any]:
    """Return what a query needs to read keys alone, in their order, from one on, that one included."""
    order, types = order_of(codec.key), [part.type for part in codec.entity.key_parts]
    first: Document = {ID: FIRST_DOCUMENT}
    beyond: Document = {ID: BEYOND_DOCUMENTS}
    if not id_parts(codec.entity):
        first = dict(zip(codec.key, (FIRST[kind] for kind in types), strict=True))
        beyond = dict(zip(codec.key, (BEYOND[kind] for kind in types), strict=True))
    # A filter would compare texts with texts only; min and max cut the index across types, and need a hint.
    return {
        "projection": projection(codec),
        "sort": order,
        "hint": order,
        "min": first if lower is None else codec.place(lower),
        "max": beyond,
    }


def key_in(raw: bytes, codec: Codec[Any]) -> Key | None:
    """Return the key of a stored document where a range can end at it."""
    key = codec.first_values(raw)
    return cast("Key", key) if codec.entity.admits_key(key) and can_bound(cast("Key", key)) else None


def projection(codec: Codec[Any]) -> Document:
    """Return the fields of the key alone, which an index answers."""
    return {ID: 0} | dict.fromkeys(codec.key, 1)


# Where ranges of few rows end: many of these keys from one part of an index.
#
# A query for each of them takes longer than to send all keys between them, which are short.


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
    with cleanup_unless_forked(cursor.close):
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
