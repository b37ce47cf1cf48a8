"""What the description of an entity asks of a database, as statements: table, indexes, policy and grants.

These are proposals for the author of a migration. What is shipped are the files of the module, which a person
has read and which may say more, such as defaults for bulk loads or rules between columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.catalog.indexes import StoreKind, inner_path
from twinstore.catalog.tenancy import TenancyKind
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.models.shapes import Kind
from twinstore_postgres.access.queries import literal_condition
from twinstore_postgres.mapping.columns import (
    MEMBER,
    PAYLOAD,
    TEXTS,
    VERSION,
    index_name,
    object_id_check,
    text,
)
from twinstore_postgres.mapping.table import listed, table_of
from twinstore_postgres.mapping.tenancy import ScopeKind, parent_condition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import LiteralString

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.indexes import Index
    from twinstore_postgres.mapping.columns import Column
    from twinstore_postgres.mapping.table import Table

TYPES: Final[Mapping[str, LiteralString]] = {
    "text": 'TEXT COLLATE "C"',
    "text[]": 'TEXT[] COLLATE "C"',
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "int4[]": "INTEGER[]",
    "int8[]": "BIGINT[]",
    "float8": "DOUBLE PRECISION",
    "bool": "BOOLEAN",
    "timestamptz": "TIMESTAMPTZ(3)",
    "jsonb": "JSONB",
    "uuid": "UUID",
    "numeric": "NUMERIC",
    "bytea": "BYTEA",
}
SETTING: Final = "current_setting('app.tenant_id', true)"
POLICY: Final = "tenant_isolation"
LONGEST_NAME: Final = 63
# Inside of JSON.
WRITTEN_AS_TEXT: Final = TEXTS | {Kind.INSTANT}
# The setting is read in a sub-select, which the server evaluates once per statement, not once per row. CASE
# instead of OR: with OR the planner counts the tenant twice, and sorts where an index has the order.
SECURE: Final = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS {policy} ON {table};
CREATE POLICY {policy} ON {table}
    USING (CASE (SELECT {setting}) WHEN {system} THEN true
           ELSE {own} END)
    WITH CHECK (CASE (SELECT {setting}) WHEN {system} THEN true
                ELSE {own} END);
"""


@dataclass(frozen=True, slots=True)
class TablePart:
    """A named part of a table, and the SQL that creates it."""

    name: str
    sql: str

    def __post_init__(self) -> None:
        """Refuse a name that the server would cut, because it would never be found again."""
        if len(self.name.encode()) > LONGEST_NAME:
            raise TypeError(  # met by programmers only
                f"{self.name} has more than {LONGEST_NAME} bytes; shorten the entity, the field or the index"
            )


def create_table(entity: Entity) -> str:
    """Return the statement that creates the table of an entity with its constraints."""
    lines = [f"{text(sql.Identifier(item.name))} {item.sql}" for item in columns(entity)]
    lines += [f"CONSTRAINT {text(sql.Identifier(item.name))} {item.sql}" for item in constraints(entity)]
    body = ",\n    ".join(lines)
    return f"CREATE TABLE IF NOT EXISTS {text(table_of(entity).name)} (\n    {body}\n);"


def columns(entity: Entity) -> Iterator[TablePart]:
    """Yield the columns with their types."""
    for column in table_of(entity).columns:
        kind = _type(entity, column) + ("" if column.nullable else " NOT NULL")
        # Rows that were there before have no unknown properties.
        yield TablePart(column.name, f"{kind} DEFAULT '{{}}'" if column.field == entity.extra else kind)
    if entity.versioned_table:
        yield TablePart(VERSION, "BIGINT NOT NULL DEFAULT 1")


def constraints(entity: Entity) -> Iterator[TablePart]:
    """Yield the constraints, named as the server would name them."""
    table, name = table_of(entity), entity.name
    yield TablePart(f"{name}_pkey", f"PRIMARY KEY ({text(listed(primary_key(table)))})")
    for column in table.columns:
        check = _check(entity, column)
        if check is not None:
            yield TablePart(f"{name}_{column.name}_check", f"CHECK ({text(check)})")
    if table.parent is not None:
        own = text(table.parent_column)
        above = f"{text(table.parent.name)} ({text(table.parent.parts['key'])})"
        # The children go with their parent in the statement that removes it.
        yield TablePart(
            f"{name}_{text(table.parent_column)}_fkey",
            f"FOREIGN KEY ({own}) REFERENCES {above} ON DELETE CASCADE",
        )
    for index in _indexes(entity):
        if _is_constraint(table, index):
            yield TablePart(index_name(entity, index), f"UNIQUE ({text(_fields(table, index))})")


def indexes(entity: Entity) -> Iterator[TablePart]:
    """Yield the indexes that are not constraints."""
    table = table_of(entity)
    for index in _indexes(entity):
        if not _is_constraint(table, index):
            name = index_name(entity, index)
            kind = "UNIQUE INDEX" if index.unique else "INDEX"
            where = " AND ".join(text(literal_condition(item, table)) for item in index.where)
            method = " USING gin" if _holds_list(entity, index) else ""
            yield TablePart(
                name,
                f"CREATE {kind} IF NOT EXISTS {text(sql.Identifier(name))}\n"
                f"    ON {text(table.name)}{method} ({text(_fields(table, index))})"
                f"{where and f' WHERE {where}'};",
            )


