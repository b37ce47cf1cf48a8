"""The bulk port of a module on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.bulk import KeyRange
from twinstore.forks import ending, of_one_process
from twinstore.query import batch_size_argument
from twinstore.scope import tenant_argument
from twinstore_postgres.bulk.connections import BulkConnections
from twinstore_postgres.bulk.describing import scan_of
from twinstore_postgres.bulk.exporting import export_batches, range_condition
from twinstore_postgres.bulk.importing import PostgresRangeImporter
from twinstore_postgres.bulk.ledger import PostgresLedger
from twinstore_postgres.derive import table_of
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.backend import Capabilities
    from twinstore.bulk import Key, Position, Record, ScanRow
    from twinstore.catalog import Entity
    from twinstore.modules import ModuleSpec
    from twinstore_postgres.bulk.scanning import Scan
    from twinstore_postgres.derive import Table
    from twinstore_postgres.server import PostgresServer

__all__ = ["PostgresBulk"]

COUNTS: Final = "SELECT {label}, count(*) FROM {table} WHERE {where} GROUP BY 1 ORDER BY 1"
KEY_AFTER: Final = "SELECT {key} FROM {table} WHERE {where} ORDER BY {key} OFFSET %s LIMIT 1"


class PostgresBulk:
    """Implements :class:`~twinstore.bulk.BulkPort` for any module."""

    def __init__(
        self, server: PostgresServer, capabilities: Callable[[], Capabilities], module: ModuleSpec[object]
    ) -> None:
        """Take the server and the module; nothing is connected yet."""
        self._connections = BulkConnections(server)
        self._capabilities = capabilities
        self._module = module
        self._scans: dict[str, Scan] = {}

    @property
    def identity(self) -> str:
        """Driver, host and database."""
        return f"{DRIVER} {self._connections.place}"

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities in copy order."""
        return self._module.catalog.entities

    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by tenant; see the Protocol."""
        table = table_of(entity)
        where, values = range_condition(table, KeyRange(), tenant_of(tenant_id))
        statement = sql.SQL(COUNTS).format(**table.parts, label=table.label, where=where)
        with self._connections.system("bulk counts") as connection:
            return dict(connection.execute(statement, values).fetchall())

    def position(self) -> Position | None:
        """Return nothing: changes cannot be followed here."""
        return None

    def cut(self, entity: Entity, rows: int, *, tenant_id: str | None = None) -> Iterator[KeyRange]:
        """Return ranges of about ``rows`` rows each; see the Protocol."""
        return self._cut(table_of(entity), batch_size_argument(rows), tenant_of(tenant_id))

    def _cut(self, table: Table, rows: int, tenant: str | None) -> Iterator[KeyRange]:
        lower: Key | None = None
        while True:
            upper = self._key_after(table, lower, rows, tenant)
            yield KeyRange(lower, upper)
            if upper is None:
                return
            lower = upper

    def _key_after(self, table: Table, lower: Key | None, rows: int, tenant: str | None) -> Key | None:
        """Return the key that lies some rows after another one, ``None`` beyond the last."""
        where, values = range_condition(table, KeyRange(lower), tenant)
        statement = sql.SQL(KEY_AFTER).format(**table.parts, where=where)
        with self._connections.system("bulk cut") as connection:
            return connection.execute(statement, [*values, rows]).fetchone()

    def export(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
        as_of: Position | None = None,
    ) -> Iterator[list[Record]]:
        """Return the rows of a range as models, in batches; see the Protocol."""
        self._refuse_past(as_of)
        size = batch_size_argument(batch_size)
        batches = export_batches(self._connections, table_of(entity), within, tenant_of(tenant_id), size)
        return of_one_process(batches, "This export")

    def scan(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
        as_of: Position | None = None,
    ) -> Iterator[list[ScanRow]]:
        """Return the rows of a range for comparison, in batches; see the Protocol."""
        self._refuse_past(as_of)
        size = batch_size_argument(batch_size)
        return of_one_process(self._scanned(entity, within, tenant_of(tenant_id), size), "This scan")

    def fetch(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Return single rows for comparison; see the Protocol."""
        return of_one_process(self._fetched(entity, keys), "This scan")

    def _fetched(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        yield from self._scan(entity).fetch(self._connections, keys)

    def ledger(self) -> PostgresLedger:
        """Return the ledger that lives in this store."""
        return PostgresLedger(self._connections, self._module.name)

    @contextmanager
    def importing(self) -> Iterator[PostgresRangeImporter]:
        """Open an importer; its connection is closed with it, because its temporary tables stay there."""
        connection = self._connections.open()
        with ending(connection.close):
            yield PostgresRangeImporter(connection, self._module.name)

    def close(self) -> None:
        """Close the connections at rest."""
        self._connections.close()

    def _scanned(
        self, entity: Entity, within: KeyRange, tenant: str | None, size: int
    ) -> Iterator[list[ScanRow]]:
        yield from self._scan(entity).batches(self._connections, within, tenant, size)

    def _scan(self, entity: Entity) -> Scan:
        """Return the scan of an entity; the catalog of the server is read once."""
        scan = self._scans.get(entity.name)
        if scan is None:
            with self._connections.system("bulk scan") as connection:
                scan = self._scans.setdefault(entity.name, scan_of(connection, entity))
        return scan

    def _refuse_past(self, as_of: Position | None) -> None:
        if as_of is not None:
            self._capabilities().require("point_in_time_reads")


def tenant_of(tenant_id: str | None) -> str | None:
    """Return the normalised tenant of a call, ``None`` for all of them."""
    return None if tenant_id is None else tenant_argument(tenant_id)
