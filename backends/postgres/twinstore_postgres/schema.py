"""What a schema really looks like, line by line, and how it differs from what the migrations make."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from psycopg.rows import scalar_row

from twinstore.errors import MigrationError
from twinstore.migrations import SchemaSnapshot
from twinstore_postgres.cursors import OwnCursor, own_cursor
from twinstore_postgres.deviations import deviations
from twinstore_postgres.migrator import STORE
from twinstore_postgres.protection import protection_differences
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection

__all__ = [
    "SCHEMA_FILE",
    "describe_schema",
    "missing_parts",
    "schema_differences",
    "shape_of",
    "snapshot_of",
    "undone",
    "wanted_schema",
]

SCHEMA_FILE: Final = "schema.txt"
LEDGER: Final = "schema_migrations"
# The deparsed name of a sub-select's column differs between versions of the server and means nothing.
COLUMN_ALIAS: Final = re.compile(r' AS (?:"\w+"|\w+)\)')
CONSTRAINT: Final = re.compile(
    r"constraint (?P<table>[^.]+)\.(?P<name>.+?): (?P<key>(?:PRIMARY KEY|UNIQUE|FOREIGN KEY) .*)"
)
UNIQUE_INDEX: Final = re.compile(r"index (?P<name>\w+): CREATE UNIQUE INDEX \w+ ON \w+\.(?P<table>\w+) .*")
TABLE_OR_COLUMN: Final = re.compile(r"(?:table|column) (?P<table>[^.:]+)[.:].*")
# The server leaves the schema out where the search path of the role has it.
REFERENCED: Final = re.compile(r"(?<=REFERENCES )\w+\.")
# How servers of different versions write the expressions of a policy differs; that it is there does not.
POLICY: Final = re.compile(r"(?P<policy>policy (?P<table>[^.]+)\..+?: .*?) USING .*")

# Shown without its schema where the settings of a role or database let the connection look into that.
SEQUENCE: Final = re.compile(r"nextval\('([^'.]+)'")

CURRENT_ROLE: Final = "SELECT current_user::text"
# Kinds of parts that are compared with more care than the others.
PROTECTION: Final = ("table ", "policy ")

TABLES: Final = b"""
SELECT format('table %%s: row-level security %%s%%s', c.relname,
              CASE WHEN c.relforcerowsecurity AND c.relrowsecurity THEN 'forced'
                   WHEN c.relrowsecurity THEN 'enabled' ELSE 'off' END,
              CASE c.relpersistence WHEN 'u' THEN ', unlogged' ELSE '' END)
  FROM pg_class c WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
"""
COLUMNS: Final = b"""
SELECT concat_ws(' ', format('column %%s.%%s:', c.relname, a.attname), format_type(a.atttypid, a.atttypmod),
                 'COLLATE ' || quote_ident(nullif(l.collname, 'default')),
                 CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid))
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_collation l ON l.oid = a.attcollation
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
"""
# Newer servers list NOT NULL as constraints too; the columns tell it already.
CONSTRAINTS: Final = b"""
SELECT format('constraint %%s.%%s: %%s', c.relname, k.conname, pg_get_constraintdef(k.oid))
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
 WHERE k.connamespace = to_regnamespace(%s) AND k.contype <> 'n'
"""
INDEXES: Final = b"""
SELECT format('index %%s: %%s', c.relname, pg_get_indexdef(i.indexrelid) ||
              CASE WHEN i.indisvalid THEN '' ELSE ' (invalid)' END)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE c.relnamespace = to_regnamespace(%s)
"""
POLICIES: Final = b"""
SELECT format('policy %%s.%%s: %%s %%s to %%s USING (%%s) WITH CHECK (%%s)', tablename, policyname,
              permissive, cmd, array_to_string(roles, ', '), qual, with_check)
  FROM pg_policies WHERE schemaname = %s
"""
# Those of a constraint are named only where somebody has switched them off.
TRIGGERS: Final = b"""
SELECT format('trigger %%s.%%s: %%s', c.relname, t.tgname,
              CASE WHEN t.tgisinternal THEN 'switched off' ELSE pg_get_triggerdef(t.oid) END)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE c.relnamespace = to_regnamespace(%s) AND (NOT t.tgisinternal OR t.tgenabled IN ('D', 'R'))
"""
RULES: Final = (
    b"SELECT format('rule %%s.%%s: %%s', tablename, rulename, definition) FROM pg_rules WHERE schemaname = %s"
)
USES: Final = b"""
SELECT 'use schema: USAGE' WHERE to_regnamespace(%s) IS NOT NULL
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_schema_privilege(%s, to_regnamespace(%s), 'USAGE')
 UNION ALL
SELECT format('use %%s: %%s', c.relname, p.privilege)
  FROM pg_class c CROSS JOIN unnest(ARRAY['USAGE', 'UPDATE']) AS p (privilege)
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'S'
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_sequence_privilege(%s, c.oid, p.privilege)
"""
GRANTS: Final = b"""
SELECT format('grant %%s: %%s', c.relname, p.privilege)
  FROM pg_class c
 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'])
         AS p (privilege)
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_table_privilege(%s, c.oid, p.privilege)
"""
# What is granted of one column is no grant of the table, and changes a row as well.
COLUMN_GRANTS: Final = b"""
SELECT format('grant %%s: %%s (%%I)', c.relname, p.privilege, a.attname)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS p (privilege)
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r' AND a.attacl IS NOT NULL
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_column_privilege(%s, c.oid, a.attnum, p.privilege)
   AND NOT has_table_privilege(%s, c.oid, p.privilege)
