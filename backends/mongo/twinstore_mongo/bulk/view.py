"""A view of the store: what is committed when each read starts, or everything as it was at one position."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from twinstore.access.query import batch_size_argument
from twinstore.bulk.changes import NO_CHANGES
from twinstore.bulk.parts import OneStream
from twinstore.bulk.port import BulkView
from twinstore.bulk.rows import NoDigests, RangeDigests
from twinstore.catalog.keys import KeyRange
from twinstore.errors import UnsupportedCapabilityError
from twinstore.runtime.forks import cleanup_unless_forked
from twinstore_mongo.access.execution import translating
from twinstore_mongo.bulk.digests import MOST_THREADS, DigestScan, digestible
from twinstore_mongo.bulk.export import Exporter, PackedExporter, ReadSize, packed_size
from twinstore_mongo.bulk.lookups import FindingValues, conditions_of
from twinstore_mongo.bulk.places import codec_after, place_of
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.bulk.tenant_filter import tenant_filter
from twinstore_mongo.client.bson import documents_of
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.client.positions import PointInTime, time_not_sent_message, timestamp_of
from twinstore_mongo.mapping.key_order import SIMPLE
from twinstore_mongo.mapping.object_ids import ReplacedIds
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

if TYPE_CHECKING:
    from datetime import datetime

    from pymongo.collection import Collection

    from twinstore.bulk.changes import DocumentChange, DocumentChanges, FoundRow, Lookup, StoredValues
    from twinstore.bulk.port import Position, Record
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_mongo.bulk.lookups import Wanted
    from twinstore_mongo.bulk.tenant_filter import TenantFilter
    from twinstore_mongo.client.connection import Connection
    from twinstore_mongo.client.types import Document

T = TypeVar("T")

# Of which few should wait.
MOST_RECORDS = 1000


class MongoView(BulkView):
    """Implements :class:`~twinstore.bulk.port.BulkView`; a stream holds one cursor of the server."""

    def __init__(
        self, connection: Connection, as_of: Position | None, changes: DocumentChanges = NO_CHANGES
    ) -> None:
        self._connection = connection
        self._changes = changes
        self._position = as_of
        self._concern = None if as_of is None else PointInTime(timestamp_of(as_of))
        self._streams = OneStream(DRIVER)

    @property
    @override
    def position(self) -> Position | None:
        return self._position

    @override
    def records(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[Record]]:
        rows = tenant_filter(entity, tenant_id, self._connection.collection_name)
        size = ReadSize(batch_size_argument(batch_size))
        return self._single_stream(self._records(self._exporter(entity), within, rows, size))

    @override
    def packed(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[Sequence[Record]]:
        exporter = self._exporter(entity)
        replaces_keys = entity.name in self._changes.keys or entity.name in self._changes.ids
        is_exact = replaces_keys or isinstance(exporter.values, FindingValues)
        documents = None if is_exact else native_documents(entity, exporter.ignored)
        rows = tenant_filter(entity, tenant_id, self._connection.collection_name)
        most = batch_size_argument(batch_size)
        if documents is None:
            return self._single_stream(
                self._records(exporter, within, rows, ReadSize(min(most, MOST_RECORDS)))
            )
        return self._single_stream(
            self._packed(PackedExporter(exporter, documents), within, rows, packed_size(most))
        )

    @override
    def records_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[Record]:
        return self._single_stream(self._records_of(entity, keys))

    @override
    def rows(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[ScanRow]]:
        rows = tenant_filter(entity, tenant_id, self._connection.collection_name)
        return self._single_stream(self._rows(entity, within, rows, batch_size_argument(batch_size)))

    @override
    def rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        return self._single_stream(self._rows_of(entity, keys))

    @override
    def digests(
        self,
        entity: Entity,
        bounds: Sequence[Key],
        *,
        secret: bytes,
        within: KeyRange | None = None,
        folded: bool = False,
        tenant_id: str | None = None,
        cutoff: datetime | None = None,
        part: int = 0,
        parts: int = 1,
        of_source: bool = False,
        ignored: AbstractSet[str] = frozenset(),
        accepts: Callable[[bytes], bool] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> RangeDigests | NoDigests:
        """Return the digests of ranges; all rows are in the first part, because nothing divides them.

        As many threads as there are parts work on it, because this is what a verification waits for last.
        """
        if isinstance(found := digestible(entity, self._changes), NoDigests):
            return found
        if part:
            return RangeDigests()
        rows = tenant_filter(entity, tenant_id, self._connection.collection_name)
        store = self._connection.store
        change = self._changes.documents.get(entity.name)
        if change is not None and change.dropped is not None:
            # Native code skips such names too.
            change = None
        with translating(store.where.of(entity)):
            scan = DigestScan(store, self._collection(entity), CollectionScan.of(entity), change)
            batches = self._single_stream(scan.batches(rows, within or KeyRange()))
            return scan.digests(
                batches,
                bounds,
                secret=secret,
                folded=folded,
                cutoff=cutoff,
                of_source=of_source,
                ignored=frozenset() if change else ignored,
                accepts=accepts,
                on_progress=on_progress,
                threads=min(parts, MOST_THREADS),
            )

    def close(self) -> None:
        """End the stream that is open; the view is of no use afterwards."""
        self._streams.close()

    def _exporter(self, entity: Entity) -> Exporter:
        change = self._changes.documents.get(entity.name)
        finds = change is not None and bool(change.lookups)
        values = FindingValues(self._records_found) if finds else MONGO_VALUES
        return self._exporting(entity, change, values)

    def _exporting(
        self, entity: Entity, change: DocumentChange | None, values: StoredValues = MONGO_VALUES
    ) -> Exporter:
        dropped = None if change is None else change.dropped
        if dropped is not None:
            # Native code skips such names too.
            change = None
        place, to = place_of(entity, self._changes), self._changes.ids.get(entity.name)
        ids = None if to is None else ReplacedIds.of(entity.key_parts[0].type, to)
        codec = codec_after(entity, self._changes)
        return Exporter(codec, dropped or frozenset(), change, place, ids, values)

    def _records_found(self, lookup: Lookup, wanted: Wanted) -> Iterator[FoundRow]:
        """Yield the rows of a look-up as records show them."""
        exporter = self._exporting(lookup.entity, lookup.change)
        found = (exporter.looked_up(raw, lookup.by) for raw in self._matching(lookup, wanted))
        return (row for row in found if row is not None)

    def _rows_found(self, lookup: Lookup, wanted: Wanted) -> Iterator[FoundRow]:
        """Yield the same as rows for a comparison show them."""
        scan = replace(CollectionScan.of(lookup.entity, self._changes), change=lookup.change)
        found = (scan.looked_up(raw, lookup.by) for raw in self._matching(lookup, wanted))
        return (row for row in found if row is not None)

    def _matching(self, lookup: Lookup, wanted: Wanted) -> Iterator[bytes]:
        """Yield the documents that have some values, as they are stored."""
        store, collection = self._connection.store, self._collection(lookup.entity)
        with translating(store.where.of(lookup.entity)):
            for condition in conditions_of(lookup, wanted):
                cursor = collection.find_raw_batches(condition, collation=SIMPLE)
                with cleanup_unless_forked(cursor.close):
                    while (batch := store.next_batch(cursor)) is not None:
                        yield from documents_of(batch)

    def _scan(self, entity: Entity) -> CollectionScan:
        scan = CollectionScan.of(entity, self._changes)
        finds = scan.change is not None and scan.change.lookups
        return replace(scan, values=FindingValues(self._rows_found)) if finds else scan

    def _records(
        self, exporter: Exporter, within: KeyRange, rows: TenantFilter, size: ReadSize
    ) -> Generator[list[Record]]:
        store, entity = self._connection.store, exporter.codec.entity
        parts = exporter.parts(store, self._collection(entity), within, rows=rows, size=size)
        with translating(store.where.of(entity)), cleanup_unless_forked(parts.close):
            yield from exporter.decoded(parts)

    def _packed(
        self, packed: PackedExporter, within: KeyRange, rows: TenantFilter, size: ReadSize
    ) -> Generator[Sequence[Record]]:
        store, exporter = self._connection.store, packed.exporter
        entity = exporter.codec.entity
        parts = exporter.parts(store, self._collection(entity), within, rows=rows, size=size)
        with translating(store.where.of(entity)), cleanup_unless_forked(parts.close):
            yield from packed.batches(parts)

    def _records_of(self, entity: Entity, keys: Sequence[Key]) -> Generator[Record]:
        store, exporter = self._connection.store, self._exporter(entity)
        with translating(store.where.of(entity)):
            yield from exporter.of(store, self._collection(entity), keys)

    def _rows(
        self, entity: Entity, within: KeyRange, rows: TenantFilter, batch_size: int
    ) -> Generator[list[ScanRow]]:
        store, scan = self._connection.store, self._scan(entity)
        with translating(store.where.of(entity)):
            yield from scan.batches(store, self._collection(entity), within, rows=rows, batch_size=batch_size)

    def _rows_of(self, entity: Entity, keys: Sequence[Key]) -> Generator[ScanRow]:
        store, scan = self._connection.store, self._scan(entity)
        with translating(store.where.of(entity)):
            yield from scan.fetch(store, self._collection(entity), keys)

    def _collection(self, entity: Entity) -> Collection[Document]:
        collection = self._connection.store.collection(self._connection.collection_name(entity))
        # A read concern, not a transaction: the server ends one after 60 s, and a stream may take longer.
        return collection if self._concern is None else collection.with_options(read_concern=self._concern)

    def _single_stream(self, stream: Generator[T]) -> Iterator[T]:
        return self._streams.read(self._with_time_checked(stream))

    def _with_time_checked(self, stream: Generator[T]) -> Generator[T]:
        """Yield what a stream yields, unless it is of the present where the past was wanted."""
        with closing(stream):
            for item in stream:
                self._check_time_sent()
                yield item
                del item  # or it would stay in memory while the next one is read
        self._check_time_sent()

    def _check_time_sent(self) -> None:
        if self._concern is not None and not self._concern.is_sent:
            raise UnsupportedCapabilityError(time_not_sent_message(), driver=DRIVER)
