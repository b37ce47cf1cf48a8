"""The statements about rows that are named by their key: the same few for every table, each made once.

What lists need is in :mod:`twinstore_postgres.access.queries`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.access.query import assigned_marker
from twinstore_postgres.access.queries import literal_condition
from twinstore_postgres.mapping.codec import Unprepared
from twinstore_postgres.mapping.table import distinguished, listed
from twinstore_postgres.mapping.tenancy import ScopeKind, owner_condition, parent_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore_postgres.connection.batch import Step
    from twinstore_postgres.mapping.table import Table

FIND: Final = "SELECT {columns} FROM {table} WHERE {found}"
# No role may update a row of an append-only table, so no role may lock it either.
LOCK: Final = "SELECT {columns} FROM {table} WHERE {found} FOR UPDATE"
FIND_WITH_TIME: Final = "SELECT {columns}, clock_timestamp() FROM {table} WHERE {found}"
# The clock is read after the lock is granted: a clock in the same SELECT as the row would be read before.
LOCK_WITH_TIME: Final = (
    "WITH held AS MATERIALIZED (SELECT {columns} FROM {table} WHERE {found} FOR UPDATE) "
    "SELECT {columns}, clock_timestamp() FROM held"
)
LOCK_KEY: Final = "SELECT {key} FROM {table} WHERE {found} FOR UPDATE"
FIND_KEY: Final = "SELECT {key} FROM {table} WHERE {found}"
INSERT: Final = "INSERT INTO {table} ({columns}) VALUES ({values})"
INSERT_SEVERAL: Final = "INSERT INTO {table} ({columns}) VALUES {rows}"
# Of one statement; more save little, and its text grows.
ROWS_AT_ONCE: Final = 20
INSERT_UNLESS_STORED: Final = (
    "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO NOTHING"
)
# A row whose parent is out of sight is not inserted.
INSERT_UNDER_PARENT: Final = (
    "WITH given ({columns}) AS (VALUES ({typed})) INSERT INTO {table} ({columns}) "
    "SELECT {columns} FROM given WHERE {parent} ON CONFLICT ({key}) DO NOTHING"
)
# By the key alone: the row is locked, and it was found in the scope.
UPDATE: Final = "UPDATE {table} SET ({columns}) = ROW({values}){version} WHERE {found}"
# A write that changes nothing, seen by those whose snapshot is older; a lock is not.
TOUCH: Final = "UPDATE {table} SET {first} = {first}{version} WHERE {found}"
DELETE: Final = "DELETE FROM {table} WHERE {found}"
LAST_NUMBER: Final = "SELECT coalesce(max({sequence}), 0) FROM {table} WHERE {above} = %s"
# Afterwards the row is stored as given, whether or not it was so before.
PUT_OWN: Final = (
    "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE "
    "SET ({columns}) = ROW({excluded}){version} "
    "WHERE ({stored}) IS DISTINCT FROM ({wanted})"
)
NEXT_NUMBER: Final = b"SELECT nextval(pg_get_serial_sequence(%s, %s))"
RAISE_COUNTER: Final = (
    b"SELECT setval(s, %s) FROM CAST(pg_get_serial_sequence(%s, %s) AS regclass) AS s "
    b"WHERE coalesce(pg_sequence_last_value(s), 0) < %s"
)
# First row: true when the row is stored as given now, because it replaced the own one, was inserted, or was
# there already; false when a concurrent transaction changed the own one. No row: the key belongs to a row out
# of sight, or to one that a concurrent transaction has just inserted, or the parent is out of sight.
PUT: Final = (
    "WITH given ({columns}) AS (VALUES ({typed})), "
    "replaced AS (UPDATE {table} SET ({columns}) = ROW({given}){version} FROM given "
    "WHERE {found} AND ({stored}) IS DISTINCT FROM ({wanted}) RETURNING true AS same), "
    "inserted AS (INSERT INTO {table} ({columns}) SELECT {columns} FROM given WHERE {parent} "
    "ON CONFLICT ({key}) DO NOTHING RETURNING true AS same) "
    "SELECT same FROM replaced UNION ALL SELECT same FROM inserted UNION ALL "
    "SELECT ({stored}) IS NOT DISTINCT FROM ({wanted}) FROM {table}, given WHERE {found}"
)


@cache
def find(table: Table, kind: ScopeKind, unique: str | None = None) -> bytes:
    """Return the statement that reads one row by its key, or by the values of a unique index."""
    return table.statement(FIND, found=_found(table, kind, unique))


@cache
def find_several(table: Table, kind: ScopeKind, unique: str | None = None) -> bytes:
    """Return the statement that reads rows by arrays of the parts of their keys, or of unique values."""
    among = _among(table, _named(table, unique))
    return Unprepared(table.statement(FIND, found=_all(among, *_narrowing(table, kind, unique))))


@cache
def lock(table: Table, kind: ScopeKind, unique: str | None = None, *, below: bool = False) -> bytes:
    """Return the statement that reads and locks one row; those of append-only tables are read only.

    ``below`` looks among the children of one parent, whose key is the last parameter.
    """
    template = FIND if table.entity.append_only else LOCK
    return table.statement(template, found=_found_below(table, kind, unique, below=below))


@cache
def lock_with_time(table: Table, kind: ScopeKind, unique: str | None = None, *, below: bool = False) -> bytes:
    """Return the statement that does the same and then reads the clock; the time follows the columns."""
    template = FIND_WITH_TIME if table.entity.append_only else LOCK_WITH_TIME
    return table.statement(template, found=_found_below(table, kind, unique, below=below))


@cache
def lock_row_key(table: Table, kind: ScopeKind) -> bytes:
    """Return the statement that locks one row and reads its key alone."""
    template = FIND_KEY if table.entity.append_only else LOCK_KEY
    return table.statement(template, found=_found(table, kind, None))


@cache
def insert(table: Table) -> bytes:
    """Return the statement that inserts a row."""
    return table.statement(INSERT)


@cache
def insert_several(table: Table) -> bytes:
    """Return the statement that inserts :data:`ROWS_AT_ONCE` rows."""
    row = sql.SQL("({})").format(table.parts["values"])
    return table.statement(INSERT_SEVERAL, rows=sql.SQL(", ").join([row] * ROWS_AT_ONCE))


@cache
def insert_unless_stored(table: Table, kind: ScopeKind) -> bytes:
    """Return the statement that inserts a row unless its key is taken or its parent is out of sight."""
    if table.parent is None:
        return table.statement(INSERT_UNLESS_STORED)
    return table.statement(INSERT_UNDER_PARENT, parent=parent_condition(table, kind, sql.SQL("given")))


@cache
def update(table: Table) -> bytes:
    """Return the statement that replaces a locked row, found by the key it had."""
    return table.statement(UPDATE, found=_found(table, ScopeKind.ANY_TENANT, None))


@cache
def touch(table: Table) -> bytes:
    """Return the statement that writes a locked row as it is."""
    # Any column does; an expression on the payload cannot be set.
    first = (table.key if table.has_own_key else table.columns)[0].term()
    return table.statement(TOUCH, first=first, found=_found(table, ScopeKind.ANY_TENANT, None))


@cache
def delete(table: Table, kind: ScopeKind) -> bytes:
    """Return the statement that removes one row by its key."""
    return table.statement(DELETE, found=_found(table, kind, None))


@cache
def delete_several(table: Table) -> bytes:
    """Return the statement that removes rows of any owner by arrays of the parts of their keys."""
    return Unprepared(table.statement(DELETE, found=_among(table, table.entity.key)))


@cache
def put(table: Table, kind: ScopeKind) -> bytes:
    """Return the statement that inserts a row or replaces the own one, unless it is stored as given."""
    if is_put_own(table):
        relation = sql.SQL("excluded")
        wanted = distinguished(table.columns, relation)
        return table.statement(PUT_OWN, excluded=listed(table.columns, relation), wanted=wanted)
    parent = sql.SQL("true") if table.parent is None else parent_condition(table, kind, sql.SQL("given"))
    relation = sql.SQL("given")
    return table.statement(
        PUT,
        given=listed(table.columns, relation),
        wanted=distinguished(table.columns, relation),
        found=_found(table, kind, None, table.name),
        parent=parent,
    )


def is_put_own(table: Table) -> bool:
    """Whether a row that conflicts with an insert may always be replaced."""
    return table.keys_are_own and table.parent is None


@cache
def last_number(table: Table, field: str) -> bytes:
    """Return the statement that reads the highest number of an ordered log under one parent."""
    return table.statement(LAST_NUMBER, sequence=table.identifier(field), above=table.parent_column)


@cache
def next_number(table: Table) -> Step:
    """Return the statement that counts one row more; what it says stays said, whatever becomes of the row."""
    return NEXT_NUMBER, counter_of(table)


def raise_counter(table: Table, number: int) -> Step:
    """Return the statement that lets the counter of a table go on above a number; it never goes back."""
    return Unprepared(RAISE_COUNTER), (number, *counter_of(table), number)


def counter_of(table: Table) -> tuple[str, str]:
    """Return what names the counter of a table: the table, and the column that it numbers."""
    return table.name.as_string(), table.column(assigned_marker(table.entity)).name


def _named(table: Table, unique: str | None) -> tuple[str, ...]:
    """Return the fields by which rows are found."""
    return table.entity.key if unique is None else table.entity.unique(unique).names


def _among(table: Table, fields: Sequence[str]) -> sql.Composable:
    """Return the condition of the rows whose fields have values that are given as one array for each."""
    columns = [table.column(field) for field in fields]
    names = listed(columns)
    arrays = sql.SQL(", ").join(sql.SQL("%s::") + sql.SQL(column.sql_type + "[]") for column in columns)
    return sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(names, arrays)


def _narrowing(
    table: Table, kind: ScopeKind, unique: str | None, relation: sql.Composable | None = None
) -> list[sql.Composable]:
    """Return the conditions in addition to the key: the rows of a unique index, and the scope."""
    where = () if unique is None else table.entity.unique(unique).where
    conditions = [literal_condition(condition, table) for condition in where]
    owner = owner_condition(table, kind, relation)
    return conditions if owner is None else [*conditions, owner]


def _found(
    table: Table, kind: ScopeKind, unique: str | None, relation: sql.Composable | None = None
) -> sql.Composable:
    """Return the condition of one row, its columns qualified where the statement has another relation."""
    names = [table.column(name).term(relation) for name in _named(table, unique)]
    by = [sql.SQL("{} = %s").format(name) for name in names]
    return _all(*by, *_narrowing(table, kind, unique, relation))


def _found_below(table: Table, kind: ScopeKind, unique: str | None, *, below: bool) -> sql.Composable:
    """Return the condition of one row, among the children of one parent where it is ``below``."""
    found = _found(table, kind, unique)
    return _all(found, sql.SQL("{} = %s").format(table.parent_column)) if below else found


def _all(*conditions: sql.Composable) -> sql.Composable:
    return sql.SQL(" AND ").join(conditions)
