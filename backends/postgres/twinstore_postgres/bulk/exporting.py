"""Reading ranges of rows as models, streamed by a binary COPY."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.bulk import Key, KeyRange, Record
from twinstore.errors import DocumentDecodeError
from twinstore.mapnames import lossy_map, names_lost
from twinstore.tenancy import ALL_TENANTS, Tenant, Tenants
from twinstore_postgres.bulk.finding import without_key
from twinstore_postgres.bulk.keys import storable_keys
from twinstore_postgres.bulk.original import RowOriginal
from twinstore_postgres.owners import owner_condition, owner_values, scope_kind
from twinstore_postgres.reading import TolerantInstantLoader

if TYPE_CHECKING:
    from psycopg.abc import Buffer

    from twinstore_postgres.bulk.viewing import Snapshot
    from twinstore_postgres.codec import Row
    from twinstore_postgres.derive import Table

__all__ = ["EXPORT", "export_batches", "export_of", "range_condition", "record_of", "tenant_condition"]

# A batch ends at this size too; as objects rows take several times their bytes.
BATCH_BYTES: Final = 500_000
# COPY, because a cursor of the server takes five times as long. Binary, because values are wanted, not text;
# the scan of a comparison reads text, so that no common reader can hide a difference.
EXPORT: Final = (
    "COPY (SELECT {columns} FROM {table} WHERE {where} ORDER BY {order}) TO STDOUT (FORMAT BINARY)"
)
EXPORT_SOME: Final = (
    "COPY (SELECT {columns} FROM {table} WHERE ({order}) IN ({keys})) TO STDOUT (FORMAT BINARY)"
)
# Of one query, whose text grows with them.
SOME_KEYS: Final = 500
# A tenant as a parameter, compared by code point, whatever collation somebody gave the column.
EXACTLY: Final = sql.SQL('%s::text COLLATE "C"')


def export_batches(
    snapshot: Snapshot, table: Table, within: KeyRange, tenant_id: str | None, batch_size: int
) -> Generator[list[Record]]:
    """Yield the rows of a range in key order, in batches; the server waits while the caller works."""
    found = snapshot.find(table)
    if found is None:
        return
    where, values = range_condition(table, within, tenant_id, nullable=found.nullable)
    statement = sql.SQL(EXPORT).format(**table.parts, where=where, order=table.key_order)
    batch: list[Record] = []
    size = 0
    for record, length in stored_records(snapshot, table, statement, values):
        size += length
        batch.append(record)
        del record
        if len(batch) == batch_size or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def export_of(snapshot: Snapshot, table: Table, keys: Sequence[Key]) -> Generator[Record]:
    """Yield single rows; keys that no row can have are not asked for."""
    wanted = [] if snapshot.find(table) is None else storable_keys(table.entity, keys)
    one = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(table.key)))
    for start in range(0, len(wanted), SOME_KEYS):
        some = wanted[start : start + SOME_KEYS]
        asked = sql.SQL(", ").join([one] * len(some))
        statement = sql.SQL(EXPORT_SOME).format(**table.parts, order=table.key_order, keys=asked)
        values = list(chain.from_iterable(some))
        yield from (record for record, _ in stored_records(snapshot, table, statement, values))


def stored_records(
    snapshot: Snapshot, table: Table, statement: sql.Composed, values: Sequence[object]
) -> Generator[tuple[Record, int]]:
    """Yield the records of the rows that a statement selects, each with the bytes that the server sent."""
    with snapshot.copy(statement, values) as copy:
        copy.cursor.adapters.register_loader("timestamptz", TolerantInstantLoader)
        copy.set_types([column.sql_type for column in table.columns])
        for message in copy:  # one for each row, the library says, and one at the end that is none
            row = copy.formatter.parse_row(message)
            record = None if row is None else record_of(table, row, message)
            del row
            if record is not None:
                yield record, len(message)
                del record


def range_condition(
    table: Table, within: KeyRange, tenant_id: str | None, *, nullable: bool
) -> tuple[sql.Composable, Sequence[object]]:
    """Return the condition of a range and its values; composed keys are compared as rows.

    Rows whose key is null belong to the open upper end. Only where there can be such rows the condition says
    so, because the server would not go along the index then.
    """
    conditions: list[sql.Composable] = []
    values: list[object] = []
    for operator, bound in ((sql.SQL(">="), within.lower), (sql.SQL("<"), within.upper)):
        if bound is not None:
            conditions.append(
                sql.SQL("({key}) {operator} ({values})").format(
                    key=table.key_order,
                    operator=operator,
                    values=sql.SQL(", ").join([sql.Placeholder()] * len(bound)),
                )
            )
            values += bound
    if conditions and nullable:
        kind = "(({0}) OR ({1}))" if within.upper is None else "(({0}) AND NOT ({1}))"
        conditions = [sql.SQL(kind).format(sql.SQL(" AND ").join(conditions), without_key(table))]
    owner, owned_by = tenant_condition(table, tenant_id)
    return sql.SQL(" AND ").join([*conditions, owner]), [*values, *owned_by]


def tenant_condition(table: Table, tenant_id: str | None) -> tuple[sql.Composable, Sequence[object]]:
    """Return the condition of the rows of a tenant, or of all, and its values."""
    scope: Tenants = ALL_TENANTS if tenant_id is None else Tenant(tenant_id)
    owner = owner_condition(table, scope_kind(scope), tenant=EXACTLY)
    return sql.SQL("true") if owner is None else owner, owner_values(table, scope)


def record_of(table: Table, row: Row, message: Buffer) -> Record:
    """Return the record of a row, decoded or with the reason why not."""
    original = RowOriginal(table.columns, message)
    stored = table.key_of(row)
    key: Key | None = stored if table.entity.admits_key(stored) else None
    owner = table.owner(row)
    record = Record(key, owner, None, original=original)
    try:
        record.storage = table.checked_markers_of(row)
        model, document = table.decode_with_document(row)
    except DocumentDecodeError as error:
        record.error = error.message
        return record
    if (path := lossy_map(document, model)) is not None:
        record.error = names_lost(path)
        return record
    record.model = model
    return record
