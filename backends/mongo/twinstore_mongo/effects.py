"""Counting what a TTL index would remove and a validator refuse, before either exists."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from twinstore.migrations import COUNTED_ROWS, Effect, EffectKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore_mongo.connection import Document, OpenDatabase
    from twinstore_mongo.steps import IndexSpec

__all__ = ["expiring", "refused"]


def expiring(
    store: OpenDatabase, collection: str, index: IndexSpec, *, wanted: int, real: int | None
) -> Iterator[Effect]:
    """Yield what a TTL of ``wanted`` seconds would remove that one of ``real`` seconds leaves alone.

    What is due already counts for the old age: the server removes it within a minute anyway.
    """
    now = store.now()
    due: Document = {"$lte": now - timedelta(seconds=wanted)}
    if real is not None:
        due["$gt"] = now - timedelta(seconds=real)
    condition = {"$and": [{index.key[0][0]: due}, dict(index.partial)]}
    # Without a limit of time: reading a whole collection takes as long as it takes.
    with store.with_index_timeout():
        rows = store.collection(collection).count_documents(condition)
    if rows:
        yield Effect(kind=EffectKind.TTL, name=collection, rows=rows)


def refused(store: OpenDatabase, collection: str, validator: Document) -> Iterator[Effect]:
    """Yield how many documents a validator would refuse."""
    with store.with_index_timeout():
        rows = store.collection(collection).count_documents({"$nor": [validator]}, limit=COUNTED_ROWS + 1)
    if rows:
        more = rows > COUNTED_ROWS
        yield Effect(
            kind=EffectKind.VALIDATOR, name=collection, rows=COUNTED_ROWS if more else rows, more=more
        )
