"""Which tables of a module a database has, for callers that only read it.

The tables may not be ours: without our ledger, with other indexes and collations, or views. Only what reading
relies on must be right: the columns with their types and the right to read them. Also, no policy may hide
rows, because a copy of the visible ones would look complete.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict, cast

import psycopg
from psycopg import sql
from typing_extensions import override

from twinstore.bulk.port import Inventory
from twinstore.errors import ConfigurationError
from twinstore.ledger import LEDGER_MODULE
from twinstore_postgres.bulk.scan import stored_names
from twinstore_postgres.connection.errors import translated
from twinstore_postgres.mapping.columns import VERSION, column_name, index_name, key_in_payload
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.schema.comparison import unreadable_parts, wanted_schema
from twinstore_postgres.schema.initializer import PostgresInitializer
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.errors import Effect
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.mapping.columns import Column
    from twinstore_postgres.mapping.table import Table

# One row per relation: its size, whether the role may use the schema and is bound by row-level security, and
# as JSON its columns, the policies that decide what the role reads, and its indexes.
RELATIONS: Final = """
SELECT c.relname,
       CASE c.relkind WHEN 'p' THEN (SELECT sum(reltuples) FROM pg_partition_tree(c.oid)
                                       JOIN pg_class p ON p.oid = relid WHERE p.relkind <> 'p')
            ELSE c.reltuples END::bigint, current_user,
       has_schema_privilege(n.oid, 'USAGE'),
       row_security_active(c.oid),
       (SELECT coalesce(jsonb_object_agg(a.attname, jsonb_build_object(
                   'type', format_type(a.atttypid, NULL),
                   'collation', (SELECT collname FROM pg_collation WHERE oid = a.attcollation),
                   'readable', has_column_privilege(c.oid, a.attnum, 'SELECT'))), '{}')
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'permissive', p.polpermissive, 'shows', pg_get_expr(p.polqual, p.polrelid))), '[]')
          FROM pg_policy p
         WHERE p.polrelid = c.oid AND p.polcmd IN ('r', '*')
           AND EXISTS (SELECT FROM unnest(p.polroles) AS r (id)
                        WHERE r.id = 0 OR pg_has_role(r.id, 'USAGE'))),
       (SELECT coalesce(jsonb_agg(pg_get_indexdef(i.indexrelid)), '[]')
          FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = ANY (%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
# By the type of a column of ours: those that are read alike, as the server names them; the first one is ours.
COMPATIBLE_TYPES: Final = {
    "bool": ("boolean",),
    "bytea": ("bytea",),
    "float8": ("double precision",),
    "int2": ("smallint",),
    "int4": ("integer",),
    "int8": ("bigint",),
    "int4[]": ("integer[]",),
    "int8[]": ("bigint[]",),
    "jsonb": ("jsonb",),
    "numeric": ("numeric",),
    "text": ("text", "character varying"),
    "text[]": ("text[]", "character varying[]"),
    "timestamptz": ("timestamp with time zone",),
    "uuid": ("uuid",),
}
CODE_POINT: Final = "C"
# What shows system scope everything and a tenant its own rows, which the lists of a verification need, as
# servers write it: always, in the words of our migrations, or in plain ones. Rows may have no owner, or the
# owner of their parent, whose own policy is judged with its table.
SETTING: Final = r"current_setting\('app\.tenant_id'::text, true\)"
ALIAS: Final = r'( AS (\w+|"\w+"))?'
NAMED: Final = rf"\( SELECT NULLIF\({SETTING}, ''::text\){ALIAS}\)"
OWN: Final = (
    rf"\({{tenant}} = {NAMED}\)",
    rf"\(NOT \({{tenant}} IS DISTINCT FROM {NAMED}\)\)",
)
OF_PARENT: Final = r"\(EXISTS \( SELECT .*\)\)"
OURS: Final = rf"CASE \( SELECT {SETTING}{ALIAS}\) WHEN 'system'::text THEN true ELSE {{own}} END"
PLAIN: Final = rf"\(\(\(?{{tenant}}\)?(::text)? = {SETTING}\) OR \({SETTING} = 'system'::text\)\)"
WANTED_INDEX: Final = re.compile(
    r"index (?P<name>\w+): CREATE INDEX \w+ ON \w+\.(?P<table>\w+) USING (?P<what>.*)"
)


class RealColumn(TypedDict):
    """A column as the server describes it."""

    type: str
    collation: str | None
    readable: bool


class Policy(TypedDict):
    """A policy that decides what the role reads."""

    permissive: bool
    shows: str | None


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view as the server describes it; ``rows`` is an estimate, negative where there is none."""

    name: str
    rows: int
    role: str
    reachable: bool
    bound: bool
    columns: dict[str, RealColumn]
    policies: list[Policy]
    indexes: list[str]


def inventory_of(connection: Connection, module: ModuleSpec[object]) -> tuple[Inventory, ...]:
    """Return what there is of each entity of a module.

    Raises:
        ConfigurationError: something cannot be read, or not in full; says what to grant or change.
    """
    refuse_as_source(connection)
    schema, entities = module.name, module.catalog.entities
    unknown: tuple[str, ...] = ()
    try:
        with connection.transaction():  # a refused statement ends the one that is open
            rows = connection.execute(RELATIONS, [schema, [entity.name for entity in entities]]).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        rows, unknown = [], unreadable_parts(connection)
        if not unknown:
            raise
    real = {row[0]: Relation(*cast("Any", row)) for row in rows}
    flaws = [*unknown] or [
        flaw for entity in entities if entity.name in real for flaw in flaws_of(entity, real[entity.name])
    ]
    if flaws:
        raise ConfigurationError(
            f"The schema {schema} of {connection.info.dbname} cannot be read in full. {' '.join(flaws)}",
            module=schema,
            driver=DRIVER,
        )
    return tuple(entity_inventory(module, entity, real.get(entity.name)) for entity in entities)


def flaws_of(entity: Entity, real: Relation) -> Iterator[str]:
    """Yield what keeps a table from being read in full, each with its remedy."""
    name, role = f"{entity.module}.{entity.name}", sql.Identifier(real.role).as_string()
    table = table_of(entity)
    odd = [text for column in table.columns if (text := difference_of(column, real.columns.get(column.name)))]
    odd += [f"a column {extra} that would be neither copied nor compared" for extra in extras(entity, real)]
    if odd:
        yield (
            f"{name} has {', '.join(odd)}; offer a view of that name with the wanted columns, in a schema "
            f"{entity.module} of another database."
        )
    if not real.reachable:
        yield f"The role {role} may not use the schema: GRANT USAGE ON SCHEMA {entity.module} TO {role}."
    elif not all(real.columns[item.name]["readable"] for item in table.columns if item.name in real.columns):
        yield f"The role {role} may not read {name}: GRANT SELECT ON {name} TO {role}."
    if real.bound and not sees_all_rows(table, real.policies):
        yield (
            f"Row-level security of {name} decides what the role {role} sees: ALTER ROLE {role} BYPASSRLS, "
            f"or CREATE POLICY twinstore_source ON {name} FOR SELECT TO {role} USING (true)."
        )


def difference_of(column: Column, real: RealColumn | None) -> str:
    """Return how a column differs from what can be read; nothing where it does not."""
    if real is None:
        return f"no column {column.name}"
    wanted = COMPATIBLE_TYPES[column.sql_type]
    return "" if real["type"] in wanted else f"{column.name} as {real['type']} instead of {wanted[0]}"


def extras(entity: Entity, real: Relation) -> list[str]:
    """Return the columns that the description does not know."""
    known = {column_name(entity, name) for name in stored_names(entity)}
    return sorted(real.columns.keys() - known - {VERSION})


def sees_all_rows(table: Table, policies: Sequence[Policy]) -> bool:
    """Check that system scope sees every row: by a policy for it, or one for all rows, and none against."""
    forms = open_forms(table)
    return any(item["permissive"] and is_open(forms, item["shows"]) for item in policies) and all(
        item["permissive"] or is_open(forms, item["shows"]) for item in policies
    )


@cache
def open_forms(table: Table) -> tuple[re.Pattern[str], ...]:
    """Return the expressions that surely show every row to system scope, and to a tenant its own."""
    if table.tenant is None:
        forms = ["true", OURS.format(own=OF_PARENT)] if table.owned else ["true"]
    else:
        tenant = re.escape(table.tenant)
        own = [OURS.format(own=form.format(tenant=tenant)) for form in OWN]
        forms = ["true", *own, PLAIN.format(tenant=tenant)]
    return tuple(map(re.compile, forms))


def is_open(forms: Sequence[re.Pattern[str]], expression: str | None) -> bool:
    """Check whether an expression, as the server writes it, matches one of some forms."""
    return expression is None or any(form.fullmatch(" ".join(expression.split())) for form in forms)


def entity_inventory(module: ModuleSpec[object], entity: Entity, real: Relation | None) -> Inventory:
    """Return what there is of one entity."""
    if real is None:
        warning = f"There is no table {entity.module}.{entity.name}; it counts as empty."
        return Inventory(entity=entity.name, present=False, warnings=(warning,))
    return Inventory(entity=entity.name, warnings=tuple(warnings_of(module, table_of(entity), real)))


def warnings_of(module: ModuleSpec[object], table: Table, real: Relation) -> Iterator[str]:
    """Yield what reading costs more than it need, and why."""
    name = f"{module.name}.{table.entity.name}"
    size = f"about {real.rows:,} rows" if real.rows >= 0 else "an unknown number of rows"
    if not any(gives_order(index, table, real) for index in real.indexes):
        key = ", ".join(column.name if table.has_own_key else column.field for column in table.key)
        yield (
            f"{name} has no index on ({key}) that compares texts by code point, so each "
            f"range reads the whole table ({size}) and sorts it, on disk where memory is short; a larger "
            "--range-size needs fewer passes."
        )
    there = {index.partition(" USING ")[2] for index in real.indexes}
    missing = [item["name"] for item in wanted_indexes(module, table.entity) if item["what"] not in there]
    if missing:
        yield (
            f"{name} lacks the indexes {', '.join(missing)}, so a list that a verification asks for may read "
            f"the whole table ({size})."
        )


def gives_order(index: str, table: Table, real: Relation) -> bool:
    """Check whether an index has every row in the order of the keys.

    The server names a collation only if it differs from that of the column; numbers and UUIDs have none.
    """
    member = key_in_payload(table.entity)
    if member is not None:
        return index.endswith(f""" USING btree ((({member.name} ->> '{member.field}'::text)) COLLATE "C")""")
    collations = {column.name: real.columns[column.name]["collation"] for column in table.key}
    wanted = ", ".join(
        name if collation in {None, CODE_POINT} else f'{name} COLLATE "C"'
        for name, collation in collations.items()
    )
    return index.endswith(f" USING btree ({wanted})")


def wanted_indexes(module: ModuleSpec[object], entity: Entity) -> list[re.Match[str]]:
    """Return the indexes that serve the lists of an entity."""
    found = (WANTED_INDEX.fullmatch(line) for line in wanted_schema(module))
    inner = {index_name(entity, index) for index in entity.indexes if entity.is_inner(index)}
    return [
        match
        for match in found
        if match is not None and match["table"] == entity.name and match["name"] not in inner
    ]


# Any text of any other store.
COMPLETE: Final = "UTF8"
# Their bytes are in the order of code points, in which the keys of all stores are compared.
ORDERED: Final = frozenset({COMPLETE, "LATIN1"})


class LedgerInitializer(PostgresInitializer):
    """That of the ledger of copies, which only a target has; its database must take every text."""

    module: ClassVar[ModuleSpec[object]] = LEDGER_MODULE

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        with closing(self._connect()) as connection, translated():
            refuse_as_target(connection)
        return super().effects(release=release)


def refuse_as_target(connection: Connection) -> None:
    """Raise ``ConfigurationError`` for a database that cannot hold every text."""
    encoding = encoding_of(connection)
    if encoding != COMPLETE:
        raise ConfigurationError(
            f"The database {connection.info.dbname} has the encoding {encoding}, which does not hold every "
            "text; a copy would lose rows. Create it with UTF8: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE "
            "template0.",
            driver=DRIVER,
        )


def refuse_as_source(connection: Connection) -> None:
    """Raise ``ConfigurationError`` for a database whose texts come in another order, or may be none."""
    encoding = encoding_of(connection)
    if encoding in ORDERED:
        return
    why = (
        "for which the server does not know what its bytes mean"
        if encoding == "SQL_ASCII"
        else "in which texts have another order than in other stores"
    )
    raise ConfigurationError(
        f"The database {connection.info.dbname} has the encoding {encoding}, {why}. Dump it with pg_dump, "
        "restore it into a database with the encoding UTF8, and read that one.",
        driver=DRIVER,
    )


def encoding_of(connection: Connection) -> str:
    """Return the encoding of the database."""
    return connection.info.parameter_status("server_encoding") or ""
