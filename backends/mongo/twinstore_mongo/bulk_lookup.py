"""What a collection holds under some keys, for whoever is about to write these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twinstore.forks import ending
from twinstore_mongo.bulk_export import conditions_of
from twinstore_mongo.codec import codec_of
from twinstore_mongo.context import translating
from twinstore_mongo.derive import ID
from twinstore_mongo.key_order import SIMPLE
from twinstore_mongo.raw import documents_of, first_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.bulk import Key
    from twinstore.catalog import Entity
    from twinstore_mongo.connection import Document
    from twinstore_mongo.context import RepositoryContext

__all__ = ["is_vacant", "stored_documents"]

# A field that no document has, so that nothing of one is sent or decoded, whatever it is.
NOTHING: Final = {ID: 0, "_nothing": 1}


def stored_documents(context: RepositoryContext, entity: Entity, keys: Sequence[Key]) -> Mapping[Key, bytes]:
    """Return the stored documents of some keys, undecoded: what another has put there may be anything."""
    names, store = codec_of(entity).key, context.store
    collection = context.collection(entity)
    found: dict[Key, bytes] = {}
    with translating(store.where.of(entity)):
        for condition in conditions_of(names, keys):
            cursor = collection.find_raw_batches(condition, collation=SIMPLE)
            with ending(cursor.close):
                while (batch := store.next_batch(cursor)) is not None:
                    for raw in documents_of(batch):
                        key: Any = tuple(first_of(raw, name) for name in names)
                        found[key] = raw
    return found


def is_vacant(context: RepositoryContext, entity: Entity, first: Key, last: Key) -> bool:
    """Whether the store certainly has no row from a key to another one, both included."""
    store = context.store
    condition = spanned(codec_of(entity).key, first, last)
    with translating(store.where.of(entity)), store.limited():
        return context.collection(entity).find_one(condition, NOTHING, collation=SIMPLE) is None


def spanned(names: Sequence[str], first: Key, last: Key) -> Document:
    """Return a filter of all keys from one to another, and perhaps of more, that an index answers."""
    condition: Document = {}
    for name, lower, upper in zip(names, first, last, strict=True):
        if lower != upper:
            # What follows is in no order beyond the first part that differs.
            return condition | {name: {"$gte": lower, "$lte": upper}}
        condition[name] = lower
    return condition
