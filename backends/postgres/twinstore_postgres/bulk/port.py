"""The bulk port of a module on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from psycopg import sql
from typing_extensions import override

from twinstore.access.query import batch_size_argument
from twinstore.access.scope import UNBOUND, record_system_scope
from twinstore.bulk.changes import NO_CHANGES, DocumentChanges
from twinstore.bulk.port import EVERY_KEY, MANY_ROWS, BulkPort
from twinstore.catalog.keys import LONGEST_TEXT, KeyRange, spread
from twinstore.clock import truncate_to_millisecond
from twinstore.errors import Outcome, UnsupportedCapabilityError
from twinstore_postgres.access.access import PostgresAccess
from twinstore_postgres.access.execution import UnboundExecution
from twinstore_postgres.bulk.connections import (
    BulkConnections,
    RoleConnections,
    identity_of,
    inside,
    instance_of,
)
from twinstore_postgres.bulk.digests import digestible
from twinstore_postgres.bulk.export import tenant_condition
from twinstore_postgres.bulk.inventory import inventory_of
from twinstore_postgres.bulk.scan import Scans
from twinstore_postgres.bulk.snapshot import Snapshot, without_key
from twinstore_postgres.bulk.staging import Stage, create_stage
from twinstore_postgres.bulk.view import CHANGED, PostgresView, tenant_of
from twinstore_postgres.bulk.writer import PROBE_BY_KEY, PostgresRangeWriter
from twinstore_postgres.connection.errors import Subject, translated
from twinstore_postgres.connection.transaction import STEP, UNIT
from twinstore_postgres.mapping.codec import Unprepared
from twinstore_postgres.mapping.columns import object_id_check
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.access.protocol import Access
    from twinstore.bulk.port import CommitCheck, Inventory, OnConflict, Position
    from twinstore.bulk.rows import Digestible, NoDigests
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.migrations.migration import Initializer
    from twinstore.plugins.backend import Capabilities
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.transaction import Transaction
    from twinstore_postgres.mapping.table import Table

COUNTS: Final = 'SELECT {tenant} COLLATE "C", count(*) FROM {table} WHERE {where} GROUP BY 1 ORDER BY 1'
# Whether samples can be taken, unlike of views; and what the server remembers, once all parts are analysed.
ESTIMATE: Final = b"""
SELECT bool_and(p.relkind IN ('r', 'm')), CASE WHEN min(p.reltuples) >= 0 THEN sum(p.reltuples)::bigint END
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_class p ON p.oid = c.oid OR p.oid IN (SELECT relid FROM pg_partition_tree(c.oid))
 WHERE n.nspname = %s AND c.relname = %s AND p.relkind IN ('r', 'm', 'f', 'v')
