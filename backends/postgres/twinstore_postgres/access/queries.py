"""A list request as SQL: names from the table only, every value a parameter or a number of an enumeration."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString

from psycopg import sql
from typing_extensions import override

from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
    is_implied,
)
from twinstore.catalog.indexes import StoreKind
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore_postgres.mapping.codec import Unprepared
from twinstore_postgres.mapping.table import by_code_point
from twinstore_postgres.mapping.tenancy import owner_condition, owner_values, scope_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.access.paging import SortKey
    from twinstore.access.query import Query
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity
    from twinstore_postgres.connection.batch import Step
    from twinstore_postgres.mapping.columns import Column
    from twinstore_postgres.mapping.table import Table
    from twinstore_postgres.mapping.tenancy import ScopeKind

COMPARISONS: Final[dict[object, sql.SQL]] = {
    Equals: sql.SQL("{} = {}"),
    After: sql.SQL("{} > {}"),
    Before: sql.SQL("{} < {}"),
    AtMost: sql.SQL("{} <= {}"),
    AtLeast: sql.SQL("{} >= {}"),
    NotAfter: sql.SQL("({} > {}) IS NOT TRUE"),
}
UNARY: Final[dict[object, sql.SQL]] = {IsNull: sql.SQL("{} IS NULL"), IsPresent: sql.SQL("{} IS NOT NULL")}

PAGE: Final = "SELECT {columns} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s"
KEYS: Final = "SELECT {key} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s"
# Rows that another one is marking are passed over; those that changed meanwhile are judged again.
CLAIM: Final = f"{PAGE} FOR UPDATE SKIP LOCKED"
# Each branch comes in the order of an index; the last sort is over one page of each.
BRANCHED_PAGE: Final = "SELECT {columns} FROM ({branches}) AS {alias} ORDER BY {order} LIMIT %s"
BRANCH: Final = "(SELECT {columns} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s)"
COUNT: Final = "SELECT {by}, count(*) FROM {table} WHERE {where} GROUP BY {by}"
# The conditions appear twice, because a row may change between its selection and its removal.
REMOVAL_BY_ONE: Final = (
    "DELETE FROM {table} WHERE {key} = ANY (ARRAY("
    "SELECT {key} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s)) AND {where}"
)
REMOVAL_BY_SEVERAL: Final = (
    "DELETE FROM {table} WHERE ({key}) IN ("
    "SELECT {key} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s) AND {where}"
)
SELECTION: Final = (
    "{action} WHERE ({key}) IN ("
    "SELECT {key} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s) AND {where}"
)
# What the text of a statement depends on: filters with the values that are written out, order, and start.
Shape = tuple[tuple[type, str, object], ...]


def compile_query(query: Query, table: Table) -> Step:
    """Return the statement and its parameters; it fetches one row more than the limit, after the keyset."""
    branches = branches_of(table.entity, query)
    if branches:
        return _branched(branches, table, query, query.limit + 1)
    return _statement(PAGE, query, table), [*_parameters(query, table), query.limit + 1]


def compile_keys(query: Query, table: Table) -> Step:
    """Return the statement that reads the keys of the first rows of a list."""
    return _statement(KEYS, query, table), [*_parameters(query, table), query.limit]


def compile_claim(query: Query, table: Table) -> Step:
    """Return the statement that locks the first rows of a list that no other transaction holds.

    It has no branches: each branch would choose its first rows before it checks the locks. A caller that
    finds those rows locked would then get no others.
    """
    return _statement(CLAIM, query, table), [*_parameters(query, table), query.limit]


def compile_count(query: Query, table: Table, by: str) -> Step:
    """Return the statement that counts the rows of a list by one field; limit and start do not matter."""
    counted = _build(COUNT, table, _shape(query, table), (), scope_kind(query.scope), None, by)
    return counted, _filter_values(query, table)


def compile_removal(query: Query, table: Table) -> Step:
    """Return the statement that removes the first rows of a list."""
    template = REMOVAL_BY_ONE if len(table.key) == 1 else REMOVAL_BY_SEVERAL
    values = _parameters(query, table)
    return _statement(template, query, table), [*values, query.limit, *values]


def compile_selection(action: sql.Composable, query: Query, table: Table) -> Step:
    """Return the statement that does something to the first rows of a list: ``UPDATE`` with what it sets."""
    owner = owner_condition(table, scope_kind(query.scope))
    conditions = [] if owner is None else [owner]
    conditions += [_condition(cls, table.column(field), value) for cls, field, value in _shape(query, table)]
    statement = table.statement(
        SELECTION,
        action=action,
        where=sql.SQL(" AND ").join(conditions or [sql.SQL("true")]),
        order=sql.SQL(", ").join(_sort_key(key, table) for key in query.order),
    )
    values = _filter_values(query, table)
    return Unprepared(statement), [*values, query.limit, *values]


def literal_condition(condition: Condition, table: Table) -> sql.Composable:
    """Return a condition with its values written out, as indexes and statements of their rows have it."""
    column = table.column(condition.field)
    written = _inlined(condition, column)
    if isinstance(condition, OneOf) and written is None:
        written = condition.values
    operand = None if isinstance(condition, (OneOf, IsNull, IsPresent)) else condition.value
    return _condition(type(condition), column, written, sql.Literal(operand))


def _statement(template: LiteralString, query: Query, table: Table) -> bytes:
    nulls = None if query.after is None else tuple(part is None for part in query.after)
    return _build(template, table, _shape(query, table), query.order, scope_kind(query.scope), nulls, None)


def _branched(branches: Sequence[Query], table: Table, query: Query, limit: int) -> Step:
    """Return the statement over the branches of a list, and its parameters."""
    parts = tuple(_statement(BRANCH, branch, table) for branch in branches)
    values = [item for branch in branches for item in (*_parameters(branch, table), limit)]
    return _joined(table, parts, query.order), [*values, limit]


@lru_cache(maxsize=256)
def _joined(table: Table, parts: tuple[bytes, ...], order: tuple[SortKey, ...]) -> bytes:
    return Unprepared(
        table.statement(
            BRANCHED_PAGE,
            # Parts of this library, whose values are parameters.
            branches=Compiled(b" UNION ALL ".join(parts)),
            alias=sql.Identifier(table.entity.name),
            order=sql.SQL(", ").join(_sort_key(key, table) for key in order),
        )
    )


class Compiled(sql.Composable):
    """A part of a statement that has been compiled."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self._text = text

    @override
    def as_bytes(self, context: object = None) -> bytes:
        del context
        return self._text


