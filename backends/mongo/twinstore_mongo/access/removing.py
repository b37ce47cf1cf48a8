"""Removing the first rows of a list, with the rows that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.query import pinned_key
from twinstore_mongo.access.queries import compiled, merged
from twinstore_mongo.access.reading import is_hidden, rows
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.layout import ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.client.types import Document

KEYS_AT_ONCE: Final = 500


def remove(context: RepositoryContext, entities: Sequence[Entity], entity: Entity, query: Query) -> int:
    """Remove the first rows of a list; see :meth:`twinstore.access.protocol.Access.remove`."""
    if is_hidden(context, entity, query):
        return 0
    if children_of(entities, entity):
        return context.atomic(lambda inner: remove_families(inner, entities, entity, query))
    condition = compiled(codec_of(entity), query)
    if pinned_key(entity, query) is not None:
        return delete_one(context, entity, condition)
    # deleteMany has neither an order nor a limit.
    found = rows(context, entity, query, query.limit, fields=(ID,))
    return delete(context, entity, still_matching(found, condition)) if found else 0


def remove_keys(
    context: RepositoryContext, entities: Sequence[Entity], entity: Entity, keys: Sequence[Key]
) -> int:
    """Remove the rows of some keys, and those that belong to them; return how many of the keys were there."""
    codec = codec_of(entity)
    removed = 0
    for start in range(0, len(keys), KEYS_AT_ONCE):
        alternatives = list(map(codec.place, keys[start : start + KEYS_AT_ONCE]))
        with context.writing(entity):
            collection = context.collection(entity)
            cursor = collection.find(
                {"$or": alternatives}, dict.fromkeys((ID, *codec.key), 1), session=context.session
            )
            found = list(map(converted, cursor))
        if found:
            removed += delete(context, entity, {ID: {"$in": [row[ID] for row in found]}})
            remove_children(context, entities, entity, [row[codec.key[-1]] for row in found])
    return removed


def remove_families(
    context: RepositoryContext, entities: Sequence[Entity], entity: Entity, query: Query
) -> int:
    """Remove rows, and then the children of those that are gone.

    Rows that have changed meanwhile so that they match no longer stay, and so do their children.
    """
    codec = codec_of(entity)
    (name,) = codec.key
    found = rows(context, entity, query, query.limit, fields=(name,))
    if not found:
        return 0
    removed = delete(context, entity, still_matching(found, compiled(codec, query)))
    kept = set[object]()
    if removed < len(found):
        kept = {row[ID] for row in named(context, entity, ID, [row[ID] for row in found])}
    remove_children(context, entities, entity, [row[name] for row in found if row[ID] not in kept])
    return removed


def remove_children(
    context: RepositoryContext, entities: Sequence[Entity], parent: Entity, keys: list[object]
) -> None:
    """Remove the rows that belong to some rows, and those that belong to them."""
    for child, field in children_of(entities, parent) if keys else ():
        name = codec_of(child).names[field]
        # Read before they are deleted, because afterwards the parents of the next ones are unknown.
        grandchildren = children_of(entities, child)
        found = named(context, child, name, keys, codec_of(child).key) if grandchildren else []
        delete(context, child, {name: {"$in": keys}})
        remove_children(context, entities, child, [row[codec_of(child).key[-1]] for row in found])


def children_of(entities: Sequence[Entity], parent: Entity) -> list[tuple[Entity, str]]:
    """Return the entities whose rows belong to rows of this one, each with the field that says so."""
    return [
        (entity, entity.parent.field)
        for entity in entities
        if entity.parent is not None and entity.parent.entity == parent
    ]


def named(
    context: RepositoryContext, entity: Entity, name: str, values: list[object], fields: Sequence[str] = (ID,)
) -> list[Document]:
    """Return some fields of the rows that have one of some values."""
    with context.writing(entity):
        found = context.collection(entity).find(
            {name: {"$in": values}}, dict.fromkeys(fields, 1), session=context.session
        )
        return list(map(converted, found))


def still_matching(found: Sequence[Document], condition: Document) -> Document:
    """Return the filter of those of some rows that still satisfy a condition."""
    return merged(({ID: {"$in": [row[ID] for row in found]}}, condition))


def delete_one(context: RepositoryContext, entity: Entity, condition: Document) -> int:
    """Remove the one row of a key; unlike a removal of many it is retried by the client after a failover."""
    with context.writing(entity):
        return context.collection(entity).delete_one(condition, session=context.session).deleted_count


def delete(context: RepositoryContext, entity: Entity, condition: Document) -> int:
    """Remove what satisfies a condition; return how many documents that were."""
    with context.writing(entity):
        return context.collection(entity).delete_many(condition, session=context.session).deleted_count