"""
# The server takes all rows of some pages. Few of each are kept, because their keys may be neighbours.
SAMPLED: Final = 100
SAMPLE: Final = "SELECT {key} FROM {table} TABLESAMPLE SYSTEM (%s) WHERE random() < %s"
NOW: Final = "SELECT clock_timestamp()"
# REPEATABLE READ: everything that one view or one count reads is of one state.
SNAPSHOT_BEGIN: Final = UNIT[True]


class PostgresBulk(BulkPort):
    """Implements :class:`~twinstore.bulk.port.BulkPort` for any module."""

    def __init__(
        self,
        connections: BulkConnections,
        capabilities: Callable[[], Capabilities],
        module: ModuleSpec[object],
        ledger_initializer: Initializer,
        role: RoleConnections | None = None,
    ) -> None:
        self._ledger_initializer = ledger_initializer
        self._connections = connections
        self._role = role
        self._capabilities = capabilities
        self._module = module
        self._scans = Scans()
        self._changes = NO_CHANGES

    @property
    @override
    def identity(self) -> str:
        """The number of the cluster and that of the database; connects at the first call."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        with self._connections.connection() as connection:
            return f"{DRIVER} {identity_of(connection)}"

    @property
    @override
    def instance(self) -> str:
        """When the server was started, its port and the number of the database."""
        with self._connections.connection() as connection:
            return f"{DRIVER} {instance_of(connection)}"

    @property
    @override
    def place(self) -> str:
        return f"{DRIVER} {self._connections.place}"

    @property
    @override
    def ledger_initializer(self) -> Initializer:
        return self._ledger_initializer

    @override
    def entities(self) -> tuple[Entity, ...]:
        return self._module.catalog.entities

    @override
    def with_changes(self, changes: DocumentChanges) -> BulkPort:
        if any(map(changes.lookups, self.entities())):
            raise UnsupportedCapabilityError(f"Rules cannot look up rows in {self.place}.")
        # Tables have no names at the top to drop, and their keys have the type of the model.
        if changes.only_drop or changes.keys or changes.ids or changes.written:
            return super().with_changes(changes)
        found = copy(self)
        found._changes = changes  # noqa: SLF001  # its own class
        return found

    @override
    def inventory(self) -> tuple[Inventory, ...]:
        with (
            self._connections.system("bulk survey", begin=SNAPSHOT_BEGIN) as transaction,
            translated(outcome=Outcome.NOT_APPLIED),
        ):
            transaction.run()
            return inventory_of(transaction.connection, self._module)

    @override
    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        table = table_of(entity)
        where, values = tenant_condition(table, tenant_of(tenant_id))
        statement = table.statement(COUNTS, tenant=table.tenant_expression, where=where)
        with self._connections.system("bulk counts", begin=SNAPSHOT_BEGIN) as transaction:
            if Snapshot(transaction).find(table) is None:
                return {}
            (found,) = transaction.run((Unprepared(statement), values), subject=Subject(entity))
        return table.labelled((tenant, number) for tenant, number in found.rows)

    @override
    def now(self) -> datetime:
        with self._connections.connection() as connection, translated(outcome=Outcome.NOT_APPLIED):
            found = connection.execute(NOW).fetchall()
        return truncate_to_millisecond(found[0][0])

    @override
    def position(self) -> Position | None:
        """Return nothing: changes cannot be followed here."""
        return None

    @override
    def digestible(self, entity: Entity) -> Digestible | NoDigests:
        return CHANGED if entity.name in self._changes.documents else digestible(entity)

    @override
    def estimated_count(self, entity: Entity) -> int:
        return self._sized(entity)[1]

    @override
    def cut(
        self, entity: Entity, rows: int, *, tenant_id: str | None = None, within: KeyRange = EVERY_KEY
    ) -> Iterator[KeyRange]:
        return self._cut(table_of(entity), batch_size_argument(rows), tenant_of(tenant_id), within)

    @override
    def sample_keys(self, entity: Entity, count: int) -> Sequence[Key]:
        is_table, rows = self._sized(entity)
        if not (is_table and rows):
            return ()
        read = min(SAMPLED * count / rows, 1)
        step = Unprepared(table_of(entity).statement(SAMPLE)), [100 * read, count / rows / read]
        with self._connections.system("bulk cut", begin=SNAPSHOT_BEGIN) as transaction:
            (found,) = transaction.run(step, subject=Subject(entity))
        return spread((key if entity.admits_key(key) else None for key in found.rows), count)

    def _sized(self, entity: Entity) -> tuple[bool, int]:
        """Return whether samples of a table can be taken, and how many rows it has; many are estimated."""
        step = ESTIMATE, [entity.module, entity.name]
        with self._connections.system("bulk counts", begin=SNAPSHOT_BEGIN) as transaction:
            (found,) = transaction.run(step, subject=Subject(entity))
        is_table, estimate = found.first or (False, None)
        if estimate is None or estimate <= MANY_ROWS:
            estimate = super().estimated_count(entity)
        return bool(is_table), estimate

    @contextmanager
    @override
    def view(self, *, as_of: Position | None = None) -> Iterator[PostgresView]:
        """Open a view of one state, that of its first statement."""
        if as_of is not None:
            self._capabilities().require("point_in_time_reads")
        with self._connections.system("bulk view", begin=SNAPSHOT_BEGIN) as transaction:
            view = PostgresView(transaction, self._scans, self._changes)
            try:
                yield view
            finally:
                view.close()

    @contextmanager
    @override
    def writer(
        self, entity: Entity, *, on_conflict: OnConflict = "fail", check: CommitCheck | None = None
    ) -> Iterator[PostgresRangeWriter]:
        """Open a writer for one range; its single transaction needs no separate ``check``."""
        del check
        overwrite = on_conflict == "overwrite" and not entity.append_only
        with (self._role or self._connections).connection() as connection:
            with translated(Subject(entity), outcome=Outcome.NOT_APPLIED):
                create_stage(connection, table_of(entity))
            # READ COMMITTED sees rows that others commit meanwhile. A snapshot would fail with 40001.
            with inside(connection, "bulk write", begin=STEP) as transaction:
                stage = Stage(transaction, table_of(entity), direct=self._role is not None)
                # A key inside the payload is kept from its index: there a probe reads the table.
                if stage.is_probed:
                    transaction.later(PROBE_BY_KEY)
                writer = PostgresRangeWriter(transaction, stage, entity, overwrite=overwrite)
                try:
                    yield writer
                finally:
                    writer.close()

    @override
    def access(self) -> Access:
        """Return the rows of any described entity, call by call, past the pool."""
        record_system_scope("bulk access")
        return PostgresAccess(UnboundExecution(self._connections, UNBOUND), {})

    def _cut(self, table: Table, rows: int, tenant: str | None, within: KeyRange) -> Iterator[KeyRange]:
        lower, end = within.lower, within.upper
        while (upper := self._key_after(table, lower, rows, tenant)) and (end is None or upper < end):
            yield KeyRange(lower, upper)
            lower = upper
        yield KeyRange(lower, end)

    def _key_after(self, table: Table, lower: Key | None, rows: int, tenant: str | None) -> Key | None:
        """Return the key that lies some rows after another one, ``None`` beyond the last."""
        # A transaction for each key: one that stays open while the caller works holds back vacuum.
        with self._connections.system("bulk cut", begin=SNAPSHOT_BEGIN) as transaction:
            found = Snapshot(transaction).find(table)
            if found is None:
                return None
            walk = KeyWalk(transaction, table, tenant, found.nullable)
            key = walk.key_at(lower, rows)
            if key is not None and not table.entity.admits_key(key):
                key = walk.key_at(lower, rows, short=True)
            if lower is None or key != lower:
                return key
            # Without a unique index many rows can share one key; a range cannot end among them.
            return walk.key_at(lower, 0, beyond=True, short=True)


