"""Reading rows of any entity: one, some, a list in order, or only how many."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from twinstore.access.errors import not_found
from twinstore.access.protocol import UniqueKey
from twinstore.access.query import label_of_value
from twinstore.catalog.conditions import Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, TenancyKind
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import parse_timestamp
from twinstore.models.shapes import Kind
from twinstore_mongo.access.queries import any_of, compiled, merged, owned_by, place_of, stored_values
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.mapping.codec import codec_of, converted, sorted_along_index
from twinstore_mongo.mapping.key_order import SIMPLE
from twinstore_mongo.mapping.layout import field_of, value_at

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from twinstore.access.paging import Page, SortKey, SortValue
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.codec import Codec

M = TypeVar("M", bound=CanonicalModel)


def one(
    context: RepositoryContext, entity: Entity[M], scope: Tenants, key: Key | UniqueKey
) -> Document | None:
    """Return the document of a key."""
    codec = codec_of(entity)
    condition = place_of(codec, scope, key)
    with context.reading(entity, key):
        found = context.collection(entity).find_one(condition, session=context.session, collation=SIMPLE)
    shown = [] if found is None else without_orphans(context, entity, scope, [converted(found)])
    return shown[0] if shown else None


def many(
    context: RepositoryContext, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
) -> tuple[Row[M] | None, ...]:
    """Return the rows of some keys, in their order."""
    decode = codec_of(entity).decode
    found = several(context, entity, scope, keys)
    return tuple(None if document is None else decode(document) for document in found)


def several(
    context: RepositoryContext, entity: Entity, scope: Tenants, keys: Sequence[Key | UniqueKey]
) -> list[Document | None]:
    """Return the documents of some keys of one kind, in their order."""
    if len(keys) == 1:
        return [one(context, entity, scope, keys[0])]
    codec = codec_of(entity)
    condition = merged((any_of(codec, keys), owned_by(codec, scope)))
    with context.reading(entity):
        cursor = context.collection(entity).find(condition, session=context.session, collation=SIMPLE)
        found = list(map(converted, cursor))
    index = keys[0].index.names if isinstance(keys[0], UniqueKey) else entity.key
    names = [codec.names[name] for name in index]
    by_key = {
        tuple(value_at(document, name) for name in names): document
        for document in without_orphans(context, entity, scope, found)
    }
    return [by_key.get(stored_values(codec, key)) for key in keys]


def page(context: RepositoryContext, entity: Entity[M], query: Query) -> Page[Row[M]]:
    """Return a page of a list."""
    codec = codec_of(entity)
    # One extra row shows whether there is another page, without counting.
    found = rows(context, entity, query, query.limit + 1)
    # Its content is unused and may be large.
    found[query.limit :] = [{} for _ in found[query.limit :]]
    tenant = codec.names[entity.tenant_field] if entity.tenant_field is not None else ""
    return query.page(
        found,
        codec.decode,
        lambda row: sort_key(row, query.order, codec),
        lambda row: value_at(row, tenant),
    )


def rows(
    context: RepositoryContext, entity: Entity, query: Query, wanted: int, fields: Sequence[str] | None = None
) -> list[Document]:
    """Return the first documents of a list, in its order; only some fields of them where some are named."""
    if is_hidden(context, entity, query):
        return []
    codec = codec_of(entity)
    condition, reading = compiled(codec, query), codec.readings.of(query)
    with context.reading(entity):
        if fields is not None:
            fields = [*map(field_of, fields), *(field_of(name) for name, _ in reading.order)]
        find_rows = partial(
            context.collection(entity).find, projection=fields, session=context.session, collation=SIMPLE
        )
        if reading.index_sort is not None:
            return list(map(converted, sorted_along_index(find_rows, condition, reading, wanted)))
        cursor = find_rows(condition)
        return list(map(converted, (cursor.sort(reading.order) if reading.order else cursor).limit(wanted)))


def keys(context: RepositoryContext, entity: Entity, query: Query) -> tuple[Key, ...]:
    """Return the keys of the first documents of a list, those too that cannot be read."""
    codec = codec_of(entity)
    found = rows(context, entity, query, query.limit, fields=codec.key)
    return tuple(key for key in map(codec.key_of, found) if key is not None)


def count(context: RepositoryContext, entity: Entity, query: Query, by: str) -> dict[str, int]:
    """Return how many rows of a list there are by the wire form of a field."""
    if is_hidden(context, entity, query):
        return {}
    codec = codec_of(entity)
    pipeline: list[Document] = [
        {"$match": compiled(codec, replace(query, after=None))},
        {"$group": {"_id": f"${codec.names[by]}", "count": {"$sum": 1}}},
    ]
    counted: Counter[str] = Counter()
    with context.reading(entity):
        groups = context.collection(entity).aggregate(pipeline, session=context.session, collation=SIMPLE)
        for group in map(converted, groups):
            # Several stored forms of a number or an instant are one value to a model.
            value = wire_value(entity.known[by], group["_id"])
            counted[label_of_value(codec.readers[by](value) if by in codec.readers else value)] += group[
                "count"
            ]
    return dict(counted)


def wire_value(kind: Kind, value: Any) -> object:  # noqa: ANN401  # whatever is stored
    """Return a stored value as the model would have it, where a number or an instant has several forms."""
    if kind is Kind.INTEGER and isinstance(value, float) and value.is_integer():
        return int(value)
    return parse_timestamp(value) if kind is Kind.INSTANT and isinstance(value, str) else value


def sort_key(
    document: Mapping[str, Any], order: tuple[SortKey, ...], codec: Codec[Any]
) -> tuple[SortValue, ...]:
    """Return the values by which a document is sorted, for a page token."""
    names = codec.names
    if not codec.readers:  # as of nearly every entity
        return tuple(key_part(value_at(document, names[key.field]), key) for key in order)
    # Any, because what is stored may be of another type, which makes no token.
    found: list[Any] = []
    for key in order:
        value = value_at(document, names[key.field])
        read = codec.readers.get(key.field)
        found.append(key_part(value, key) if read is None else read(value))
    return tuple(found)


def key_part(value: Any, key: SortKey) -> SortValue:  # noqa: ANN401  # whatever is stored
    """Return one value of a sort key; an instant stored as text becomes one."""
    if value is None:
        return None
    if key.time:
        return parse_timestamp(value)
    return int(value) if key.number else value


# Rows that belong to a parent: whether it exists, and whether a caller sees it.
#
# The server keeps no references, so the parent is read first: one round trip more than for other rows.


KnownRows = tuple[tuple["Entity", "Row[Any]"], ...]


def without_orphans(
    context: RepositoryContext, entity: Entity, scope: Tenants, documents: list[Document]
) -> list[Document]:
    """Return the documents that a scope shows; where a parent owns them, those whose parent it shows."""
    if not documents or not decided_by_parent(entity, scope):
        return documents
    field = codec_of(entity).names[parent_of(entity)[1]]
    seen = seen_parents(context, entity, scope, {value_at(document, field) for document in documents})
    return [document for document in documents if value_at(document, field) in seen]


def is_hidden(context: RepositoryContext, entity: Entity, query: Query) -> bool:
    """Whether a list is empty because the parent that it is about is absent or foreign."""
    if not decided_by_parent(entity, query.scope):
        return False
    _, field = parent_of(entity)
    values = [item.value for item in query.where if isinstance(item, Equals) and item.field == field]
    if not values:
        raise LookupError(
            f"a list of {entity.name} needs the {field} that it is about"
        )  # a programmer's mistake
    return not seen_parents(context, entity, query.scope, values[:1])


def check_parent(
    context: RepositoryContext, entity: Entity, scope: Tenants, row: Row[Any], known_rows: KnownRows = ()
) -> None:
    """Make sure that the parent of a new row exists; ``known_rows`` has the rows of which that is known.

    Raises:
        NotFoundError: it is absent or foreign.
    """
    if entity.parent is None:
        return
    value = entity.value(row.model, row.storage, entity.parent.field)
    parent = entity.parent.entity
    if not isinstance(value, (str, int)) or is_known(known_rows, parent, scope, value):
        return
    if not seen_parents(context, entity, scope, [value]):
        raise not_found(parent, str(value), DRIVER)


def seen_parents(
    context: RepositoryContext, entity: Entity, scope: Tenants, values: Collection[object]
) -> set[object]:
    """Return which of some parents a scope shows, each by the last part of its key."""
    parent, _ = parent_of(entity)
    codec = codec_of(parent)
    name = codec.names[parent.key[-1]]
    if codec.writers:
        values = [codec.stored_value(parent.key[-1], value) for value in values]
    # One query for all rows of a list, whatever their number of parents.
    condition = merged(({name: {"$in": list(values)}}, owned_by(codec, scope)))
    fields = [name] if parent.parent is None else [name, codec.names[parent.parent.field]]
    with context.reading(parent):
        cursor = context.collection(parent).find(condition, fields, session=context.session, collation=SIMPLE)
        found = list(map(converted, cursor))
    return {document[name] for document in without_orphans(context, parent, scope, found)}


def decided_by_parent(entity: Entity, scope: Tenants) -> bool:
    """Whether only the parent decides who sees a row."""
    return entity.tenancy.kind is TenancyKind.PARENT and scope is not ALL_TENANTS


def parent_of(entity: Entity) -> tuple[Entity, str]:
    """Return the parent of an entity and the field that holds its key."""
    if entity.parent is None:
        raise LookupError(f"{entity.name} has no parent")  # met by programmers only
    return entity.parent.entity, entity.parent.field


def is_known(known_rows: KnownRows, parent: Entity, scope: Tenants, value: str | int) -> bool:
    """Whether a scope sees one of some rows, found by the last part of its key."""
    return any(
        entity == parent
        and entity.key_of(row.model, row.storage)[-1] == value
        and entity.is_seen(scope, row.model, row.storage)
        for entity, row in known_rows
    )