def _shape(query: Query, table: Table) -> Shape:
    return tuple(
        (type(condition), condition.field, _inlined(condition, table.column(condition.field)))
        for condition in query.where
    )


def _filter_values(query: Query, table: Table) -> list[object]:
    """Return the parameters of scope and filter."""
    values = [item for condition in query.where for item in _bound(condition, table)]
    return [*owner_values(table, query.scope), *values]


def _parameters(query: Query, table: Table) -> list[object]:
    """Return the parameters of scope, filter and start."""
    values = _filter_values(query, table)
    return values if query.after is None else values + _keyset_values(query.after)


def _inlined(condition: Condition, column: Column) -> object:
    """Values that belong to the text: only then does the server see that a partial index applies."""
    if column.numbers is not None and isinstance(condition, OneOf):
        return tuple(map(column.bound, condition.values))
    if column.numbers is not None and isinstance(condition, Equals):
        return (column.bound(condition.value),)
    return condition.value if isinstance(condition, Equals) and isinstance(condition.value, bool) else None


def _bound(condition: Condition, table: Table) -> list[object]:
    written = _inlined(condition, table.column(condition.field))
    if isinstance(condition, (IsNull, IsPresent)) or written is not None:
        return []
    column = table.column(condition.field)
    if isinstance(condition, OneOf):
        return [[column.bound(value) for value in condition.values]]
    return [column.bound(condition.value)]


@lru_cache(maxsize=1024)  # the shapes of lists are few; a caller that invents them must not fill the memory
def _build(  # noqa: PLR0917  # the parts of the cache key
    template: LiteralString,
    table: Table,
    shape: Shape,
    order: tuple[SortKey, ...],
    kind: ScopeKind,
    nulls: tuple[bool, ...] | None,
    by: str | None,
) -> bytes:
    owner = owner_condition(table, kind)
    conditions = [] if owner is None else [owner]
    conditions += [_condition(cls, table.column(field), values) for cls, field, values in shape]
    if nulls is not None:
        conditions.append(_keyset(order, nulls, table))
    parts: dict[str, sql.Composable] = {
        "where": sql.SQL(" AND ").join(conditions or [sql.SQL("true")]),
        "order": sql.SQL(", ").join(_sort_key(key, table) for key in order),
    }
    if by is not None:
        parts["by"] = table.identifier(by)
    return Unprepared(table.statement(template, **parts))


def _condition(
    kind: type, column: Column, written: object, operand: sql.Composable | None = None
) -> sql.Composable:
    name = column.term()
    if kind in UNARY:
        return UNARY[kind].format(name)
    if isinstance(written, bool):
        return name if written else sql.SQL("NOT {}").format(name)
    if isinstance(written, tuple):
        # Without values it is true of no row, but an empty list is a syntax error.
        return sql.SQL("{} IN ({})").format(name, sql.SQL(", ").join(map(sql.Literal, written or (None,))))
    if kind is OneOf:
        cast = "::uuid[]" if column.sql_type == "uuid" else ""
        return sql.SQL("{} = ANY(%s{})").format(name, sql.SQL(cast))
    return COMPARISONS[kind].format(name, operand or sql.Placeholder())


def _sort_key(key: SortKey, table: Table) -> sql.Composable:
    name = by_code_point(table.column(key.field))
    if key.descending:
        # Absent is less than everything, in either direction.
        return sql.SQL("{} DESC NULLS LAST" if key.nullable else "{} DESC").format(name)
    return sql.SQL("{} NULLS FIRST").format(name) if key.nullable else name


