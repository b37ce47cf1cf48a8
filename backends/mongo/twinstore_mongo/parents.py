"""Rows that belong to a parent: whether it exists, and whether a caller sees it.

The server keeps no references, so the parent is read first: one round trip more than for other rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinstore.catalog import TenancyKind
from twinstore.failures import not_found
from twinstore.query import Equals
from twinstore.tenancy import ALL_TENANTS
from twinstore_mongo.codec import codec_of, converted
from twinstore_mongo.compile import merged, owned_by
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.key_order import SIMPLE

if TYPE_CHECKING:
    from collections.abc import Collection

    from twinstore.access import Row
    from twinstore.catalog import Entity
    from twinstore.query import Query
    from twinstore.tenancy import Tenants
    from twinstore_mongo.connection import Document
    from twinstore_mongo.context import RepositoryContext

__all__ = ["Held", "check_parent", "is_hidden", "without_orphans"]

Held = tuple[tuple["Entity", "Row[Any]"], ...]


def without_orphans(
    context: RepositoryContext, entity: Entity, scope: Tenants, documents: list[Document]
) -> list[Document]:
    """Return the documents that a scope shows; where a parent owns them, those whose parent it shows."""
    if not documents or not decided_by_parent(entity, scope):
        return documents
    field = codec_of(entity).names[parent_of(entity)[1]]
    seen = seen_parents(context, entity, scope, {document.get(field) for document in documents})
    return [document for document in documents if document.get(field) in seen]


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
    context: RepositoryContext, entity: Entity, scope: Tenants, row: Row[Any], held: Held = ()
) -> None:
    """Make sure that the parent of a new row exists; ``held`` has the rows of which that is known.

    Raises:
        NotFoundError: it is absent or foreign.
    """
    if entity.parent is None:
        return
    value = entity.value(row.model, row.storage, entity.parent.field)
    parent = entity.parent.entity
    if not isinstance(value, (str, int)) or is_held(held, parent, scope, value):
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
    # One query for all rows of a list, whatever their number of parents.
    condition = merged(({name: {"$in": list(values)}}, owned_by(codec, scope)))
    fields = [name] if parent.parent is None else [name, codec.names[parent.parent.field]]
    with context.reading(parent):
        cursor = context.collection(parent).find(condition, fields, session=context.session, collation=SIMPLE)
        found = list(map(converted, cursor))
    return {document[name] for document in without_orphans(context, parent, scope, found)}


def decided_by_parent(entity: Entity, scope: Tenants) -> bool:
    """Whether it takes the parent to tell who sees a row."""
    return entity.tenancy.kind is TenancyKind.PARENT and scope is not ALL_TENANTS


def parent_of(entity: Entity) -> tuple[Entity, str]:
    """Return the parent of an entity and the field that holds its key."""
    if entity.parent is None:
        raise LookupError(f"{entity.name} has no parent")  # met by programmers only
    return entity.parent.entity, entity.parent.field


def is_held(held: Held, parent: Entity, scope: Tenants, value: str | int) -> bool:
    """Whether a scope sees one of some rows, found by the last part of its key."""
    return any(
        entity == parent
        and entity.key_of(row.model, row.storage)[-1] == value
        and entity.is_seen(scope, row.model, row.storage)
        for entity, row in held
    )
