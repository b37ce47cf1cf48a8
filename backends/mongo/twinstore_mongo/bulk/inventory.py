"""Which collections of a module a database has, for callers that only read it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import isnan
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from twinstore.bulk.changes import NO_CHANGES
from twinstore.bulk.port import Inventory
from twinstore.errors import ConfigurationError
from twinstore_mongo.bulk.lookups import MOST_WITHOUT_INDEX, selecting_tenant, serves_lookup
from twinstore_mongo.bulk.places import place_of
from twinstore_mongo.client.balancer import balancer_remark
from twinstore_mongo.client.errors import CLIENT_ERRORS, DRIVER, translate
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.key_order import SORTED_ROWS, gives_order, order_of
from twinstore_mongo.mapping.layout import index_spec, index_specs, stored_names
from twinstore_mongo.schema.comparison import AGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.bulk.changes import DocumentChanges, Lookup
    from twinstore.catalog.entity import Entity
    from twinstore_mongo.client.connection import Connection
    from twinstore_mongo.mapping.layout import IndexSpec

UNAUTHORIZED: Final = 13
VIEW: Final = "view"
TIME_SERIES: Final = "timeseries"


def inventory_of(
    connection: Connection, entities: Sequence[Entity], changes: DocumentChanges = NO_CHANGES
) -> tuple[Inventory, ...]:
    """Return what there is of each entity, whose rows are read by the keys that changes say.

    Raises:
        ConfigurationError: the user may not read the database, a view compares by its own collation, there is
            a time series, or rows of a large collection are looked up by a field without an index.
    """
    store = connection.store
    try:
        with store.limited():
            real = {item["name"]: item for item in store.database.list_collections()}
            found = tuple(
                entity_inventory(connection, entity, real.get(connection.collection_name(entity)), changes)
                for entity in entities
            )
            balancer = balancer_remark(store.client)
            if balancer is None:
                return found
            return tuple(replace(item, remarks=(*item.remarks, balancer)) for item in found)
    except CLIENT_ERRORS as error:
        if isinstance(error, OperationFailure) and error.code == UNAUTHORIZED:
            raise ConfigurationError(
                f"The user of the connection string may not read {store.database.name} on "
                f"{store.where.server}; reading needs the role read on this database, and nothing else.",
                driver=DRIVER,
            ) from error
        raise translate(error, store.where) from error


def entity_inventory(
    connection: Connection, entity: Entity, real: Mapping[str, Any] | None, changes: DocumentChanges
) -> Inventory:
    """Return what there is of one entity; ``real`` is what the server says of its collection."""
    name = connection.collection_name(entity)
    if real is None:
        warning = f"There is no collection {name}; it counts as empty."
        return Inventory(entity=entity.name, present=False, warnings=(warning,))
    if real.get("type") == TIME_SERIES:
        raise ConfigurationError(
            f"{name} in {connection.store.database.name} is a time series, in which the server keeps no "
            "document as it was stored and no index of its key; copy it into an ordinary collection of that "
            "name in another database, and read that one.",
            entity=entity.name,
            driver=DRIVER,
        )
    if real.get("type") == VIEW:
        if real.get("options", {}).get("collation") is not None:
            raise ConfigurationError(
                f"{name} in {connection.store.database.name} is a view with its own collation, so its keys "
                "cannot be read in the order of other stores; create the view again without a collation.",
                entity=entity.name,
                driver=DRIVER,
            )
        indexes: list[Mapping[str, Any]] = []
    else:
        indexes = list(connection.store.collection(name).list_indexes())
    check_lookups(connection, entity, indexes, changes.lookups(entity))
    return Inventory(
        entity=entity.name,
        warnings=tuple(warnings_of(connection, entity, indexes, place_of(entity, changes).key)),
        remarks=tuple(removals_by_others(name, entity, indexes)),
        removed_after=removed_after(entity, indexes),
    )


def check_lookups(
    connection: Connection,
    entity: Entity,
    indexes: Sequence[Mapping[str, Any]],
    lookups: Sequence[Lookup],
) -> None:
    """Refuse look-ups of which each would read a large collection.

    Raises:
        ConfigurationError: there is one.
    """
    unserved = [item for item in lookups if not any(serves_lookup(index, item) for index in indexes)]
    if not unserved:
        return
    name = connection.collection_name(entity)
    rows = connection.store.collection(name).estimated_document_count()
    if rows > MOST_WITHOUT_INDEX:
        by, tenant = unserved[0].by, selecting_tenant(unserved[0])
        either = f"{by}, or with {tenant} and {by}" if tenant else by
        raise ConfigurationError(
            f"{name} in {connection.store.database.name} has {rows:,} documents and no index that begins "
            f"with {either}, so each look-up would read all of them. Create such an index, without a filter "
            "or a collation, or remove the [[lookup]].",
            entity=entity.name,
            driver=DRIVER,
        )


def ages_of(indexes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, timedelta]]:
    """Yield the field of each TTL index with the age at which the server removes documents by it."""
    for index in indexes:
        # An age may be no number at all, in which case releases disagree about what the server does.
        if index.get(AGE) is not None and not isnan(index[AGE]):
            yield next(iter(index["key"])), timedelta(seconds=index[AGE])


def removed_after(entity: Entity, indexes: Sequence[Mapping[str, Any]]) -> timedelta | None:
    """Return the age at which a TTL index removes documents by the field of their retention."""
    wanted = retention_field(entity)
    return min((age for field, age in ages_of(indexes) if field == wanted), default=None)


def retention_field(entity: Entity) -> str | None:
    """Return the stored name of the instant that retention judges by."""
    return None if entity.retention is None else stored_names(entity)[entity.retention.field]


def removals_by_others(name: str, entity: Entity, indexes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what the server removes by an instant that none of our retentions uses."""
    for field, age in ages_of(indexes):
        if field != retention_field(entity):
            yield (
                f"The server removes documents of {name} by itself, {age.total_seconds():,.0f} s after their "
                f"{field}; what it removes between a copy and the end of a verification is named as extra."
            )


