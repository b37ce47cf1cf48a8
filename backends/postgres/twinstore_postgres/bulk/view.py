"""A view of the store: one snapshot, read by one stream at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.access.query import batch_size_argument
from twinstore.access.scope import tenant_argument
from twinstore.bulk.changes import NO_CHANGES, DocumentChanges
from twinstore.bulk.parts import OneStream
from twinstore.bulk.port import BulkView
from twinstore.bulk.rows import NoDigests, RangeDigests
from twinstore.catalog.keys import KeyRange
from twinstore.documents.rows import changed_content, changed_model
from twinstore_postgres.bulk.digests import DigestScan, digestible
from twinstore_postgres.bulk.export import export_batches, export_of, packed_batches
from twinstore_postgres.bulk.snapshot import Snapshot
from twinstore_postgres.bulk.writer import readable_columns
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.bulk.port import Position, Record
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_postgres.bulk.scan import Scans
    from twinstore_postgres.connection.transaction import Transaction

CHANGED: Final = NoDigests("rules change its rows")


class PostgresView(BulkView):
    """Implements :class:`~twinstore.bulk.port.BulkView`."""

    def __init__(self, transaction: Transaction, scans: Scans, changes: DocumentChanges = NO_CHANGES) -> None:
        """Take a transaction that reads one state in system scope."""
        self._changes = changes.documents
        self._snapshot = Snapshot(transaction)
        self._scans = scans
        self._streams = OneStream(DRIVER)

    @property
    @override
    def position(self) -> Position | None:
        return None

    @override
    def records(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[Record]]:
        tenant, size = tenant_of(tenant_id), batch_size_argument(batch_size)
        batches = self._streams.read(export_batches(self._snapshot, table_of(entity), within, tenant, size))
        change = self._changes.get(entity.name)
        if change is None:
            return batches
        return ([changed_model(entity, item, DRIVER, change) for item in batch] for batch in batches)

    @override
    def packed(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[Sequence[Record]]:
        columns = readable_columns(entity)
        if columns is None or entity.name in self._changes:
            return self.records(entity, within, tenant_id=tenant_id, batch_size=batch_size)
        tenant, size = tenant_of(tenant_id), batch_size_argument(batch_size)
        return self._streams.read(packed_batches(self._snapshot, columns, within, tenant, size))

    @override
    def records_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[Record]:
        change = self._changes.get(entity.name)
        records = self._streams.read(export_of(self._snapshot, table_of(entity), keys))
        return (changed_model(entity, item, DRIVER, change) for item in records)

    @override
    def rows(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[ScanRow]]:
        tenant, size = tenant_of(tenant_id), batch_size_argument(batch_size)
        batches = self._streams.read(self._rows(entity, within, tenant, size))
        change = self._changes.get(entity.name)
        if change is None:
            return batches
        return ([changed_content(entity, row, change) for row in batch] for batch in batches)

    @override
    def rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        change = self._changes.get(entity.name)
        rows = self._streams.read(self._rows_of(entity, keys))
        return (changed_content(entity, row, change) for row in rows)

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
        """Return the digests of ranges; a part holds the rows of some pages of the table."""
        # Tables have nothing extra that a source may lack, or that could be ignored.
        del of_source, ignored
        if entity.name in self._changes:
            return CHANGED
        if isinstance(found := digestible(entity), NoDigests):
            return found
        if (table := self._snapshot.find(table_of(entity))) is None:
            return RangeDigests()
        scan = DigestScan(self._snapshot, self._scans.of(self._snapshot.connection, entity))
        tenant, wanted = tenant_of(tenant_id), within or KeyRange()
        rows = scan.lines(wanted, tenant, part, parts, nullable=table.nullable)
        return scan.digests(
            self._streams.read(rows),
            bounds,
            secret=secret,
            folded=folded,
            cutoff=cutoff,
            accepts=accepts,
            on_progress=on_progress,
        )

    def close(self) -> None:
        """End the stream that is open; the view is of no use afterwards."""
        self._streams.close()

    def _rows(
        self, entity: Entity, within: KeyRange, tenant: str | None, size: int
    ) -> Generator[list[ScanRow]]:
        found = self._snapshot.find(table_of(entity))
        if found is not None:
            scan = self._scans.of(self._snapshot.connection, entity)
            yield from scan.batches(self._snapshot, within, tenant, size, nullable=found.nullable)

    def _rows_of(self, entity: Entity, keys: Sequence[Key]) -> Generator[ScanRow]:
        if self._snapshot.find(table_of(entity)) is not None:
            yield from self._scans.of(self._snapshot.connection, entity).fetch(self._snapshot, keys)


def tenant_of(tenant_id: str | None) -> str | None:
    """Return the normalised tenant of a call, ``None`` for all of them."""
    return None if tenant_id is None else tenant_argument(tenant_id)