def _keyset(order: Sequence[SortKey], nulls: Sequence[bool], table: Table) -> sql.Composable:
    """Rows strictly after a key: ``k1 >= v AND (k1 > v OR <the same for the other keys>)`` uses the index."""
    key, rest = order[0], order[1:]
    name = by_code_point(table.column(key.field))
    tail = _keyset(rest, nulls[1:], table) if rest else None
    if key.descending and key.nullable:
        return _below(name, tail or sql.SQL("false"), null=nulls[0], last=not rest)
    if nulls[0]:
        later = sql.SQL("{0} IS NOT NULL").format(name)
        return later if tail is None else sql.SQL("({0} IS NOT NULL OR {1})").format(name, tail)
    beyond = sql.SQL("<") if key.descending else sql.SQL(">")
    if tail is None:
        return sql.SQL("{0} {1} %s").format(name, beyond)
    return sql.SQL("({0} {1}= %s AND ({0} {1} %s OR {2}))").format(name, beyond, tail)


def _below(name: sql.Composable, tail: sql.Composable, *, null: bool, last: bool) -> sql.Composable:
    """Rows strictly after a key that descends to absent values."""
    if null:
        return sql.SQL("({0} IS NULL AND {1})").format(name, tail)
    if last:
        return sql.SQL("({0} < %s OR {0} IS NULL)").format(name)
    return sql.SQL("({0} < %s OR {0} IS NULL OR ({0} = %s AND {1}))").format(name, tail)


def _keyset_values(after: Sequence[object]) -> list[object]:
    """The parameters of :func:`_keyset`: each key twice but for the last, and none where it is null."""
    last = after[-1]
    values = [value for part in after[:-1] if part is not None for value in (part, part)]
    return [*values, *([] if last is None else [last])]


# Lists of several values in one order: one ordered branch for each value, because the server would sort.
#
# An index by a field and then by the order of a list has the rows of each value in order. The server does not
# merge such runs by itself: asked for several values it reads all their rows and sorts them.


def branches_of(entity: Entity, query: Query) -> tuple[Query, ...]:
    """Return the lists that make up a list; none where an index has it as it is.

    Several values of a field have one list each; a page that begins among absent values has one of what
    remains of them and one of the values.
    """
    if query.after is not None and query.after[0] is None and not query.order[0].descending:
        return null_branches(query)
    return by_value(entity, query)


def null_branches(query: Query) -> tuple[Query, ...]:
    """Return the rest of the rows without a value, and the rows that have one: no single range holds both."""
    first, *rest = query.order
    after = () if query.after is None else query.after[1:]
    absent = replace(query, where=(*query.where, IsNull(first.field)), order=tuple(rest), after=after)
    present = replace(query, where=(*query.where, IsPresent(first.field)), after=None)
    return (absent, present) if rest else (present,)


def by_value(entity: Entity, query: Query) -> tuple[Query, ...]:
    """Return one list for each of several values of a field."""
    several = [item for item in query.where if isinstance(item, OneOf) and len(item.values) > 1]
    if len(several) != 1:
        return ()
    (condition,) = several
    others = tuple(item for item in query.where if item is not condition)
    pinned = frozenset(item.field for item in others if isinstance(item, Equals))
    if query.scope is not ALL_TENANTS and entity.tenant_field is not None:
        pinned |= {entity.tenant_field}
    if not is_branched(entity, pinned, condition.field, query):
        return ()
    return tuple(
        replace(query, where=(*others, Equals(condition.field, value))) for value in condition.values
    )


def is_branched(entity: Entity, pinned: frozenset[str], field: str, query: Query) -> bool:
    """Whether the branches of a list read fewer rows than the list as it is."""
    usable = [
        index
        for index in entity.indexes
        if StoreKind.TABLES in index.stores and all(is_implied(item, query.where) for item in index.where)
    ]
    whole = [index for index in usable if has_order(index.directions, pinned, query.order)]
    if any(field in {item.field for item in index.where} for index in whole):
        return False
    parted = [
        index
        for index in usable
        if field in index.names and has_order(index.directions, pinned | {field}, query.order)
    ]
    # An index by all that the list pins is read past other values, unless the branches pin it all too.
    return any(pinned <= {*index.names} for index in parted) or (bool(parted) and not whole)


def has_order(fields: Sequence[tuple[str, bool]], pinned: frozenset[str], order: Sequence[SortKey]) -> bool:
    """Whether an index has an order behind the fields of one value, forwards or backwards."""
    leading = next((place for place, (name, _) in enumerate(fields) if name not in pinned), len(fields))
    tail = fields[leading : leading + len(order)]
    if [name for name, _ in tail] != [key.field for key in order]:
        return False
    return len({descends is key.descending for (_, descends), key in zip(tail, order, strict=True)}) == 1
