"""The insertion numbers of rows: one document for each collection, in a collection of their own.

A number is taken outside of any transaction: two writers that number rows would lose against each other
otherwise, and a number that is given back could come twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bson.int64 import Int64
from pymongo import DESCENDING, ReturnDocument

from twinstore.query import assigned_marker
from twinstore_mongo.codec import codec_of
from twinstore_mongo.derive import ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

    from twinstore.catalog import Entity, Module
    from twinstore_mongo.connection import Connection, Document
    from twinstore_mongo.context import RepositoryContext

__all__ = ["COUNTERS", "next_number", "numbering_differences", "raise_above"]

COUNTERS: Final = "_counters"
VALUE: Final = "value"


def next_number(context: RepositoryContext, entity: Entity) -> int:
    """Return the next insertion number of an entity; see :class:`twinstore.access.Access`."""
    with context.writing(entity):
        number = counted(context, entity)
        if number == 1 and (stored := last_number(context, entity)):
            # The counter begins, and rows are there: they came by another way than this library.
            raised(context, entity, stored)
            number = counted(context, entity)
        return number


def raise_above(context: RepositoryContext, entity: Entity, number: int) -> None:
    """Let new rows be numbered above a number, before rows with it are written; 0 is below all."""
    if number:
        with context.writing(entity):
            raised(context, entity, number)


def counted(context: RepositoryContext, entity: Entity) -> int:
    """Count one row more."""
    found = counters(context).find_one_and_update(
        {ID: context.connection.collection_name(entity)},
        [{"$set": {VALUE: {"$add": [{"$ifNull": [f"${VALUE}", Int64(0)]}, Int64(1)]}}}],
        upsert=True,
        return_document=ReturnDocument.AFTER,
    )
    if found is None:
        raise LookupError("a counter is made where there was none, so there is always one")
    return int(found[VALUE])


def raised(context: RepositoryContext, entity: Entity, number: int) -> None:
    """Raise the counter to a number, unless it is as high; it never goes back."""
    place = {ID: context.connection.collection_name(entity)}
    higher = {"$max": [f"${VALUE}", Int64(number)]}
    counters(context).update_one(place, [{"$set": {VALUE: higher}}], upsert=True)


def last_number(context: RepositoryContext, entity: Entity) -> int:
    """Return the highest number that a row has, 0 for none."""
    return highest_in(context.collection(entity), entity)


def highest_in(collection: Collection[Document], entity: Entity) -> int:
    """Return the highest number in a collection, 0 for none."""
    name = codec_of(entity).names[assigned_marker(entity)]
    found = collection.find_one({}, {name: 1}, sort=[(name, DESCENDING)])
    value = None if found is None else found.get(name)
    return value if isinstance(value, int) else 0


def numbering_differences(connection: Connection, catalog: Module) -> Iterator[str]:
    """Yield a sentence for each counter that does not go on above the rows that are numbered.

    A counter that is missing does: the first number taken from it begins above them.
    """
    for entity in catalog.entities:
        if entity.assigned is not None:
            name = connection.collection_name(entity)
            counter = connection.store.collection(COUNTERS).find_one({ID: name})
            if counter is not None:
                highest = highest_in(connection.store.collection(name), entity)
                yield from lagging(name, counter.get(VALUE), highest)


def lagging(name: str, value: object, highest: int) -> Iterator[str]:
    """Yield a sentence where a counter is no whole number, or a row has the number that comes next."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= highest:
        return
    stands = f"stands at {value}" if isinstance(value, int | float) else "holds no number"
    yield (
        f"The counter of {name} in {COUNTERS} {stands}, but documents are numbered up to {highest}, so new "
        f"ones are refused. To mend: db.{COUNTERS}.updateOne({{_id: {json.dumps(name)}}}, "
        f"{{$set: {{{VALUE}: NumberLong({highest})}}}})"
    )


def counters(context: RepositoryContext) -> Collection[Document]:
    """Return the collection of the counters."""
    return context.store.collection(COUNTERS)