def warnings_of(
    connection: Connection, entity: Entity, indexes: Sequence[Mapping[str, Any]], key: Sequence[str]
) -> Iterator[str]:
    """Yield what reading by a key costs more than it need, and why."""
    name, order = connection.collection_name(entity), order_of(key)
    keyless = not any(gives_order(index, order) for index in indexes)
    missing = [index.name for index in wanted_indexes(entity) if not serves(index, indexes)]
    if not keyless and not missing:
        return
    # From metadata; an exact number would need a pass over the collection that this warns of.
    rows = connection.store.collection(name).estimated_document_count()
    if keyless:
        fields = ", ".join(f"{field}: {direction}" for field, direction in order)
        times = "once" if rows <= SORTED_ROWS else f"{1 + -(-rows // SORTED_ROWS):,} times"
        yield (
            f"{name} has no index on {{{fields}}} that compares texts by code point, so a copy reads the "
            f"whole collection ({rows:,} documents) and sorts it {times}, on disk where memory is short, and "
            f"again after an interruption; db.{name}.createIndex({{{fields}}}) avoids that."
        )
    if missing:
        yield (
            f"{name} lacks the indexes {', '.join(missing)}, so a list that a verification asks for "
            f"may read the whole collection ({rows:,} documents)."
        )


def wanted_indexes(entity: Entity) -> list[IndexSpec]:
    """Return the indexes that serve the lists of an entity, as it describes them."""
    key = tuple(order_of(codec_of(entity).key))
    inner = [index_spec(entity, index) for index in entity.indexes if entity.is_inner(index)]
    # That of the key is warned of apart; one that removes what is old, leaves rows out while an option is
    # off, or is about what is inside of a field serves no list.
    return [
        index
        for index in index_specs(entity)
        if index.key != key and index.retention is None and index.sparse_unless is None and index not in inner
    ]


def serves(wanted: IndexSpec, indexes: Sequence[Mapping[str, Any]]) -> bool:
    """Check whether some index, whatever its name, does what the wanted one is for."""
    # One that an option keeps sparse serves the lists that it is for, sparse or not.
    unfit = ("hidden", "collation") if wanted.sparse_unless else ("sparse", "hidden", "collation")
    return any(
        list(index["key"].items()) == list(wanted.key)
        and dict(index.get("partialFilterExpression", {})) == dict(wanted.partial)
        and not any(index.get(option) for option in unfit)
        for index in indexes
    )
