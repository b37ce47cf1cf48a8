"""Whole entities on MongoDB: counts, ranges, export, scan, import and ledger."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from twinstore.backend import UnitState
from twinstore.bulk import KeyRange
from twinstore.catalog import KeyType
from twinstore.forks import of_one_process
from twinstore.scope import UNBOUND, note_system_scope
from twinstore_mongo.bulk_export import Exporter, index_of, plain_part, tenant_condition
from twinstore_mongo.bulk_import import MongoImporter
from twinstore_mongo.bulk_ledger import MongoLedger
from twinstore_mongo.bulk_scan import Scan
from twinstore_mongo.codec import codec_of
from twinstore_mongo.derive import ID
from twinstore_mongo.doubles import raw_batches
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.positions import PointInTime, position_of, timestamp_of
from twinstore_mongo.units import Unit, translating

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo.collection import Collection

    from twinstore.bulk import Key, Position, Record, ScanRow
    from twinstore.catalog import Entity, Module
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Connection, Document, Store
    from twinstore_mongo.errors import Where

__all__ = ["MongoBulk"]

BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class MongoBulk:
    """Implements :class:`~twinstore.bulk.BulkPort`."""

    connection: Connection
    module: Module

    @property
    def identity(self) -> str:
        """Driver, hosts and database."""
        store = self.connection.store
        return f"{DRIVER} {store.where.hosts}/{store.database.name}"

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities in copy order: parents first."""
        return self.module.entities

    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by tenant; see the Protocol."""
        note_system_scope("bulk counts")
        store, codec = self.connection.store, codec_of(entity)
        owner = None if codec.tenant is None else f"${codec.tenant}"
        pipeline: list[Document] = [
            {"$match": tenant_condition(codec, tenant_id)},
            {"$group": {ID: owner, "count": {"$sum": 1}}},
        ]
        counted: Counter[str] = Counter()
        with translating(self._where(store, entity)), store.limited():
            for group in self._collection(entity).aggregate(pipeline):
                owner = group[ID]
                counted[owner if isinstance(owner, str) else ""] += group["count"]
        return dict(sorted(counted.items()))

    def position(self) -> Position | None:
        """Return the present cluster time; see the Protocol."""
        store = self.connection.store
        if not store.capabilities.point_in_time_reads:
            return None
        with translating(store.where), store.limited():
            return position_of(store.database.command("ping")["operationTime"])

    def cut(self, entity: Entity, rows: int, *, tenant_id: str | None = None) -> Iterator[KeyRange]:
        """Return ranges of about ``rows`` rows each; see the Protocol."""
        note_system_scope("bulk cut")
        lower: Key | None = None
        while (upper := self._key_after(entity, lower, rows, tenant_id)) is not None:
            yield KeyRange(lower, upper)
            lower = upper
        yield KeyRange(lower, None)

    def _key_after(self, entity: Entity, lower: Key | None, rows: int, tenant_id: str | None) -> Key | None:
        """Return the text key that follows ``rows`` rows after a key."""
        store, codec = self.connection.store, codec_of(entity)
        condition = tenant_condition(codec, tenant_id)
        typed: Document = {
            name: {"$type": TYPES[part.type]} for name, part in zip(codec.key, entity.key_parts, strict=True)
        }
        if not store.complete:
            return self._key_in_double(entity, lower, rows, typed | condition)
        with translating(self._where(store, entity)), store.limited():
            found = key_at(self._collection(entity), codec, lower, rows, condition)
            if found is not None and not entity.admits_key(found):
                # Half of a composed key may be of another type; a range cannot end there.
                found = key_at(self._collection(entity), codec, lower, rows, typed | condition)
        return found

    def _key_in_double(self, entity: Entity, lower: Key | None, rows: int, condition: Document) -> Key | None:
        collection, names = self._collection(entity), codec_of(entity).key
        keys = sorted(tuple(document[name] for name in names) for document in collection.find(condition))
        later = [key for key in keys if lower is None or key >= lower]
        return later[rows] if len(later) > rows else None

    def export(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = BATCH,
        as_of: Position | None = None,
    ) -> Iterator[list[Record]]:
        """Return the rows of a range in key order, in batches; see the Protocol."""
        batches = self._exported(entity, within, tenant_id, batch_size, as_of)
        return of_one_process(batches, "This export")

    def _exported(
        self, entity: Entity, within: KeyRange, tenant_id: str | None, batch_size: int, as_of: Position | None
    ) -> Iterator[list[Record]]:
        store, codec = self.connection.store, codec_of(entity)
        exporter = Exporter(codec)
        with self._reading(store, entity, as_of) as collection:
            if store.complete:
                yield from exporter.batches(
                    store, collection, within, tenant_id=tenant_id, batch_size=batch_size
                )
            else:
                condition = tenant_condition(codec, tenant_id)
                for raw in raw_batches(collection, codec.key, within, condition, batch_size):
                    yield exporter.decoded(raw)

    def scan(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = BATCH,
        as_of: Position | None = None,
    ) -> Iterator[list[ScanRow]]:
        """Return the rows of a range in key order for comparison; see the Protocol."""
        batches = self._scanned(entity, within, tenant_id, batch_size, as_of)
        return of_one_process(batches, "This scan")

    def _scanned(
        self, entity: Entity, within: KeyRange, tenant_id: str | None, batch_size: int, as_of: Position | None
    ) -> Iterator[list[ScanRow]]:
        store, scan = self.connection.store, Scan.of(entity)
        with self._reading(store, entity, as_of) as collection:
            if store.complete:
                yield from scan.batches(store, collection, within, tenant_id=tenant_id, batch_size=batch_size)
            else:
                condition = scan.owned_by(tenant_id)
                for raw in raw_batches(collection, scan.key, within, condition, batch_size):
                    yield scan.rows(raw)

    def fetch(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Return single rows for comparison; see the Protocol."""
        return of_one_process(self._fetched(entity, keys), "This scan")

    def _fetched(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        store, scan = self.connection.store, Scan.of(entity)
        with self._reading(store, entity, None) as collection:
            if store.complete:
                yield from scan.fetch(store, collection, keys)
            elif keys:
                for raw in raw_batches(collection, scan.key, KeyRange(), scan.any_of(keys), BATCH):
                    yield from scan.rows(raw)

    def ledger(self) -> MongoLedger:
        """Return the ledger that lives in this database."""
        return MongoLedger(self._unit())

    @contextmanager
    def importing(self) -> Iterator[MongoImporter]:
        """Open an importer; see the Protocol."""
        note_system_scope("bulk import")
        unit = Unit(self.connection, UNBOUND)
        yield MongoImporter(unit, MongoLedger(unit))

    def _unit(self) -> Unit:
        return Unit(self.connection, UNBOUND, UnitState(unbound=True))

    @contextmanager
    def _reading(self, store: Store, entity: Entity, as_of: Position | None) -> Iterator[Collection[Any]]:
        note_system_scope("bulk read")
        collection = self._collection(entity)
        if as_of is not None:
            store.capabilities.require("point_in_time_reads")
            collection = collection.with_options(read_concern=PointInTime(timestamp_of(as_of)))
        with translating(self._where(store, entity)):
            yield collection

    def _collection(self, entity: Entity) -> Collection[Document]:
        return self.connection.store.collection(self.connection.collection_name(entity))

    @staticmethod
    def _where(store: Store, entity: Entity) -> Where:
        return store.where.of(entity)


def key_at(
    collection: Collection[Document], codec: Codec[Any], lower: Key | None, rows: int, condition: Document
) -> Key | None:
    """Return the key ``rows`` places after a key, from the index alone; only values of its types are counted.

    The server orders values by type first, so the first value of the next type is beyond all of one.
    """
    index = index_of(codec)
    types = [part.type for part in codec.entity.key_parts]
    first = [FIRST[kind] for kind in types] if lower is None else lower
    fields = {ID: 0} | dict.fromkeys(codec.key, 1)
    cursor = collection.find(
        condition,
        fields,
        sort=index,
        hint=index,
        min=dict(zip(codec.key, first, strict=True)),
        max=dict(zip(codec.key, (BEYOND[kind] for kind in types), strict=True)),
        skip=rows,
        limit=1,
    )
    keys = (tuple(plain_part(found[name]) for name in codec.key) for found in cursor)
    return cast("Key | None", next(keys, None))


# Of the values that are no number and no text, the empty object comes first behind the texts.
FIRST: Final[dict[KeyType, object]] = {KeyType.TEXT: "", KeyType.UUID: "", KeyType.INT64: float("-inf")}
BEYOND: Final[dict[KeyType, object]] = {KeyType.TEXT: {}, KeyType.UUID: {}, KeyType.INT64: ""}
TYPES: Final = {KeyType.TEXT: "string", KeyType.UUID: "string", KeyType.INT64: ["int", "long"]}
