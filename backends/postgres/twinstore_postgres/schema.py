"""What a schema really looks like, line by line, and how it differs from what the migrations make."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from twinstore_postgres.migrator import STORE

if TYPE_CHECKING:
    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection

__all__ = ["describe_schema", "schema_differences", "wanted_schema"]

# The deparsed name of a sub-select's column differs between versions of the server and means nothing.
COLUMN_ALIAS: Final = re.compile(r' AS (?:"\w+"|\w+)\)')

TABLES: Final = b"""
SELECT format('table %%s: row-level security %%s', c.relname,
              CASE WHEN c.relforcerowsecurity AND c.relrowsecurity THEN 'forced'
                   WHEN c.relrowsecurity THEN 'enabled' ELSE 'off' END)
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
GRANTS: Final = b"""
SELECT format('grant %%s: %%s', c.relname, p.privilege)
  FROM pg_class c
 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS p (privilege)
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_table_privilege(%s, c.oid, p.privilege)
"""


def describe_schema(connection: Connection, schema: str, role: str) -> tuple[str, ...]:
    """Return one line per table, column, constraint, index, policy and grant, sorted."""
    lines: list[str] = []
    for query in (TABLES, COLUMNS, CONSTRAINTS, INDEXES, POLICIES):
        lines += (row[0] for row in connection.execute(query, [schema]))
    lines += (row[0] for row in connection.execute(GRANTS, [schema, role, role]))
    return tuple(sorted(COLUMN_ALIAS.sub(")", " ".join(line.split())) for line in lines))


def wanted_schema(module: ModuleSpec[object]) -> tuple[str, ...]:
    """Return the same lines as they are when every migration has been applied."""
    text = (module.migrations(STORE) / "schema.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def schema_differences(connection: Connection, module: ModuleSpec[object], role: str) -> tuple[str, ...]:
    """Return one sentence for each line that is missing or not wanted."""
    real, wanted = set(describe_schema(connection, module.name, role)), set(wanted_schema(module))
    missing = [f"Missing: {line}." for line in sorted(wanted - real)]
    return (*missing, *(f"Not wanted: {line}." for line in sorted(real - wanted)))
