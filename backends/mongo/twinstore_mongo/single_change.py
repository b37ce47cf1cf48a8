"""The change of one document that answers with the document as it is then.

Where the types of a collection are read in a way of our own, the client leaves all of such an answer but
the document in the bytes it came in. It then fails with an ``AttributeError``, and repeats nothing, where a
primary that steps down says that it wrote and no majority has it yet. So the answer is read without those
types, and the document once more with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bson
from pymongo import ReturnDocument

from twinstore_mongo.connection import DECODING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo.client_session import ClientSession

    from twinstore_mongo.connection import Document, Untyped

__all__ = ["find_and_change"]


def find_and_change(
    collection: Untyped,
    condition: Document,
    change: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    sort: Sequence[tuple[str, int]] | None = None,
    upsert: bool = False,
    session: ClientSession | None = None,
    fields: Sequence[str] | None = None,
) -> Document | None:
    """Change the first document that satisfies a condition; return it as it is then, ``None`` without one.

    Args:
        collection: as :meth:`~twinstore_mongo.connection.OpenDatabase.untyped` gives it.
        condition: the filter.
        change: the update or the stages of one.
        sort: which one is the first.
        upsert: insert one where there is none.
        session: of the transaction that this belongs to.
        fields: what the answer has of the document; all of it where none are named.
    """
    found: Document | None = collection.find_one_and_update(
        condition,
        change,
        projection=None if fields is None else dict.fromkeys(fields, 1),
        sort=sort,
        upsert=upsert,
        return_document=ReturnDocument.AFTER,
        session=session,
    )
    # Both ways without loss: what the client reads without our types it writes as it was.
    return None if found is None else bson.decode(bson.encode(found), DECODING)
