"""Changing rows without the driver, for the self-test of the verification; see ``corruption``."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb, set_json_loads
from typing_extensions import override

from twinstore.bulk.corruption import (
    STORED_NULL,
    CorruptionRefusedError,
    CorruptionWriter,
    RawRow,
    Role,
    SchemaPart,
    StoredPlace,
)
from twinstore.catalog.entity import Layout
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.models.json_text import format_bytes, format_decimal
from twinstore_postgres.connection.target import MIGRATIONS, direct_target
from twinstore_postgres.mapping.columns import PAYLOAD, VERSION, column_name, columns_of

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.plugins.settings import BackendSettings
    from twinstore_postgres.settings import PostgresSettings

TREES: Final = frozenset({"json", "jsonb"})
# Name, kind, and what drops a part and makes it again; a key goes with the foreign keys that need it.
PARTS: Final = """
WITH t AS (SELECT c.*, nspname, 'ALTER TABLE ' || c.oid::regclass AS alter, ' ON ' || c.oid::regclass AS place
             FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = %s::regclass),
k AS (SELECT *, 'ALTER TABLE ' || conrelid::regclass || ' ADD CONSTRAINT ' || quote_ident(conname) || ' '
               || pg_get_constraintdef(oid) AS make FROM pg_constraint
                WHERE contype IN ('p', 'u', 'f') AND conparentid = 0)
SELECT conname AS name,
       CASE contype WHEN 'p' THEN 'primary key' WHEN 'u' THEN 'unique key' ELSE 'foreign key' END AS kind,
       alter || ' DROP CONSTRAINT ' || quote_ident(conname) || ' CASCADE',
       concat_ws(';', make, (SELECT string_agg(f.make, ';') FROM k f
                              WHERE f.contype = 'f' AND k.contype <> 'f' AND f.conindid = k.conindid))
  FROM k JOIN t ON conrelid = t.oid
UNION ALL
SELECT c.relname, CASE WHEN indisunique THEN 'unique index' ELSE 'index' END,
       'DROP INDEX ' || indexrelid::regclass, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ')
  FROM pg_index JOIN t ON t.oid = indrelid JOIN pg_class c ON c.oid = indexrelid
 WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u'))
UNION ALL
SELECT policyname, 'policy', 'DROP POLICY ' || quote_ident(policyname) || place,
       'CREATE POLICY ' || quote_ident(policyname) || place || ' AS ' || permissive || ' FOR ' || cmd
         || ' TO ' || (SELECT string_agg(CASE role WHEN 'public' THEN role::text ELSE quote_ident(role) END,
                                         ', ') FROM unnest(roles) role)
         || coalesce(' USING (' || qual || ')', '') || coalesce(' WITH CHECK (' || with_check || ')', '')
  FROM pg_policies JOIN t ON schemaname = nspname AND tablename = relname
UNION ALL
SELECT relname, 'row-level security', alter || ' DISABLE ROW LEVEL SECURITY',
       alter || ' ENABLE ROW LEVEL SECURITY' FROM t WHERE relrowsecurity
UNION ALL
SELECT relname, 'forced row-level security', alter || ' NO FORCE ROW LEVEL SECURITY',
       alter || ' FORCE ROW LEVEL SECURITY' FROM t WHERE relforcerowsecurity
