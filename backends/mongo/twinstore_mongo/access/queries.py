"""Turns a :class:`~twinstore.access.query.Query` into a filter of MongoDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bson import Binary, ObjectId
from bson.binary import UUID_SUBTYPE

from twinstore.access.protocol import UniqueKey
from twinstore.catalog.conditions import IsNull, IsPresent, OneOf
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.models.json_text import INT64_MIN
from twinstore.models.shapes import Kind
from twinstore_mongo.mapping.layout import ID, operator_of, value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twinstore.access.paging import SortKey, SortValue
    from twinstore.access.query import Query
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.codec import Codec

# MongoDB compares within one type only, so "not null" is "not before the first value" of the type.
FIRST_INSTANT: Final = datetime(1, 1, 1, tzinfo=UTC)
FIRST_IDS: Final[Mapping[Kind, object]] = {
    Kind.OBJECT_ID: ObjectId(bytes(12)),
    Kind.UUID: Binary(bytes(16), UUID_SUBTYPE),
}


def compiled(codec: Codec[Any], query: Query) -> Document:
    """Return the filter of a query."""
    clauses = [owned_by(codec, query.scope), *conditions_of(codec, query.where)]
    if query.after is not None:
        clauses += following(codec, query.order, query.after)
    return merged(clauses)


def owned_by(codec: Codec[Any], scope: Tenants) -> Document:
    """Return the filter of the rows in a scope; it does not separate rows that their parents own."""
    if codec.tenant is None:
        return {}
    if isinstance(scope, Tenant):
        return {codec.tenant: scope.id}
    return {} if scope is ALL_TENANTS else {codec.tenant: None}


def filter_of(codec: Codec[Any], key: Key | UniqueKey) -> Document:
    """Return the filter of one key, for any owner of its row."""
    if not isinstance(key, UniqueKey):
        return codec.place(key)
    names, values, where = places_of(codec, key)
    found: Document = dict(zip(names, values, strict=True))
    return merged([found, *conditions_of(codec, where)]) if where else found


def place_of(codec: Codec[Any], scope: Tenants, key: Key | UniqueKey) -> Document:
    """Return the filter of one key among the rows in a scope."""
    # Nearly every call; the same, where the tenant is no part of the key.
    if isinstance(scope, Tenant) and isinstance(key, tuple) and codec.tenant not in codec.key:
        found = codec.place(key)
        # No upsert makes a document of an _id and of one part of it.
        inside = codec.entity.key_as_id and value_at(found, codec.tenant or "") == scope.id
        return found if codec.tenant is None or inside else {**found, codec.tenant: scope.id}
    return merged((filter_of(codec, key), owned_by(codec, scope)))


def any_of(codec: Codec[Any], keys: Sequence[Key | UniqueKey]) -> Document:
    """Return the filter of some keys of one kind, for any owner of their rows."""
    if codec.entity.key_as_id and not isinstance(keys[0], UniqueKey):
        return {ID: {"$in": [codec.identity(key) for key in keys if isinstance(key, tuple)]}}
    names, _, where = places_of(codec, keys[0])
    groups: dict[Key, list[str | int]] = {}
    for key in keys:
        *heads, last = stored_values(codec, key)
        groups.setdefault(tuple(heads), []).append(last)
    clauses = [
        {**dict(zip(names, heads, strict=False)), names[-1]: {"$in": lasts}}
        for heads, lasts in groups.items()
    ]
    either: Document = clauses[0] if len(clauses) == 1 else {"$or": clauses}
    return merged([either, *conditions_of(codec, where)])


def places_of(codec: Codec[Any], key: Key | UniqueKey) -> tuple[tuple[str, ...], Key, Sequence[Condition]]:
    """Return the stored names of a key, its values, and what else is true of the rows that have it."""
    if isinstance(key, UniqueKey):
        names = tuple(codec.names[name] for name in key.index.names)
        return names, stored_values(codec, key), key.index.where
    return codec.key, codec.stored_key(key), ()


def stored_values(codec: Codec[Any], key: Key | UniqueKey) -> Key:
    """Return the values of a key as documents hold them."""
    if not isinstance(key, UniqueKey):
        return codec.stored_key(key)
    if not codec.writers:  # as of nearly every entity
        return key.values
    stored: Any = map(codec.stored_value, key.index.names, key.values)
    return tuple(stored)


def conditions_of(codec: Codec[Any], where: Iterable[Condition]) -> list[Document]:
    """Return the filters of some conditions."""
    names = codec.names
    if codec.writers:
        return [{names[item.field]: operator_of(stored_condition(codec, item))} for item in where]
    return [{names[item.field]: operator_of(item)} for item in where]


def stored_condition(codec: Codec[Any], item: Condition) -> Condition:
    """Return a condition with its values as documents hold them."""
    if isinstance(item, IsNull | IsPresent) or item.field not in codec.writers:
        return item
    # Any, because the client takes more than the conditions of a caller have.
    stored: Any = codec.writers[item.field]
    if isinstance(item, OneOf):
        return replace(item, values=tuple(map(stored, item.values)))
    return replace(item, value=stored(item.value))


def merged(clauses: Iterable[Document]) -> Document:
    """Return one filter; clauses on the same field stay apart unless they are equal."""
    result: Document = {}
    rest: list[Document] = []
    for clause in clauses:
        if result.keys().isdisjoint(clause):
            result |= clause
        elif not clause.items() <= result.items():
            rest.append(clause)
    return {**result, "$and": rest} if rest else result


def following(codec: Codec[Any], order: tuple[SortKey, ...], after: tuple[SortValue, ...]) -> list[Document]:
    """Return what holds for the rows strictly after a sort key.

    The first clause bounds the leading field, so that the scan of the index starts near the key; the second
    decides among the rows that are equal in it.
    """
    head, value = order[0], codec.stored_value(order[0].field, after[0])
    name = codec.names[head.field]
    beyond = strictly(codec, value, head)
    if len(order) == 1:
        # Nothing comes after null where nulls are last, and an empty $in holds for nothing.
        return beyond if len(beyond) == 1 else [{"$or": beyond} if beyond else {name: {"$in": []}}]
    rest = merged(following(codec, order[1:], after[1:]))
    equal = {name: value, **rest} if name not in rest else {"$and": [{name: value}, rest]}
    either: Document = {"$or": [equal, *beyond]}
    if value is None or (head.nullable and head.descending):
        return [either]  # no bound of one type holds for nulls too
    return [{name: {"$lte" if head.descending else "$gte": value}}, either]


def strictly(codec: Codec[Any], value: object, key: SortKey) -> list[Document]:
    """Return what may hold for the values after this one; nulls come before all others."""
    name = codec.names[key.field]
    if value is None:
        return [] if key.descending else [{name: {"$gte": first_of(codec, key)}}]
    if not key.descending:
        return [{name: {"$gt": value}}]
    return [{name: {"$lt": value}}, {name: None}] if key.nullable else [{name: {"$lt": value}}]


def first_of(codec: Codec[Any], key: SortKey) -> object:
    """Return the first value of the type by which a key sorts."""
    if key.time:
        return FIRST_INSTANT
    if key.decimal:
        return float("-inf")
    first = FIRST_IDS.get(codec.entity.known[key.field]) if codec.writers else None
    return (INT64_MIN if key.number else "") if first is None else first