def row_security(entity: Entity) -> str | None:
    """Return the statements that let each tenant see its own rows; ``None`` where tenants do not matter."""
    table = table_of(entity)
    if not table.owned:
        return None
    parts = {
        "table": table.name,
        "policy": sql.Identifier(POLICY),
        "setting": sql.SQL(SETTING),
        "system": sql.Literal(SYSTEM_TENANT),
        "own": _own(table),
    }
    return text(sql.SQL(SECURE).format(**parts)).strip()


def grants(entity: Entity) -> tuple[str, ...]:
    """Return the privileges of the application role.

    The role may not change rows of an append-only entity, and may remove them only because of their age.
    """
    if entity.append_only:
        return ("SELECT", "INSERT") if entity.retention is None else ("SELECT", "INSERT", "DELETE")
    return ("SELECT", "INSERT", "UPDATE", "DELETE")


def _own(table: Table) -> sql.Composable:
    """Return the condition under which the setting names the owner of a row."""
    if table.tenant is None:
        return parent_condition(table, ScopeKind.ANY_TENANT)  # the policy of the parent says who sees it
    equal = "IS NOT DISTINCT FROM" if table.entity.tenancy.kind is TenancyKind.OPTIONAL else "="
    return sql.SQL("{} {} (SELECT nullif({}, ''))").format(
        sql.Identifier(table.tenant), sql.SQL(equal), sql.SQL(SETTING)
    )


def primary_key(table: Table) -> tuple[Column, ...]:
    """Return the columns of the primary key: the key, or the insertion number where that is an expression."""
    assigned = table.entity.assigned
    return table.key if table.has_own_key or assigned is None else (table.column(assigned),)


def _type(entity: Entity, column: Column) -> str:
    """Return the type of a column as a statement declares it."""
    if column.field == entity.assigned:
        return "BIGSERIAL"
    if column.sql_type == "timestamptz" and entity.fixed_table:
        return "TIMESTAMPTZ"
    return TYPES[column.sql_type]


def _check(entity: Entity, column: Column) -> sql.Composable | None:
    name = sql.Identifier(column.name)
    most = {item.name: item.most for item in entity.derived}.get(column.field)
    if column.numbers is not None or most is not None:
        highest = most if column.numbers is None else len(column.numbers) - 1
        return sql.SQL("{} BETWEEN 0 AND {}").format(name, sql.Literal(highest))
    if column.texts is not None:
        texts = sql.SQL(", ").join(sql.Literal(item.value) for item in column.texts)
        return sql.SQL("{} IN ({})").format(name, texts)
    if column.object_id:
        return object_id_check(column)
    return sql.SQL("{} <> ''").format(name) if column.field in entity.filled else None


def _indexes(entity: Entity) -> Iterator[Index]:
    """Yield the indexes that a table has in addition to that of its key."""
    table = table_of(entity)
    primary = tuple(column.field for column in primary_key(table))
    for index in entity.indexes:
        repeats_key = index.unique and not index.where and index.names == primary
        if StoreKind.TABLES in index.stores and not repeats_key:
            yield index


def _is_constraint(table: Table, index: Index) -> bool:
    """Whether a unique index holds all rows in the plain order, which a constraint says best.

    A constraint is made of columns, and the part of a payload is none.
    """
    plain = not any(descending for _, descending in index.directions)
    members = not plain or index.names == (table.entity.key_in_payload,)
    return index.unique and not index.where and not members and not index.nulls_first


def _fields(table: Table, index: Index) -> sql.Composable:
    fields: list[sql.Composable] = []
    for field, descending in index.directions:
        direction = " DESC" if descending else ""
        if field not in table.by_field or field in table.entity.inner_paths:
            fields.append(_inner_term(table, field) + sql.SQL(direction))
            continue
        column = table.column(field)
        first = " NULLS FIRST" if index.nulls_first and column.nullable and not descending else ""
        fields.append(column.term() + sql.SQL(direction) + sql.SQL(first))
    return sql.SQL(", ").join(fields)


def _holds_list(entity: Entity, index: Index) -> bool:
    """Whether an index holds the members of a list, each under its own entry."""
    found = (entity.inner_paths.get(name) for name in index.names)
    return any(path is not None and path.list_depth is not None for path in found)


def _inner_term(table: Table, name: str) -> sql.Composable:
    """Return what an index holds of a value inside of a field, or of a field that only the payload has.

    Of a list, or of what is inside of one, that is the whole list. Texts compare by code point; other values
    stay JSON, which sorts numbers as numbers and refuses none.
    """
    path = inner_path(table.entity.shapes, name)
    if path is None:
        return table.column(name).term()  # which names the fields that there are
    first, *rest = path.names[: path.list_depth]
    if first in table.by_field:
        term: sql.Composable = sql.Identifier(table.column(first).name)
    else:
        term, rest = sql.Identifier(PAYLOAD), [first, *rest]
    for place, step in enumerate(rest, start=1):
        is_text = place == len(rest) and path.list_depth is None and path.value.kind in WRITTEN_AS_TEXT
        term = sql.SQL(MEMBER if is_text else "({}->{})").format(term, sql.Literal(step))
    return term
