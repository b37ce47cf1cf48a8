"""The bulk port of a module on MongoDB."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from twinstore.backend import UnitState
from twinstore.bulk import BulkPort, Counted, KeyRange
from twinstore.ledger import LEDGER_MODULE
from twinstore.options import ModuleOptions
from twinstore.query import batch_size_argument
from twinstore.scope import UNBOUND, note_system_scope
from twinstore.tenancy import label_of
from twinstore_mongo.access import MongoAccess
from twinstore_mongo.bulk_digests import digestible
from twinstore_mongo.bulk_owners import chosen, counted_owner, owner_of_value
from twinstore_mongo.bulk_view import MongoView
from twinstore_mongo.bulk_writer import MongoRangeWriter
from twinstore_mongo.codec import codec_of
from twinstore_mongo.context import RepositoryContext, translating
from twinstore_mongo.derive import ID
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.identity import identity_of, instance_of
from twinstore_mongo.key_cuts import cuts_after
from twinstore_mongo.key_order import SIMPLE, has_key_index, order_of, sorted_cuts
from twinstore_mongo.migrator import initializer_class
from twinstore_mongo.positions import position_of
from twinstore_mongo.raw import documents_of, first_of, raw_batches
from twinstore_mongo.survey import survey_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.access import Access
    from twinstore.bulk import CommitCheck, Digestible, Key, NoDigests, OnConflict, Position, Survey
    from twinstore.catalog import Entity, Module
    from twinstore.migrations import Initializer
    from twinstore_mongo.bulk_owners import Chosen
    from twinstore_mongo.connection import Connection, Document

__all__ = ["MongoBulk"]

LARGEST: Final = "largest"
# A count that has the documents at hand tells their sizes for a little more.
SIZE: Final[dict[str, Any]] = {LARGEST: {"$max": {"$bsonSize": "$$ROOT"}}}


class MongoBulk(BulkPort):
    """Implements :class:`~twinstore.bulk.BulkPort` for any module."""

    def __init__(self, connection: Connection, module: Module) -> None:
        """Take the connection and the module; nothing is connected yet."""
        self._connection = connection
        self._module = module

    @property
    @override
    def identity(self) -> str:
        """What the server calls itself, and the database; connects at the first call."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        store = self._connection.store
        with translating(store.where.reading):
            return f"{DRIVER} {identity_of(store)}"

    @property
    @override
    def instance(self) -> str:
        """The number of the process that answers as primary, and the database."""
        store = self._connection.store
        with translating(store.where.reading):
            found = instance_of(store)
        return self.identity if found is None else f"{DRIVER} {found}"

    @property
    @override
    def place(self) -> str:
        """Driver, hosts and database."""
        store = self._connection.store
        return f"{DRIVER} {store.where.hosts}/{store.database.name}"

    @property
    @override
    def ledger_initializer(self) -> Initializer:
        """Creates and upgrades the collections of the ledger of copies."""
        validators = self._connection.validators
        return initializer_class(LEDGER_MODULE).of(
            self._connection, LEDGER_MODULE, ModuleOptions(), validators=validators
        )

    @override
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities in copy order: parents first."""
        return self._module.entities

    @override
    def survey(self) -> tuple[Survey, ...]:
        note_system_scope("bulk survey")
        return survey_of(self._connection, self.entities())

    @override
    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        return self._counted(entity, tenant_id, {}).rows

    @override
    def counted(self, entity: Entity, *, tenant_id: str | None = None) -> Counted:
        return self._counted(entity, tenant_id, SIZE)

    def _counted(self, entity: Entity, tenant_id: str | None, size: Document) -> Counted:
        note_system_scope("bulk counts")
        store = self._connection.store
        group: Document = {ID: counted_owner(codec_of(entity).tenant), "count": {"$sum": 1}, **size}
        pipeline = [*self._chosen(entity, tenant_id).stages, {"$group": group}]
        collection = store.collection(self._connection.collection_name(entity))
        counted: Counter[str] = Counter()
        sizes = [0]
        # Counting reads the whole collection, which may take longer than any call of a service.
        with translating(store.where.of(entity)), store.with_index_timeout():
            found_owners = collection.aggregate_raw_batches(pipeline, collation=SIMPLE, allowDiskUse=True)
            for batch in raw_batches(found_owners):
                for found in documents_of(batch):
                    count = first_of(found, "count")
                    counted[label_of(owner_of_value(entity, first_of(found, ID)))] += int(count or 0)
                    sizes.append(int(first_of(found, LARGEST) or 0))
        return Counted(dict(sorted(counted.items())), max(sizes) if size else None)

    @override
    def estimated_count(self, entity: Entity) -> int:
        note_system_scope("bulk counts")
        store = self._connection.store
        # What the server remembers. Of a view it remembers nothing, and counts as long as that takes.
        with translating(store.where.of(entity)), store.with_index_timeout():
            return store.collection(self._connection.collection_name(entity)).estimated_document_count()

    @override
    def now(self) -> datetime:
        store = self._connection.store
        with translating(store.where.reading), store.limited():
            return store.now()

    @override
    def position(self) -> Position | None:
        store = self._connection.store
        if not store.capabilities.point_in_time_reads:
            return None
        with translating(store.where.reading), store.limited():
            # Every answer of a replica set carries its time; this one costs least.
            return position_of(store.database.command("ping")["operationTime"])

    @override
    def digestible(self, entity: Entity) -> Digestible | NoDigests:
        return digestible(entity)

    @override
    def cut(self, entity: Entity, rows: int, *, tenant_id: str | None = None) -> Iterator[KeyRange]:
        note_system_scope("bulk cut")
        return self._cut(entity, batch_size_argument(rows), self._chosen(entity, tenant_id))

    @contextmanager
    @override
    def view(self, *, as_of: Position | None = None) -> Iterator[MongoView]:
        note_system_scope("bulk view")
        if as_of is not None:
            self._connection.store.capabilities.require("point_in_time_reads")
        view = MongoView(self._connection, as_of)
        try:
            yield view
        finally:
            view.close()

    @contextmanager
    @override
    def writer(
        self, entity: Entity, *, on_conflict: OnConflict = "fail", check: CommitCheck | None = None
    ) -> Iterator[MongoRangeWriter]:
        """Open a writer for one range; heavy ranges are committed in parts."""
        note_system_scope("bulk write")
        overwrite = on_conflict == "overwrite" and not entity.append_only
        writer = MongoRangeWriter(self._context(), entity, self.entities(), overwrite=overwrite, check=check)
        try:
            yield writer
        finally:
            writer.close()

    @override
    def access(self) -> Access:
        note_system_scope("bulk access")
        return MongoAccess(self._context(), self.entities())

    def _context(self) -> RepositoryContext:
        return RepositoryContext(self._connection, UNBOUND, UnitState(unbound=True))

    def _chosen(self, entity: Entity, tenant_id: str | None) -> Chosen:
        return chosen(entity, tenant_id, self._connection.collection_name)

    def _cut(self, entity: Entity, rows: int, of: Chosen) -> Iterator[KeyRange]:
        lower: Key | None = None
        for upper in self._cuts(entity, rows, of):
            yield KeyRange(lower, upper)
            lower = upper
        yield KeyRange(lower, None)

    def _cuts(self, entity: Entity, rows: int, of: Chosen) -> Iterator[Key]:
        """Yield the keys at which ranges end: from the index, or from one pass where none can tell."""
        store, codec = self._connection.store, codec_of(entity)
        collection = store.collection(self._connection.collection_name(entity))
        with translating(store.where.of(entity)):
            with store.limited():
                indexed = not of.joins and has_key_index(collection, order_of(codec.key))
            if not indexed:
                yield from sorted_cuts(store, collection, codec, rows, of.stages)
                return
            last: Key | None = None
            # Queries of their own, so that no cursor waits on the server while the caller works on a range.
            while True:
                with store.limited():
                    found = cuts_after(collection, codec, last, rows, of.condition)
                if not found:
                    return
                yield from found
                last = found[-1]
