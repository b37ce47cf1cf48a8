"""Documents in the order of their keys: along the index of the key, or sorted by the server without one.

A source may be a database that another service made, without our indexes and with a collation of its own.
Texts are compared by code point all the same, because that is the order of every other store; an index in
another collation cannot give it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pymongo.collation import Collation
from pymongo.errors import OperationFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pymongo.collection import Collection

    from twinstore.bulk import Key
    from twinstore_mongo.connection import Document, Store

__all__ = [
    "SIMPLE",
    "Order",
    "collation_of",
    "gives_order",
    "has_key_index",
    "key_after",
    "next_batch",
    "order_of",
    "sorted_cuts",
]

Order: TypeAlias = list[tuple[str, int]]

SIMPLE: Final = Collation("simple")
VIEW: Final = 166
# An index with one of these leaves documents out, or has them in the order of another collation.
UNFIT: Final = ("sparse", "partialFilterExpression", "hidden", "collation")
KEYS_AT_ONCE: Final = 10_000


def collation_of(store: Store) -> Collation | None:
    """Return what makes a read compare texts by code point, also in a collection with another collation."""
    return SIMPLE if store.complete else None


def order_of(key: Sequence[str]) -> Order:
    """Return the order of a key."""
    return [(name, 1) for name in key]


def gives_order(index: Mapping[str, Any], order: Order) -> bool:
    """Tell whether an index, as the server describes it, holds every document in this order."""
    return list(index["key"].items()) == order and not any(index.get(option) for option in UNFIT)


def has_key_index(collection: Collection[Any], order: Order) -> bool:
    """Tell whether some index of a collection holds every document in this order; a view has none."""
    try:
        return any(gives_order(index, order) for index in collection.list_indexes())
    except OperationFailure as error:
        if error.code != VIEW:
            raise
        return False


def next_batch(store: Store, cursor: Iterator[Any], *, indexed: bool) -> bytes | None:
    """Ask a raw cursor for one batch; ``None`` at the end. A sort of everything takes as long as it takes."""
    if indexed:
        return store.next_batch(cursor)
    with store.unhurried():
        return next(cursor, None)


def key_after(
    collection: Collection[Document], key: Sequence[str], lower: Key | None, rows: int, condition: Document
) -> Key | None:
    """Return the key ``rows`` places after a key, from the index alone; only texts are counted.

    The empty text is the smallest text, and the empty object is the smallest value beyond all texts.
    """
    found = _key_at(collection, key, lower, rows, condition)
    if lower is None or found != lower:
        return found
    # Where no unique index forbids it, many rows can share one key; a range cannot end among them.
    other = {"$nor": [dict(zip(key, lower, strict=True))]}
    return _key_at(collection, key, lower, 0, {"$and": [condition, other]})


def _key_at(
    collection: Collection[Document], key: Sequence[str], lower: Key | None, skip: int, condition: Document
) -> Key | None:
    order = order_of(key)
    first = dict.fromkeys(key, "") if lower is None else dict(zip(key, lower, strict=True))
    beyond: Document = {name: {} for name in key}
    fields = {"_id": 0} | dict.fromkeys(key, 1)
    cursor = collection.find(
        condition,
        fields,
        sort=order,
        hint=order,
        min=first,
        max=beyond,
        skip=skip,
        limit=1,
        collation=SIMPLE,
    )
    return next((tuple(found[name] for name in key) for found in cursor), None)


def sorted_cuts(
    store: Store, collection: Collection[Document], key: Sequence[str], rows: int, condition: Document
) -> list[Key]:
    """Return the keys at which ranges of about ``rows`` rows end, from one pass without an index."""
    pipeline: list[Document] = [
        {"$match": {**{name: {"$type": "string"} for name in key}, **condition}},
        {"$project": {"_id": 0} | dict.fromkeys(key, 1)},
        {"$sort": dict(order_of(key))},
    ]
    cuts: list[Key] = []
    last: Key | None = None
    since = 0
    with store.unhurried():
        for found in collection.aggregate(
            pipeline, allowDiskUse=True, collation=SIMPLE, batchSize=KEYS_AT_ONCE
        ):
            this = tuple(found[name] for name in key)
            if since >= rows and this != last:
                cuts.append(this)
                since = 0
            since, last = since + 1, this
    return cuts
