"""A view of the store: one snapshot, read by one stream at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from twinstore.bulk import BulkView, NoDigests, RangeDigests
from twinstore.errors import Outcome, TransactionAbortedError, ValidationError
from twinstore.forks import OwnProcess, of_one_process
from twinstore.query import batch_size_argument
from twinstore.scope import tenant_argument
from twinstore_postgres.bulk.digesting import DigestScan, digestible
from twinstore_postgres.bulk.exporting import export_batches, export_of
from twinstore_postgres.bulk.finding import Found, found_of
from twinstore_postgres.bulk.packed_exporting import packed_batches
from twinstore_postgres.bulk.packing import readable_columns
from twinstore_postgres.connecting import in_one_process
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import Subject, translated
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import Copy, sql

    from twinstore.bulk import Key, KeyRange, Position, Record, ScanRow
    from twinstore.catalog import Entity
    from twinstore_postgres.bulk.describing import Scans
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.derive import Table

__all__ = ["PostgresView", "Snapshot", "tenant_of"]

T = TypeVar("T")

VIEW = "This view"


class Snapshot:
    """A transaction that reads one state."""

    def __init__(self, connection: Connection) -> None:
        """Take the connection, inside the transaction."""
        self.connection = connection
        self._found: dict[Table, Found | None] = {}

    def find(self, table: Table) -> Found | None:
        """Return what there is to read of a table, ``None`` where there is nothing of its name.

        The server is asked once for each table.
        """
        if table not in self._found:
            with translated(Subject(table.entity), outcome=Outcome.NOT_APPLIED):
                self._found[table] = found_of(self.connection, table)
        return self._found[table]

    @contextmanager
    def copy(self, statement: sql.Composed, values: Sequence[object] = ()) -> Iterator[Copy]:
        """Stream the answer of one statement.

        What is left half read is cancelled. The savepoint keeps that, and any other error of the stream, from
        ending the snapshot.
        """
        cursor = self.connection.cursor()
        with (
            translated(outcome=Outcome.NOT_APPLIED),
            self.connection.transaction(),
            cursor.copy(statement, values) as copy,
            in_one_process(self.connection),
        ):
            yield copy


class PostgresView(BulkView):
    """Implements :class:`~twinstore.bulk.BulkView`."""

    def __init__(self, connection: Connection, scans: Scans) -> None:
        """Take the connection, inside a transaction that reads one state in system scope."""
        self._snapshot = Snapshot(connection)
        self._scans = scans
        self._process = OwnProcess()
        self._stream: Generator[object] | None = None
        self._closed = False

    @property
    @override
    def position(self) -> Position | None:
        """Return nothing: no view here is of the past."""
        return None

    @override
    def records(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[Record]]:
        tenant, size = tenant_of(tenant_id), batch_size_argument(batch_size)
        return self._one(export_batches(self._snapshot, table_of(entity), within, tenant, size))

    @override
    def packed(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
        ignored: AbstractSet[str] = frozenset(),
    ) -> Iterator[Sequence[Record]]:
        # Tables have nothing that could be ignored, and payloads that have are rare.
        del ignored
        columns = readable_columns(entity)
        if columns is None:
            return self.records(entity, within, tenant_id=tenant_id, batch_size=batch_size)
        tenant, size = tenant_of(tenant_id), batch_size_argument(batch_size)
        return self._one(packed_batches(self._snapshot, columns, within, tenant, size))

    @override
    def records_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[Record]:
        return self._one(export_of(self._snapshot, table_of(entity), keys))

    @override
    def rows(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[ScanRow]]:
        tenant, size = tenant_of(tenant_id), batch_size_argument(batch_size)
        return self._one(self._rows(entity, within, tenant, size))

    @override
    def rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        return self._one(self._rows_of(entity, keys))

    @override
    def digests(
        self,
        entity: Entity,
        bounds: Sequence[Key],
        *,
        secret: bytes,
        tenant_id: str | None = None,
        cutoff: datetime | None = None,
        part: int = 0,
        parts: int = 1,
        of_source: bool = False,
        ignored: AbstractSet[str] = frozenset(),
        accepts: Callable[[bytes], bool] | None = None,
        tell: Callable[[int], None] | None = None,
    ) -> RangeDigests | NoDigests:
        """Return the digests of ranges; a part holds the rows of some pages of the table."""
        # Tables have nothing of their own that a source may lack, or that could be ignored.
        del of_source, ignored
        if isinstance(found := digestible(entity), NoDigests):
            return found
        if self._snapshot.find(table_of(entity)) is None:
            return RangeDigests()
        scan = DigestScan(self._snapshot, self._scans.of(self._snapshot.connection, entity))
        lines = self._one(scan.lines(tenant_of(tenant_id), part, parts))
        return scan.digests(lines, bounds, secret=secret, cutoff=cutoff, accepts=accepts, tell=tell)

    def close(self) -> None:
        """End the stream that is open; the view is of no use afterwards."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()

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

    def _one(self, stream: Generator[T]) -> Iterator[T]:
        """Yield what a stream yields, the only one of this view that is open."""
        self._begin(stream)
        try:
            yield from of_one_process(stream, VIEW)
        finally:
            stream.close()
            self._stream = None

    def _begin(self, stream: Generator[object]) -> None:
        self._process.check(VIEW)
        if self._closed:
            raise TransactionAbortedError("This view has ended; open a new one.", driver=DRIVER)
        # One connection streams one answer at a time.
        if self._stream is not None:
            raise ValidationError(
                "This view is reading a list already; read it to its end or close it before you begin the "
                "next one, or open another view.",
                driver=DRIVER,
            )
        self._stream = stream


def tenant_of(tenant_id: str | None) -> str | None:
    """Return the normalised tenant of a call, ``None`` for all of them."""
    return None if tenant_id is None else tenant_argument(tenant_id)
