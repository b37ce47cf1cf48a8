"""The bulk port of a module on MongoDB."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from twinstore.access.query import batch_size_argument
from twinstore.access.scope import UNBOUND, record_system_scope
from twinstore.access.unit_state import UnitState
from twinstore.bulk.changes import NO_CHANGES, DocumentChanges
from twinstore.bulk.port import EVERY_KEY, BulkPort
from twinstore.bulk.rows import Counted
from twinstore.catalog.keys import KeyRange, spread
from twinstore.catalog.tenancy import label_of
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.options import ModuleOptions
from twinstore_mongo.access.access import MongoAccess
from twinstore_mongo.access.execution import RepositoryContext, translating
from twinstore_mongo.bulk.digests import digestible
from twinstore_mongo.bulk.inventory import inventory_of
from twinstore_mongo.bulk.places import place_of
from twinstore_mongo.bulk.shards import placement_of
from twinstore_mongo.bulk.tenant_filter import counted_owner, owner_of_value, tenant_filter
from twinstore_mongo.bulk.view import MongoView
from twinstore_mongo.bulk.writer import MongoRangeWriter
from twinstore_mongo.client.bson import documents_of, first_of, raw_batches
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.client.identity import identity_of, instance_of, is_router, router_needs
from twinstore_mongo.client.positions import position_of
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.key_order import (
    SIMPLE,
    SORTED_ROWS,
    cuts_after,
    has_key_index,
    key_in,
    order_of,
    projection,
    sorted_cuts,
)
from twinstore_mongo.mapping.layout import ID
from twinstore_mongo.schema.migrator import initializer_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from twinstore.access.protocol import Access
    from twinstore.bulk.port import CommitCheck, Inventory, OnConflict, Placed, Position
    from twinstore.bulk.rows import Digestible, NoDigests
    from twinstore.catalog.entity import Entity, Module
    from twinstore.catalog.keys import Key
    from twinstore.migrations.migration import Initializer
    from twinstore_mongo.bulk.tenant_filter import TenantFilter
    from twinstore_mongo.client.connection import Connection
    from twinstore_mongo.client.types import Document

LARGEST: Final = "largest"
# A count that has the documents at hand can report their sizes at little extra cost.
SIZE: Final[dict[str, Any]] = {LARGEST: {"$max": {"$bsonSize": "$$ROOT"}}}


class MongoBulk(BulkPort):
    """Implements :class:`~twinstore.bulk.port.BulkPort` for any module."""

    def __init__(self, connection: Connection, module: Module) -> None:
        self._connection = connection
        self._module = module
        self._changes = NO_CHANGES

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
    def identity_needs(self) -> str | None:
        """The right to read the number of the cluster, where a router leads to it."""
        store = self._connection.store
        with translating(store.where.reading), store.limited():
            return router_needs(store.client)

    @override
    def may_be(self, other: BulkPort) -> bool:
        """Whether both are reached through routers, of which one does not say to which cluster."""
        if not isinstance(other, MongoBulk) or not (self.identity_needs or other.identity_needs):
            return False
        clients = (port._connection.store.client for port in (self, other))  # noqa: SLF001  # its own class
        return all(map(is_router, clients))

    @property
    @override
    def place(self) -> str:
        store = self._connection.store
        return f"{DRIVER} {store.where.hosts}/{store.database.name}"

    @property
    @override
    def ledger_initializer(self) -> Initializer:
        validators = self._connection.validators
        return initializer_class(LEDGER_MODULE).of(
            self._connection, LEDGER_MODULE, ModuleOptions(), validators=validators
        )

    @override
    def entities(self) -> tuple[Entity, ...]:
        return self._module.entities

    @override
    def with_changes(self, changes: DocumentChanges) -> MongoBulk:
        # With what this one has asked the server already.
        found = copy(self)
        found._changes = changes  # noqa: SLF001  # its own class
        return found

    @override
    def inventory(self) -> tuple[Inventory, ...]:
        record_system_scope("bulk survey")
        return inventory_of(self._connection, self.entities(), self._changes)

    @override
    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        return self._counted(entity, tenant_id, {}).rows

    @override
    def counted(self, entity: Entity, *, tenant_id: str | None = None) -> Counted:
        return self._counted(entity, tenant_id, SIZE)

    def _counted(self, entity: Entity, tenant_id: str | None, size: Document) -> Counted:
        record_system_scope("bulk counts")
        store = self._connection.store
        group: Document = {ID: counted_owner(codec_of(entity).tenant), "count": {"$sum": 1}, **size}
        pipeline = [*self._tenant_filter(entity, tenant_id).stages, {"$group": group}]
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
        record_system_scope("bulk counts")
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
        return digestible(entity, self._changes)

    @override
    def cut(
        self, entity: Entity, rows: int, *, tenant_id: str | None = None, within: KeyRange = EVERY_KEY
    ) -> Iterator[KeyRange]:
        record_system_scope("bulk cut")
        return self._cut(entity, batch_size_argument(rows), self._tenant_filter(entity, tenant_id), within)

    @override
    def sample_keys(self, entity: Entity, count: int) -> Sequence[Key]:
        record_system_scope("bulk cut")
        store, codec = self._connection.store, place_of(entity, self._changes)
        collection = store.collection(self._connection.collection_name(entity))
        with translating(store.where.of(entity)), store.with_index_timeout():
            if not has_key_index(collection, order_of(codec.key)):
                return ()
            # First, or the server reads all documents instead of some at random.
            sample: list[Document] = [{"$sample": {"size": count}}, {"$project": projection(codec)}]
            found = collection.aggregate_raw_batches(sample, collation=SIMPLE)
            return spread(
                (key_in(raw, codec) for batch in raw_batches(found) for raw in documents_of(batch)), count
            )

    @override
    def placement(self, entity: Entity) -> Sequence[Placed]:
        record_system_scope("bulk cut")
        store = self._connection.store
        collection = store.collection(self._connection.collection_name(entity))
        # A large collection has many chunks.
        with translating(store.where.of(entity)), store.with_index_timeout():
            return placement_of(collection, place_of(entity, self._changes))

    @contextmanager
    @override
    def view(self, *, as_of: Position | None = None) -> Iterator[MongoView]:
        record_system_scope("bulk view")
        if as_of is not None:
            self._connection.store.capabilities.require("point_in_time_reads")
        view = MongoView(self._connection, as_of, self._changes)
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
        record_system_scope("bulk write")
        overwrite = on_conflict == "overwrite" and not entity.append_only
        writer = MongoRangeWriter(
            self._context(),
            entity,
            self.entities(),
            overwrite=overwrite,
            check=check,
            changes=self._changes,
        )
        try:
            yield writer
        finally:
            writer.close()

    @override
    def access(self) -> Access:
        record_system_scope("bulk access")
        return MongoAccess(self._context(), self.entities())

    def _context(self) -> RepositoryContext:
        return RepositoryContext(self._connection, UNBOUND, UnitState(unbound=True))

    def _tenant_filter(self, entity: Entity, tenant_id: str | None) -> TenantFilter:
        return tenant_filter(entity, tenant_id, self._connection.collection_name)

    def _cut(self, entity: Entity, rows: int, of: TenantFilter, within: KeyRange) -> Iterator[KeyRange]:
        lower = within.lower
        for upper in self._cuts(entity, rows, of, lower):
            if within.upper is not None and upper >= within.upper:
                break
            yield KeyRange(lower, upper)
            lower = upper
        yield KeyRange(lower, within.upper)

    def _cuts(self, entity: Entity, rows: int, of: TenantFilter, lower: Key | None) -> Iterator[Key]:
        """Yield the keys at which ranges end: from the index, or from one pass if no index serves."""
        store, codec = self._connection.store, place_of(entity, self._changes)
        collection = store.collection(self._connection.collection_name(entity))
        with translating(store.where.of(entity)):
            with store.limited():
                indexed = not of.joins and has_key_index(collection, order_of(codec.key))
            if not indexed:
                # Each range sorts everything again, and so does a cut; larger ones would repeat too much.
                rows = max(rows, SORTED_ROWS)
                with store.with_index_timeout():
                    fits = collection.estimated_document_count() <= rows
                cuts = () if fits else sorted_cuts(store, collection, codec, rows, of.stages)
                yield from (key for key in cuts if lower is None or key > lower)
                return
            last = lower
            # Separate queries, so that no cursor waits on the server while the caller works on a range.
            while True:
                with store.limited():
                    found = cuts_after(collection, codec, last, rows, of.condition)
                if not found:
                    return
                yield from found
                last = found[-1]
