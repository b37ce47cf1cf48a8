"""The bulk port of the scheduler on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from twinstore.bulk import KeyRange
from twinstore.forks import ending, of_one_process
from twinstore.query import batch_size_argument
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.scope import tenant_argument
from twinstore_postgres.bulk.connections import BulkConnections
from twinstore_postgres.bulk.exporting import BY_CODE_POINT, export_batches, key_order, without_key
from twinstore_postgres.bulk.importing import PostgresRangeImporter
from twinstore_postgres.bulk.ledger import PostgresLedger
from twinstore_postgres.bulk.scanning import SCANS
from twinstore_postgres.bulk.survey import survey_of
from twinstore_postgres.scheduler.tables import table_of
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.backend import Capabilities
    from twinstore.bulk import Key, Position, Record, ScanRow
    from twinstore.catalog import Entity
    from twinstore.survey import Survey
    from twinstore_postgres.bulk.connections import Reading
    from twinstore_postgres.codec import Table
    from twinstore_postgres.server import PostgresServer

__all__ = ["PostgresBulk"]

COUNTS: Final = "SELECT {tenant}, count(*) FROM {table} GROUP BY 1 ORDER BY 1"
COUNT: Final = "SELECT {tenant}, count(*) FROM {table} WHERE {tenant} = %s GROUP BY 1"


class PostgresBulk:
    """Implements :class:`~twinstore.bulk.BulkPort` for the scheduler."""

    def __init__(self, server: PostgresServer, capabilities: Callable[[], Capabilities]) -> None:
        """Take the server; nothing is connected yet."""
        self._connections = BulkConnections(server)
        self._capabilities = capabilities

    @property
    def identity(self) -> str:
        """Driver, host and database."""
        return f"{DRIVER} {self._connections.place}"

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities in copy order."""
        return SCHEDULER.entities

    def survey(self) -> tuple[Survey, ...]:
        """Return what there is to read, and at what cost; see the Protocol."""
        with self._connections.system("bulk survey") as connection:
            return survey_of(connection, self.entities())

    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by tenant; see the Protocol."""
        table = table_of(entity)
        template, values = (COUNTS, []) if tenant_id is None else (COUNT, [tenant_argument(tenant_id)])
        tenant = BY_CODE_POINT.format(sql.Identifier(table.tenant))
        statement = sql.SQL(template).format(tenant=tenant, table=table.name)
        counted: Counter[str] = Counter()
        with self._connections.reading("bulk counts", entity, table.key) as reading:
            if reading is not None:
                for owner, rows in reading.connection.execute(statement, values):
                    counted[owner or ""] += rows
        return dict(counted)

    def position(self) -> Position | None:
        """Return nothing: changes cannot be followed here."""
        return None

    def cut(self, entity: Entity, rows: int, *, tenant_id: str | None = None) -> Iterator[KeyRange]:
        """Return ranges of about ``rows`` rows each; see the Protocol."""
        size = batch_size_argument(rows)
        tenant = None if tenant_id is None else tenant_argument(tenant_id)
        return self._cut(table_of(entity), size, tenant)

    def _cut(self, table: Table[Any], rows: int, tenant: str | None) -> Iterator[KeyRange]:
        lower: Key | None = None
        while True:
            upper = self._key_after(table, lower, rows, tenant)
            yield KeyRange(lower, upper)
            if upper is None:
                return
            lower = upper

    def _key_after(self, table: Table[Any], lower: Key | None, rows: int, tenant: str | None) -> Key | None:
        """Return the key that lies some rows after another one, ``None`` beyond the last."""
        with self._connections.reading("bulk cut", table.entity, table.key) as reading:
            if reading is None:
                return None
            found = key_at(reading, table, lower, tenant, rows)
            if lower is None or found != lower:
                return found
            # Without a unique index many rows can share one key; a range cannot end among them.
            return key_at(reading, table, lower, tenant, 0, beyond=True)

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
        tenant = None if tenant_id is None else tenant_argument(tenant_id)
        batches = export_batches(self._connections, table_of(entity), within, tenant, size)
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
        tenant = None if tenant_id is None else tenant_argument(tenant_id)
        scan = SCANS[SCHEDULER.entity(entity.name).name]
        return of_one_process(scan.batches(self._connections, within, tenant, size), "This scan")

    def fetch(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Return single rows for comparison; see the Protocol."""
        scan = SCANS[SCHEDULER.entity(entity.name).name]
        return of_one_process(scan.fetch(self._connections, keys), "This scan")

    def ledger(self) -> PostgresLedger:
        """Return the ledger that lives in this store."""
        return PostgresLedger(self._connections)

    @contextmanager
    def importing(self) -> Iterator[PostgresRangeImporter]:
        """Open an importer; its connection is closed with it, because its temporary tables stay there."""
        connection = self._connections.open()
        with ending(connection.close):
            yield PostgresRangeImporter(connection)

    def close(self) -> None:
        """Close the connections at rest."""
        self._connections.close()

    def _refuse_past(self, as_of: Position | None) -> None:
        if as_of is not None:
            self._capabilities().require("point_in_time_reads")


def key_at(
    reading: Reading,
    table: Table[Any],
    lower: Key | None,
    tenant: str | None,
    skip: int,
    *,
    beyond: bool = False,
) -> Key | None:
    """Return the key ``skip`` places after the first one at, or ``beyond``, a key."""
    conditions: list[sql.Composable] = [sql.SQL("true")]
    values: list[object] = []
    if lower is not None:
        bound = sql.SQL(", ").join([sql.Placeholder()] * len(lower))
        operator = sql.SQL(">" if beyond else ">=")
        conditions.append(sql.SQL("({}) {} ({})").format(key_order(table), operator, bound))
        values += lower
    if reading.nullable:
        conditions.append(sql.SQL("NOT ({})").format(without_key(table)))
    if tenant is not None:
        conditions.append(sql.SQL("{} = %s").format(BY_CODE_POINT.format(sql.Identifier(table.tenant))))
        values.append(tenant)
    statement = sql.SQL("SELECT {key} FROM {table} WHERE {where} ORDER BY {order} OFFSET %s LIMIT 1").format(
        key=table.key_list,
        table=table.name,
        where=sql.SQL(" AND ").join(conditions),
        order=key_order(table),
    )
    return reading.connection.execute(statement, [*values, skip]).fetchone()