SHORT: Final = "char_length({}) <= {}"
KEY_AT: Final = "SELECT {key} FROM {table} WHERE {where} ORDER BY {order} OFFSET %s LIMIT 1"


@dataclass(frozen=True, slots=True)
class KeyWalk:
    """A walk along the keys of a table, or of one tenant in it, that passes over rows without a key."""

    transaction: Transaction
    table: Table
    tenant: str | None
    nullable: bool

    def key_at(
        self, lower: Key | None, skip: int, *, beyond: bool = False, short: bool = False
    ) -> Key | None:
        """Return the key ``skip`` rows after the first at, or ``beyond``, a key; ``None`` past the end.

        With ``short`` only those count that can be a key of the entity.
        """
        owner, values = tenant_condition(self.table, self.tenant)
        conditions = [owner]
        if self.nullable:
            conditions.append(sql.SQL("NOT ({})").format(without_key(self.table)))
        if short:
            conditions += short_texts(self.table)
        if lower is not None:
            bound = sql.SQL(", ").join([sql.Placeholder()] * len(lower))
            operator = sql.SQL(">" if beyond else ">=")
            conditions.append(sql.SQL("({}) {} ({})").format(self.table.key_order, operator, bound))
        where = sql.SQL(" AND ").join(conditions)
        statement = self.table.statement(KEY_AT, where=where, order=self.table.key_order)
        step = (Unprepared(statement), [*values, *(lower or ()), skip])
        (found,) = self.transaction.run(step, subject=Subject(self.table.entity))
        return found.first


def short_texts(table: Table) -> list[sql.Composable]:
    """Return the conditions of keys whose texts are not too long, or, where they must be, ObjectIds."""
    columns = [table.column(field) for field in table.entity.key]
    texts = [column.term() for column in columns if column.sql_type == "text"]
    short = [sql.SQL(SHORT).format(name, sql.Literal(LONGEST_TEXT)) for name in texts]
    # The table of another program may lack the check that ours have.
    return [*short, *(object_id_check(column) for column in columns if column.object_id)]
