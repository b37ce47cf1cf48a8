"""Whole entities on MongoDB: counts, ranges, export, scan, import and ledger."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twinstore.backend import UnitState
from twinstore.bulk import KeyRange
from twinstore.forks import of_one_process
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.scope import UNBOUND, note_system_scope
from twinstore_mongo.bulk_export import Exporter
from twinstore_mongo.bulk_import import MongoImporter
from twinstore_mongo.bulk_ledger import MongoLedger
from twinstore_mongo.bulk_scan import SCANS
from twinstore_mongo.doubles import raw_batches
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.key_order import SIMPLE, has_key_index, key_after, order_of, sorted_cuts
from twinstore_mongo.positions import PointInTime, position_of, timestamp_of
from twinstore_mongo.scheduler.transfer import TRANSFERS
from twinstore_mongo.survey import survey_of
from twinstore_mongo.units import Unit, translating

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo.collection import Collection

    from twinstore.bulk import Key, Position, Record, ScanRow
    from twinstore.catalog import Entity
    from twinstore.survey import Survey
    from twinstore_mongo.connection import Connection, Document, Store
    from twinstore_mongo.errors import Where

__all__ = ["MongoBulk"]

BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class MongoBulk:
    """Implements :class:`~twinstore.bulk.BulkPort`."""

    connection: Connection

    @property
    def identity(self) -> str:
        """Driver, hosts and database."""
        store = self.connection.store
        return f"{DRIVER} {store.where.hosts}/{store.database.name}"

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities in copy order: parents first."""
        return SCHEDULER.entities

    def survey(self) -> tuple[Survey, ...]:
        """Return what there is to read, and at what cost; see the Protocol."""
        note_system_scope("bulk survey")
        return survey_of(self.connection.store, self.entities())

    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by tenant; see the Protocol."""
        note_system_scope("bulk counts")
        store, tenant = self.connection.store, TRANSFERS[entity].tenant
        pipeline: list[Document] = [] if tenant_id is None else [{"$match": {tenant: tenant_id}}]
        pipeline.append({"$group": {"_id": f"${tenant}", "count": {"$sum": 1}}})
        counted: Counter[str] = Counter()
        # A double knows no collations.
        options: Document = {"collation": SIMPLE, "allowDiskUse": True} if store.complete else {}
        with translating(self._where(store, entity)), store.unhurried():
            for group in store.collection(entity.name).aggregate(pipeline, **options):
                owner = group["_id"]
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
        for upper in self._cuts(entity, rows, tenant_id):
            yield KeyRange(lower, upper)
            lower = upper
        yield KeyRange(lower, None)

    def _cuts(self, entity: Entity, rows: int, tenant_id: str | None) -> Iterator[Key]:
        """Yield the keys at which ranges end."""
        store, transfer = self.connection.store, TRANSFERS[entity]
        condition: Document = {} if tenant_id is None else {transfer.tenant: tenant_id}
        collection = store.collection(entity.name)
        if store.complete:
            with translating(self._where(store, entity)), store.limited():
                indexed = has_key_index(collection, order_of(transfer.key))
            if not indexed:
                with translating(self._where(store, entity)):
                    cuts = sorted_cuts(store, collection, transfer.key, rows, condition)
                yield from cuts
                return
        lower: Key | None = None
        while (lower := self._key_after(entity, lower, rows, condition)) is not None:
            yield lower

    def _key_after(self, entity: Entity, lower: Key | None, rows: int, condition: Document) -> Key | None:
        """Return the text key that follows ``rows`` rows after a key."""
        store, key = self.connection.store, TRANSFERS[entity].key
        texts: Document = {name: {"$type": "string"} for name in key}
        if not store.complete:
            return self._key_in_double(entity, lower, rows, texts | condition)
        with translating(self._where(store, entity)), store.limited():
            collection = store.collection(entity.name)
            found = key_after(collection, key, lower, rows, condition)
            if found is not None and not all(isinstance(part, str) for part in found):
                # Half of a composed key may be no text; a range cannot end there.
                found = key_after(collection, key, lower, rows, texts | condition)
        return found

    def _key_in_double(self, entity: Entity, lower: Key | None, rows: int, condition: Document) -> Key | None:
        collection, names = self.connection.store.collection(entity.name), TRANSFERS[entity].key
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
        store, exporter = self.connection.store, Exporter(TRANSFERS[entity])
        with self._reading(store, entity, as_of) as collection:
            if store.complete:
                yield from exporter.batches(
                    store, collection, within, tenant_id=tenant_id, batch_size=batch_size
                )
            else:
                transfer = exporter.transfer
                condition = {} if tenant_id is None else {transfer.tenant: tenant_id}
                for raw in raw_batches(collection, transfer.key, within, condition, batch_size):
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
        store, scan = self.connection.store, SCANS[entity.name]
        with self._reading(store, entity, as_of) as collection:
            if store.complete:
                yield from scan.batches(store, collection, within, tenant_id=tenant_id, batch_size=batch_size)
            else:
                condition = {} if tenant_id is None else {scan.tenant: tenant_id}
                for raw in raw_batches(collection, scan.key, within, condition, batch_size):
                    yield scan.rows(raw)

    def fetch(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Return single rows for comparison; see the Protocol."""
        return of_one_process(self._fetched(entity, keys), "This scan")

    def _fetched(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        store, scan = self.connection.store, SCANS[entity.name]
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
        collection = store.collection(entity.name)
        if as_of is not None:
            store.capabilities.require("point_in_time_reads")
            collection = collection.with_options(read_concern=PointInTime(timestamp_of(as_of)))
        with translating(self._where(store, entity)):
            yield collection

    @staticmethod
    def _where(store: Store, entity: Entity) -> Where:
        return store.where.of(entity)
