"""What the repositories share: reading one row, reading a list in order, removing old rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from twinstore.canonical import CanonicalModel
from twinstore.fields import parse_timestamp
from twinstore.paging import SortKey
from twinstore.query import AtMost, Query, batch_size_argument
from twinstore.scope import instant_argument, model_argument
from twinstore_mongo.compile import compiled, sort_of
from twinstore_mongo.key_order import collation_of
from twinstore_mongo.ordering import along_index

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from twinstore.catalog import Entity
    from twinstore.paging import KeyPart, Page
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.compile import Names
    from twinstore_mongo.connection import Document
    from twinstore_mongo.ordering import IndexOrder
    from twinstore_mongo.units import Unit

__all__ = ["MongoRepository"]

T = TypeVar("T")
M = TypeVar("M", bound=CanonicalModel)

ID: Final = "_id"


class MongoRepository:
    """Base of the repositories of one entity each."""

    names: ClassVar[Names] = {"id": ID}

    def __init__(self, unit: Unit) -> None:
        """Take what the set of repositories shares."""
        self._unit = unit

    def _admit(self, tenant_id: str) -> str:
        self._unit.state.check()
        return self._unit.scope.admit(tenant_id)

    def _admit_system(self, purpose: str) -> None:
        self._unit.state.check()
        self._unit.scope.admit_system(purpose)

    def _admit_optional(self, tenant_id: str | None, purpose: str) -> str | None:
        self._unit.state.check()
        return self._unit.scope.admit_optional(tenant_id, purpose)

    def _model(self, value: object, cls: type[T], name: str) -> T:
        self._unit.state.check()
        return model_argument(value, cls, name)

    def _rows(self, entity: Entity, query: Query) -> list[Document]:
        """Return up to ``limit + 1`` documents of a query, in its order."""
        return rows(self._unit, entity, query, self.names)

    def _page(self, codec: Codec[M], query: Query, along: IndexOrder | None = None) -> Page[M]:
        """Return a page; ``along`` is the order of the index where it differs in rows of equal time."""
        found = rows(self._unit, codec.entity, query, self.names, along)
        # The extra row is not shown, so it need not be readable.
        shown = [(row, codec.decode(row)) for row in found[: query.limit]]
        extra = [(row, None) for row in found[query.limit :]]
        return query.page([*shown, *extra], second, lambda pair: sort_key(pair[0], query.order, self.names))

    def _first(self, codec: Codec[M], query: Query) -> tuple[M, ...]:
        return tuple(codec.decode(row) for row in self._rows(codec.entity, query)[: query.limit])

    def _purge(self, entity: Entity, tenant: str | None, before: datetime, batch_size: int) -> int:
        """Remove rows past their age, oldest first; return how many."""
        query = expired(entity, tenant, instant_argument(before, "before"), batch_size)
        along = [(query.order[0].field, 1)]
        self._unit.check_writable()
        removed = 0
        while found := rows(self._unit, entity, query, self.names, along)[:batch_size]:
            removed += self._remove(entity, query, [row[ID] for row in found])
        return removed

    def _remove(self, entity: Entity, query: Query, keys: list[object]) -> int:
        """Remove rows unless they have changed meanwhile so that they are no longer due."""
        condition = {ID: {"$in": keys}, **compiled(query, self.names)}
        with self._unit.writing(entity):
            collection = self._unit.collection(entity)
            return collection.delete_many(condition, session=self._unit.session).deleted_count


def one(unit: Unit, entity: Entity, condition: Document, key: str) -> Document | None:
    """Return one document."""
    with unit.reading(entity, key):
        return unit.collection(entity).find_one(
            condition, session=unit.session, collation=collation_of(unit.store)
        )


def rows(
    unit: Unit, entity: Entity, query: Query, names: Names, along: IndexOrder | None = None
) -> list[Document]:
    """Return up to ``limit + 1`` documents of a query, in its order."""
    if query.matches_nothing:
        unit.state.check()
        return []
    with unit.reading(entity):
        collection, condition, wanted = unit.collection(entity), compiled(query, names), query.limit + 1
        collation = collation_of(unit.store)
        if along is not None:
            return along_index(collection, condition, along, wanted, unit.session, collation=collation)
        cursor = collection.find(condition, session=unit.session, collation=collation)
        return list(cursor.sort(sort_of(query, names)).limit(wanted))


def second(pair: tuple[Document, M | None]) -> M:
    """Return the model of a row that is shown."""
    return cast("M", pair[1])


def sort_key(row: Mapping[str, Any], order: tuple[SortKey, ...], names: Names) -> tuple[KeyPart, ...]:
    """Return the values by which a document is sorted, for a page token."""
    return tuple(key_part(row.get(names.get(key.field, key.field)), key) for key in order)


def key_part(value: Any, key: SortKey) -> KeyPart:  # noqa: ANN401  # whatever is stored
    """Return one value of a sort key; an instant stored as text becomes one."""
    return parse_timestamp(value) if key.time and value is not None else value


def expired(entity: Entity, tenant: str | None, before: datetime, batch_size: int) -> Query:
    """Return the query of the rows that retention removes next."""
    if entity.retention is None:
        raise LookupError(f"{entity.name} is kept for ever")  # a programmer's mistake
    limit = batch_size_argument(batch_size)
    time = entity.retention.field
    order = (SortKey(time, time=True), *map(SortKey, entity.key))
    where = (AtMost(time, before),)
    return Query(entity=entity.name, tenant_id=tenant, where=where, order=order, limit=limit)