ORDER BY kind, name
"""
PLACE: Final = sql.SQL("tableoid || ' ' || ctid")
Values = Mapping[str, object]


@contextmanager
def open_corruption_writer(settings: BackendSettings) -> Iterator[CorruptionWriter]:
    """Open a corruption writer as the owner of the schema, who sees every row despite row-level security."""
    own = cast("PostgresSettings", settings)
    target = direct_target(MIGRATIONS, own, own.owner_connection_string)
    with closing(target.connect()) as connection:
        connection.execute("SELECT set_config('app.tenant_id', %s, false)", [SYSTEM_TENANT])
        # The corrupted rows are read back at once and thrown away, so no commit waits for the disk.
        connection.execute("SET synchronous_commit = off")
        set_json_loads(tree_of, connection)
        yield PostgresCorruptionWriter(connection)


class PostgresCorruptionWriter(CorruptionWriter):
    """Finds a row again by its ``ctid``, which is unique within a partition."""

    tabular = True

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    @override
    def places(self, entity: Entity) -> tuple[StoredPlace, ...]:
        roles = {VERSION: Role.COUNTER}
        if entity.layout is Layout.PAYLOAD:
            roles |= {PAYLOAD: Role.PAYLOAD}
            roles |= {column_name(entity, name): Role.REPEATED for name in entity.beside}
        fields = {column.name: column.field for column in columns_of(entity)}
        return tuple(
            StoredPlace.of(entity, name, fields.get(name, name), special=roles.get(name), nests=kind in TREES)
            for name, kind in self._types(entity).items()
        )

    def _types(self, entity: Entity) -> dict[str, str]:
        none = self._connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table(entity)))
        return {column.name: column.type_display.partition("(")[0] for column in none.description or ()}

    @override
    def rows(self, entity: Entity) -> list[RawRow]:
        return found(self._connection.execute(sql.SQL("SELECT {}, * FROM {}").format(PLACE, table(entity))))

    @override
    def change(self, entity: Entity, row: RawRow | None, values: Values | None) -> RawRow | None:
        names = table(entity)
        where = sql.SQL(" WHERE {} = {}").format(PLACE, "" if row is None else str(row.place))
        if values is None:
            if row is not None:
                self._connection.execute(sql.SQL("DELETE FROM {}").format(names) + where)
            return None
        if row is not None:
            values = {name: value for name, value in values.items() if not same(row.values[name], value)}
            if not values:
                raise CorruptionRefusedError("no change in the table")
        types = {name: kind for name, kind in self._types(entity).items() if name in values}
        columns = sql.SQL(", ").join(map(sql.Identifier, types))
        marks = sql.SQL(", ").join(sql.Placeholder() * len(types))
        if row is None:
            statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(names, columns, marks)
        else:
            statement = sql.SQL("UPDATE {} SET ({}) = ROW ({}){}").format(names, columns, marks, where)
        parameters = [parameter(values[name], kind) for name, kind in types.items()]
        types_named = f"the type {', '.join(sorted(set(types.values())))}"
        # Rolled back if nothing changed, because even then the row would have another place.
        with refusals(types_named), self._connection.transaction():
            cursor = self._connection.execute(
                statement + sql.SQL(" RETURNING {}, *").format(PLACE), parameters
            )
            (stored,) = found(cursor)
            if row is not None and same(dict(row.values), dict(stored.values)):
                raise CorruptionRefusedError(f"no change as {types_named}")
        return stored

    @override
    def forms(self, place: StoredPlace, value: object) -> Iterator[tuple[str, object]]:
        """Yield the other spellings of a number inside of JSON; a column has one type."""
        if place.nests and isinstance(value, bool):
            yield "number", int(value)
        elif place.nests and isinstance(value, int) and int(float(value)) == value:
            yield "number with a fraction", float(value)

    @override
    def typed_text(self, value: object) -> str | None:
        """Return the text of a decimal or of bytes; ids are texts."""
        if isinstance(value, Decimal):
            return format_decimal(value)
        return format_bytes(value) if isinstance(value, bytes) else None

    @override
    def typed_value(self, value: object, text: str) -> object:
        if isinstance(value, Decimal):
            return Decimal(text)
        return b64decode(text) if isinstance(value, bytes) else text

    @override
    def parts(self, entity: Entity) -> Iterator[SchemaPart]:
        execute = self._connection.execute
        for name, kind, drop, make in execute(PARTS, [f'"{entity.module}"."{entity.name}"']).fetchall():
            yield SchemaPart(
                name, kind, partial(execute, drop, prepare=False), partial(execute, make, prepare=False)
            )

    @override
    def clear(self, entity: Entity) -> None:
        self._connection.execute(sql.SQL("DELETE FROM {}").format(table(entity)))


def table(entity: Entity) -> sql.Identifier:
    """Return the table of an entity."""
    return sql.Identifier(entity.module, entity.name)


def found(cursor: psycopg.Cursor[Any]) -> list[RawRow]:
    """Return the rows of a statement that returns place and all columns; a UUID is its text."""
    names = [column.name for column in cursor.description or ()][1:]
    rows = ((place, dict(zip(names, values, strict=True))) for place, *values in cursor)
    return [
        RawRow(place, {name: str(value) if isinstance(value, UUID) else value for name, value in row.items()})
        for place, row in rows
    ]


def tree_of(text: str | bytes) -> object:
    """Return the content of a JSON column."""
    tree: object = json.loads(text)
    return STORED_NULL if tree is None else tree


def parameter(value: object, kind: str) -> object:
    """Return a value as the parameter of a column."""
    if kind not in TREES or value is None:
        return value
    return Jsonb(None if value is STORED_NULL else value)


def same(one: object, other: object) -> bool:
    """Whether two values are the same, down to the spelling of a number and the order of names."""
    return json.dumps(one, default=repr) == json.dumps(other, default=repr)


@contextmanager
def refusals(types: str) -> Iterator[None]:
    """Turn an error of the server into a refusal that names the constraint or the type."""
    try:
        yield
    except psycopg.errors.NotNullViolation as error:
        raise CorruptionRefusedError(f"not null of {error.diag.column_name}") from error
    except psycopg.IntegrityError as error:
        unique = isinstance(error, psycopg.errors.UniqueViolation)
        raise CorruptionRefusedError(str(error.diag.constraint_name), unique=unique) from error
    except psycopg.DataError as error:
        raise CorruptionRefusedError(types) from error
