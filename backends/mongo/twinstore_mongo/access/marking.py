"""Setting fields of the first rows of a list, in updates that the server computes from the stored row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import sample
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bson.int64 import Int64
from pymongo import ReturnDocument

from twinstore.access.paging import decoded
from twinstore.access.protocol import Add, ServerTime, Unset
from twinstore.catalog.row import Row
from twinstore.models.canonical import CanonicalModel
from twinstore_mongo.access.changing import write_one
from twinstore_mongo.access.queries import compiled
from twinstore_mongo.access.reading import is_hidden, rows
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.layout import ID, VERSION, value_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.access.protocol import FieldUpdates, Values
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.codec import Codec

M = TypeVar("M", bound=CanonicalModel)

MILLISECOND: Final = timedelta(milliseconds=1)
# Of so many times the rows that are wanted, competing writers seldom choose the same.
SPREAD: Final = 32


def can_set(entity: Entity, sets: FieldUpdates) -> bool:
    """Whether the server can set fields by itself, from which none is derived, and to which a path leads."""
    return entity.unpathed.isdisjoint(sets) and all(
        item.number_of is not None and item.number_of not in sets for item in entity.derived
    )


def mark(
    context: RepositoryContext, entity: Entity[M], query: Query, sets: FieldUpdates
) -> tuple[Row[M], ...]:
    """Set fields of the first rows of a list, one after the other, each only while it still matches."""
    codec = codec_of(entity)
    condition = compiled(codec, query)
    before: list[object] = []
    wanted = query
    # If a round finds the same rows as the one before, no other writer took them: they cannot be marked.
    while (found := readable_ids(context, entity, wanted)) != before:
        before = found
        chosen = sorted(sample(range(len(found)), min(query.limit, len(found))))
        updated = update_each(context, codec, condition, [found[place] for place in chosen], sets)
        if updated:
            return tuple(map(codec.decode, updated))
        # Others took all of them, and want the next ones too: of those, each takes any.
        wanted = replace(query, limit=SPREAD * query.limit)
    return ()


def amend(context: RepositoryContext, entity: Entity, query: Query, values: Values) -> int:
    """Set fields of the first rows of a list, whatever else they hold; return how many."""
    if is_hidden(context, entity, query):
        return 0
    codec = codec_of(entity)
    condition, change = compiled(codec, query), [{"$set": set_to(codec, values)}]
    amended = 0
    with context.independent_steps() as steps:
        for row in rows(context, entity, query, query.limit, fields=(ID,)):
            which = {ID: row[ID], "$and": [condition]}
            with context.writing(entity):
                amended += write_one(context.collection(entity), which, change, session=context.session)
            steps.done()
    return amended


def update_each(
    context: RepositoryContext,
    codec: Codec[Any],
    condition: Document,
    ids: Sequence[object],
    sets: FieldUpdates,
) -> list[Document]:
    """Set fields of some documents that satisfy a condition; return those that did, as they are then."""
    updated: list[Document] = []
    with context.independent_steps() as steps:
        for key in ids:
            # Under $and, because the condition of the list may be about _id too.
            document = update(context, codec, {ID: key, "$and": [condition]}, sets)
            if document is not None:
                updated.append(document)
                steps.done()
    return updated


def readable_ids(context: RepositoryContext, entity: Entity, query: Query) -> list[object]:
    """Return the ``_id`` of the first documents of a list that can be read: before they are changed."""
    codec, wanted = codec_of(entity), query.limit
    tenant = codec.names[entity.tenant_field] if entity.tenant_field is not None else ""

    def readable(document: Document) -> object:
        codec.decode(document)
        return document[ID]

    while True:
        found = rows(context, entity, query, wanted)
        ids, _ = decoded(
            found, readable, (lambda row: value_at(row, tenant)) if query.skips_undecodable else None
        )
        if ids or len(found) < wanted:
            return ids[: query.limit]
        wanted *= 2


def update(
    context: RepositoryContext,
    codec: Codec[Any],
    condition: Document,
    sets: FieldUpdates,
) -> Document | None:
    """Set fields of one document; return it as it is then."""
    # A pipeline, because only there the time of the server can be part of a sum.
    change = [{"$set": set_to(codec, sets)}]
    with context.writing(codec.entity):
        found = context.collection(codec.entity).find_one_and_update(
            condition, change, return_document=ReturnDocument.AFTER, session=context.session
        )
    return None if found is None else converted(found)


def set_to(codec: Codec[Any], sets: FieldUpdates) -> Document:
    """Return the expressions of some changes, by stored name."""
    changed: Document = {codec.names[name]: expression(codec, name, change) for name, change in sets.items()}
    if codec.entity.versioned:
        # Documents that another service wrote have no version.
        changed[VERSION] = {"$add": [{"$ifNull": [f"${VERSION}", Int64(0)]}, Int64(1)]}
    return changed


def expression(codec: Codec[Any], name: str, change: object) -> object:
    """Return the expression of one change."""
    if isinstance(change, Unset):
        return "$$REMOVE"
    if isinstance(change, ServerTime):
        return {"$add": ["$$NOW", change.later // MILLISECOND]}
    if isinstance(change, Add):
        whole = Int64 if is_long(codec, name) else int
        return {"$add": [{"$ifNull": [f"${codec.names[name]}", whole(0)]}, whole(change.number)]}
    if isinstance(change, int) and not isinstance(change, bool) and is_long(codec, name):
        return Int64(change)
    # A text that begins with a dollar sign would be read as a field.
    return {"$literal": codec.stored_value(name, change)}


def is_long(codec: Codec[Any], name: str) -> bool:
    """Whether documents hold an integer in 64 bits whatever its value."""
    return name in codec.longs or name in codec.entity.markers
