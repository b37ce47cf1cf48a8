"""A list request as SQL: names from the table only, every value a parameter or a number of an enumeration."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from twinstore.query import After, AtMost, Before, Equals, IsNull, OneOf
from twinstore_postgres.codec import Replanned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.paging import SortKey
    from twinstore.query import Condition, Query
    from twinstore_postgres.codec import Column, Table
    from twinstore_postgres.work import Step

__all__ = ["compile_query"]

COMPARISONS: Final[dict[object, sql.SQL]] = {
    Equals: sql.SQL("{} = %s"),
    After: sql.SQL("{} > %s"),
    Before: sql.SQL("{} < %s"),
    AtMost: sql.SQL("{} <= %s"),
}
# What the text of a statement depends on: filters with the values that are written out, order, and start.
Shape = tuple[tuple[type, str, object], ...]


def compile_query(query: Query, table: Table[Any]) -> Step:
    """Return the statement and its parameters; it fetches one row more than the limit, after the keyset."""
    shape = tuple(
        (type(condition), condition.field, _written_out(condition, table)) for condition in query.where
    )
    nulls = None if query.after is None else tuple(part is None for part in query.after)
    statement = _statement(table, shape, query.order, query.tenant_id is not None, nulls)
    parameters: list[object] = [] if query.tenant_id is None else [query.tenant_id]
    parameters += [item for condition in query.where for item in _bound(condition, table)]
    if query.after is not None:
        parameters += _keyset_values(query.after)
    return statement, [*parameters, query.limit + 1]


def _written_out(condition: Condition, table: Table[Any]) -> object:
    """Values that belong to the text: only then does the server see that a partial index applies."""
    column = table.column(condition.field)
    if isinstance(condition, OneOf) and column.enum is not None:
        return tuple(column.enum(value).number for value in condition.values)
    return condition.value if isinstance(condition, Equals) and isinstance(condition.value, bool) else None


def _bound(condition: Condition, table: Table[Any]) -> list[object]:
    if isinstance(condition, IsNull) or _written_out(condition, table) is not None:
        return []
    return [list(condition.values) if isinstance(condition, OneOf) else condition.value]


@lru_cache(maxsize=1024)
def _statement(
    table: Table[Any],
    shape: Shape,
    order: tuple[SortKey, ...],
    tenant: bool,  # noqa: FBT001  # part of the cache key
    nulls: tuple[bool, ...] | None,
) -> bytes:
    conditions: list[sql.Composable] = []
    if tenant:
        conditions.append(sql.SQL("{} = %s").format(sql.Identifier(table.tenant)))
    conditions += [_condition(kind, table.column(field), values) for kind, field, values in shape]
    if nulls is not None:
        conditions.append(_keyset(order, nulls, table))
    return Replanned(
        sql.SQL("SELECT {columns} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s")
        .format(
            columns=table.column_list,
            table=table.name,
            where=sql.SQL(" AND ").join(conditions or [sql.SQL("true")]),
            order=sql.SQL(", ").join(_sort_key(key, table) for key in order),
        )
        .as_bytes()
    )


def _condition(kind: type, column: Column, values: object) -> sql.Composable:
    name = sql.Identifier(column.name)
    if kind is IsNull:
        return sql.SQL("{} IS NULL").format(name)
    if isinstance(values, bool):
        return name if values else sql.SQL("NOT {}").format(name)
    if isinstance(values, tuple):
        return sql.SQL("{} IN ({})").format(name, sql.SQL(", ").join(map(sql.Literal, values)))
    if kind is OneOf:
        return sql.SQL("{} = ANY(%s)").format(name)
    return COMPARISONS[kind].format(name)


def _sort_key(key: SortKey, table: Table[Any]) -> sql.Composable:
    name = _ordered(table.column(key.field))
    if key.descending:
        return sql.SQL("{} DESC").format(name)
    return sql.SQL("{} NULLS FIRST").format(name) if key.nullable else name


def _ordered(column: Column) -> sql.Composable:
    """Return a column as it is sorted and compared: texts by code point, whatever collation it has.

    Our own tables have that collation; those of a source that somebody else made may have another.
    """
    name = sql.Identifier(column.name)
    return sql.SQL('{} COLLATE "C"').format(name) if column.sql_type == "text" else name


def _keyset(order: Sequence[SortKey], nulls: Sequence[bool], table: Table[Any]) -> sql.Composable:
    """Rows strictly after a key: ``k1 >= v AND (k1 > v OR <the same for the other keys>)`` uses the index."""
    key, rest = order[0], order[1:]
    name = _ordered(table.column(key.field))
    tail = _keyset(rest, nulls[1:], table) if rest else None
    if nulls[0]:
        later = sql.SQL("{0} IS NOT NULL").format(name)
        return later if tail is None else sql.SQL("({0} IS NOT NULL OR {1})").format(name, tail)
    beyond = sql.SQL("<") if key.descending else sql.SQL(">")
    if tail is None:
        return sql.SQL("{0} {1} %s").format(name, beyond)
    return sql.SQL("({0} {1}= %s AND ({0} {1} %s OR {2}))").format(name, beyond, tail)


def _keyset_values(after: Sequence[object]) -> list[object]:
    """The parameters of :func:`_keyset`: each key twice but for the last, and none where it is null."""
    last = after[-1]
    values = [value for part in after[:-1] if part is not None for value in (part, part)]
    return [*values, *([] if last is None else [last])]