"""
# Rows of such a table are read with those of ours, and no key and no policy of ours holds for them.
CHILDREN: Final = b"""
SELECT format('child %%s.%%s: inherits', c.relname, i.inhrelid::regclass)
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
"""


def describe_schema(connection: Connection, schema: str, role: str = "") -> tuple[str, ...]:
    """Return one line per table, column, constraint, index, policy, trigger and grant to ``role``, sorted.

    One round trip. The connection may be a caller's own, whose cursors answer otherwise.
    """
    queries = (TABLES, COLUMNS, CONSTRAINTS, INDEXES, POLICIES, TRIGGERS, RULES, CHILDREN)
    statement = b" UNION ALL ".join([*queries, GRANTS, COLUMN_GRANTS, USES])
    granted = [schema, role, role]
    values = [schema] * len(queries) + [*granted, *granted, role, schema, role, role, schema, *granted]
    cursor = OwnCursor(connection, scalar_row)
    lines: list[str] = cursor.execute(statement, values).fetchall()
    whole = (SEQUENCE.sub(rf"nextval('{schema}.\1'", line) for line in lines)
    return tuple(sorted(COLUMN_ALIAS.sub(")", " ".join(line.split())) for line in whole))


@cache
def wanted_schema(module: ModuleSpec[object]) -> tuple[str, ...]:
    """Return the same lines as they are when every migration has been applied."""
    try:
        text = (module.migrations(STORE) / SCHEMA_FILE).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MigrationError(
            f"The module {module.name} ships no {SCHEMA_FILE} beside its migrations for {STORE}; its author "
            f"writes it with `twinstore dev schema {module.name}`.",
            module=module.name,
            driver=DRIVER,
        ) from error
    return tuple(text.splitlines())


def snapshot_of(connection: Connection, module: ModuleSpec[object], role: str) -> SchemaSnapshot:
    """Return what a server holds of a module, as the file that is shipped beside its migrations."""
    text = "\n".join((*describe_schema(connection, module.name, role), ""))
    return SchemaSnapshot(folder=STORE, name=SCHEMA_FILE, text=text)


def shape_of(lines: Iterable[str]) -> dict[str, set[str]]:
    """Return what a service relies on, by table: row-level security, columns, keys, unique indexes, policies.

    The ledger of the migrations is left out: no row depends on it.
    """
    shape: dict[str, set[str]] = {}
    for table, part in _parts(lines):
        shape.setdefault(table, set()).add(part)
    shape.pop(LEDGER, None)
    return shape


def _parts(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the parts with their tables; a key is told without its name, which does nothing."""
    keys: set[str] = set()
    for line in sorted(lines):  # constraints come before the indexes that some of them are made of
        if match := CONSTRAINT.fullmatch(line):
            keys.add(match["name"])
            yield match["table"], f"key {match['table']}: {REFERENCED.sub('', match['key'])}"
        elif match := UNIQUE_INDEX.fullmatch(line):
            if match["name"] not in keys:
                yield match["table"], line
        elif match := POLICY.fullmatch(line):
            yield match["table"], match["policy"]
        elif match := TABLE_OR_COLUMN.fullmatch(line):
            yield match["table"], line


def undone(connection: Connection, module: ModuleSpec[object], *, bound: bool) -> tuple[str, ...]:
    """Return one sentence for each part of the wanted schema that a service relies on and that is not so.

    First what protects tenants, then columns and keys, of which more than wanted does not matter.

    Args:
        connection: as the role that answers requests.
        module: the module.
        bound: whether row-level security has to bind the role, which should then have no right too many.
    """
    ((role,),) = own_cursor(connection).execute(CURRENT_ROLE).fetchall()
    lines, shipped = describe_schema(connection, module.name, role), wanted_schema(module)
    unprotected = protection_differences(lines, shipped, module.name, role, rights=bound)
    real, wanted = shape_of(lines), shape_of(shipped)
    lacking = (
        part for table in sorted(set(wanted) & set(real)) for part in sorted(wanted[table] - real[table])
    )
    return (*unprotected, *(f"Missing: {part}." for part in lacking if not part.startswith(PROTECTION)))


def missing_parts(table: str, wanted: AbstractSet[str], real: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return one sentence for each part that a table lacks, or one for the table."""
    if table not in real:
        return [f"Missing: table {table}."]
    return [f"Missing: {part}." for part in sorted(wanted - real[table])]


def schema_differences(
    connection: Connection, module: ModuleSpec[object], role: str, *, additions: bool
) -> tuple[str, ...]:
    """Return how the schema differs from the wanted one, one sentence each."""
    real = describe_schema(connection, module.name, role)
    return deviations(real, wanted_schema(module), module.name, role, additions=additions)
