"""Reading in the order (time, id) along an index that has the times in order but not the ids within one.

A sort by the server would read everything that matches before the first row comes out.
"""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pymongo.client_session import ClientSession
    from pymongo.collation import Collation
    from pymongo.collection import Collection

    from twinstore_mongo.connection import Document

    IndexOrder = list[tuple[str, int]]

__all__ = ["IndexOrder", "along_index"]

# With so many rows more, the last instant that is needed is mostly complete.
SPARE: Final = 16


def along_index(
    collection: Collection[Document],
    condition: Document,
    along: IndexOrder,
    wanted: int,
    session: ClientSession | None,
    *,
    collation: Collation | None = None,
) -> list[Document]:
    """Return the first ``wanted`` documents by (time, id); ``along`` is the sort that the index has."""
    time = along[0][0]
    matching = collection.find(condition, session=session, collation=collation)
    found = list(matching.sort(along).limit(wanted + SPARE))
    groups = [list(group) for _, group in groupby(found, key=lambda row: row.get(time))]
    if len(found) < wanted + SPARE:
        return by_id(groups)[:wanted]
    *complete, last = groups
    rows = by_id(complete)[:wanted]
    if len(rows) < wanted:
        # Rows of the last instant may be missing, and not the ones with the greatest ids.
        instant = {"$and": [condition, {time: last[0].get(time)}]}
        others = collection.find(instant, session=session, collation=collation)
        rows += others.sort([("_id", 1)]).limit(wanted - len(rows))
    return rows


def by_id(groups: Iterable[list[Document]]) -> list[Document]:
    """Return the rows of groups of equal time, each group by id."""
    return list(chain.from_iterable(sorted(group, key=id_of) for group in groups))


def id_of(row: Document) -> str:
    """Return the id; one that is no text only needs some place, because it cannot be read anyway."""
    key: Any = row["_id"]
    return key if isinstance(key, str) else repr(key)
