"""Reading ranges of rows as models, streamed by a binary COPY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from twinstore import jsontext
from twinstore.bulk import Key, KeyRange, Record
from twinstore.errors import DocumentDecodeError
from twinstore_postgres.connecting import in_one_process
from twinstore_postgres.reading import TolerantInstantLoader

if TYPE_CHECKING:
    from twinstore_postgres.bulk.connections import BulkConnections
    from twinstore_postgres.codec import Row, Table

__all__ = ["BY_CODE_POINT", "export_batches", "key_order", "without_key"]

# A batch ends at this size too. Every so many rows one is weighed for all of them, which costs little.
BATCH_BYTES: Final = 8_000_000
WEIGHED: Final = 8
EXPORT: Final = "COPY (SELECT {columns} FROM {table} WHERE {where} ORDER BY {key}) TO STDOUT (FORMAT BINARY)"
# The order of every other store, whatever collation somebody gave the column; on our own tables it is no-op.
BY_CODE_POINT: Final = sql.SQL('{} COLLATE "C"')


def export_batches(
    connections: BulkConnections,
    table: Table[Any],
    within: KeyRange,
    tenant_id: str | None,
    batch_size: int,
) -> Iterator[list[Record]]:
    """Yield the rows of a range in key order, in batches; the server waits while the caller works."""
    with connections.reading("bulk export", table.entity, table.key) as reading:
        if reading is None:
            return
        where, values = range_condition(table, within, tenant_id, nullable=reading.nullable)
        statement = sql.SQL(EXPORT).format(
            columns=table.column_list, table=table.name, where=where, key=key_order(table)
        )
        cursor = reading.connection.cursor()
        cursor.adapters.register_loader("timestamptz", TolerantInstantLoader)
        with cursor.copy(statement, values) as copy, in_one_process(reading.connection):
            copy.set_types([column.sql_type for column in table.columns])
            batch: list[Record] = []
            size = 0
            for row in copy.rows():
                if len(batch) % WEIGHED == 0:
                    size += WEIGHED * weight(row)
                batch.append(record_of(table, row))
                if len(batch) == batch_size or size > BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch


def weight(value: object) -> int:
    """Return about how many bytes a value takes; the items of a list are taken to be alike."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(weight, value.values()))
    if isinstance(value, list):
        return len(value) * weight(value[0]) if value else 0
    return sum(map(weight, value)) if isinstance(value, tuple) else 8


def key_order(table: Table[Any]) -> sql.Composable:
    """Return the columns of the key as they are sorted and compared."""
    return sql.SQL(", ").join(BY_CODE_POINT.format(sql.Identifier(name)) for name in table.key)


def without_key(table: Table[Any]) -> sql.Composable:
    """Return the condition of rows whose key is null, at least in part."""
    return sql.SQL(" OR ").join(sql.SQL("{} IS NULL").format(sql.Identifier(name)) for name in table.key)


def range_condition(
    table: Table[Any], within: KeyRange, tenant_id: str | None, *, nullable: bool
) -> tuple[sql.Composable, Sequence[str]]:
    """Return the condition of a range and its values; composed keys are compared as rows.

    Rows whose key is null belong to the open upper end. Only where there can be such rows the condition says
    so, because the server would not go along the index then.
    """
    conditions: list[sql.Composable] = []
    values: list[str] = []
    for operator, bound in ((sql.SQL(">="), within.lower), (sql.SQL("<"), within.upper)):
        if bound is not None:
            conditions.append(
                sql.SQL("({key}) {operator} ({values})").format(
                    key=key_order(table),
                    operator=operator,
                    values=sql.SQL(", ").join([sql.Placeholder()] * len(bound)),
                )
            )
            values += bound
    if conditions and nullable:
        kind = "({0}) OR ({1})" if within.upper is None else "({0}) AND NOT ({1})"
        inside = sql.SQL(" AND ").join(conditions)
        conditions = [sql.SQL("({})").format(sql.SQL(kind).format(inside, without_key(table)))]
    if tenant_id is not None:
        conditions.append(sql.SQL("{} = %s").format(BY_CODE_POINT.format(sql.Identifier(table.tenant))))
        values.append(tenant_id)
    return sql.SQL(" AND ").join(conditions or [sql.SQL("true")]), values


def record_of(table: Table[Any], row: Row) -> Record:
    """Return the record of a row, decoded or with the reason why not."""
    found = table.key_of(row)
    key: Key | None = None if None in found else found
    tenant = row[table.tenant_position]
    storage = table.markers_of(row)
    try:
        return Record(key, tenant, table.decode(row), storage)
    except DocumentDecodeError as error:
        return Record(key, tenant, None, storage, error=error.message, raw=raw_text(table, row))


def raw_text(table: Table[Any], row: Row) -> str:
    """Return a stored row as JSON by column; what JSON cannot hold is written as text."""
    values = {
        column.name: value if isinstance(value, _PLAIN) else str(value)
        for column, value in zip(table.columns, row, strict=True)
    }
    return jsontext.dumps(values).decode()


_PLAIN: Final = (str, int, float, bool, list, dict, type(None))
