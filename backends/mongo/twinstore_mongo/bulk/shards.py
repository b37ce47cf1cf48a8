"""Where a sharded cluster has the documents of a collection.

    config.collections (shard key, uuid) -> config.chunks (min, shard) -> the keys at which a shard begins

Everything is read through the router; a shard that is read directly shows documents that moved away. The
order of the chunks is that of the keys where the shard key is the key or its beginning. Only the order in
which ranges are copied follows from it, so what cannot be read or used changes no result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import bson
from bson import Binary, Int64, MinKey, ObjectId
from pymongo.errors import OperationFailure

from twinstore.catalog.keys import INT64_MIN, KeyType
from twinstore_mongo.client.identity import UNANSWERED, is_router
from twinstore_mongo.client.types import EXACT
from twinstore_mongo.mapping.key_order import key_in
from twinstore_mongo.mapping.layout import ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pymongo.collection import Collection

    from twinstore.bulk.port import Placed
    from twinstore_mongo.mapping.codec import Codec

# The first value of each type that a key admits.
LEAST: Final[Mapping[KeyType, object]] = {
    KeyType.TEXT: "",
    KeyType.UUID: "00000000-0000-0000-0000-000000000000",
    KeyType.HEX: "0" * 32,
    KeyType.INT64: Int64(INT64_MIN),
    KeyType.OBJECT_ID: ObjectId(bytes(12)),
    KeyType.BINARY_UUID: Binary(bytes(16), 4),
}


def placement_of(collection: Collection[Any], codec: Codec[Any]) -> Sequence[Placed]:
    """Return the keys from which on another shard has the documents; none if no router says so."""
    client = collection.database.client
    if not is_router(client):
        return ()
    config = client.get_database("config", codec_options=EXACT)
    try:
        sharded = config["collections"].find_one({ID: collection.full_name}, {"key": 1, "uuid": 1})
        if sharded is None or not is_ordered(sharded["key"], codec):
            return ()
        chunks = config["chunks"].find({"uuid": sharded["uuid"]}, {"min": 1, "shard": 1}, sort=[("min", 1)])
        return placed(chunks, codec)
    except OperationFailure as error:
        if error.code not in UNANSWERED:
            raise
        return ()


def is_ordered(shard_key: Mapping[str, object], codec: Codec[Any]) -> bool:
    """Whether the chunks of a shard key come in the order of the keys: it is the key or its beginning."""
    return (*shard_key,) == (*codec.key,)[: len(shard_key)] and "hashed" not in shard_key.values()


def placed(chunks: Iterable[Mapping[str, Any]], codec: Codec[Any]) -> Sequence[Placed]:
    """Return where chunks begin, as ``config.chunks`` gives them in order, and the shard of each."""
    # An ``_id`` is always whole, and may be a document that holds all parts of the key.
    parts = () if codec.key == (ID,) else zip(codec.key, codec.entity.key_parts, strict=True)
    least = {name: LEAST[part.type] for name, part in parts}
    found: list[Placed] = []
    for chunk in chunks:
        bound = {name: value for name, value in chunk["min"].items() if not isinstance(value, MinKey)}
        key = key_in(bson.encode({**least, **bound}), codec) if found else None
        if key is not None:
            found.append((key, chunk["shard"]))
        elif len(found) <= 1:
            # Other types come before all keys; the last chunk that begins there has the first of these.
            found = [(None, chunk["shard"])]
    return found if len({shard for _, shard in found}) > 1 else ()
