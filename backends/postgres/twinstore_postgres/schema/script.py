"""The migrations as SQL for an administrator, with the questions that the migrator asks before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore_postgres.schema.migrator import (
    CREATE_LEDGER,
    create_role,
    created_tables,
    forced_tables,
    lock_number,
    shipped_migrations,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.schema.files import Migration

# An existing table that a file would create is not ours, unless the ledger has the file.
OWN_TABLES: Final = """
DO $guard$
BEGIN
    IF EXISTS (SELECT FROM pg_class
                WHERE relnamespace = to_regnamespace({schema}) AND relname = ANY ({tables}))
       AND NOT EXISTS (SELECT FROM {ledger} WHERE migration_name = {file})
    THEN
        RAISE EXCEPTION 'the schema % has a table that % would make; twinstore migrate run compares them',
            {schema}, {file};
    END IF;
END
$guard$;
"""
# Row-level security is forced on a table with rows only when the setting names the table.
FORCED_TABLES: Final = """
DO $guard$
DECLARE
    name text;
    accepted text[] := string_to_array(coalesce(current_setting('twinstore.accept_rls', true), ''), ',');
    holds boolean;
BEGIN
    FOR name IN SELECT relname FROM pg_class
                 WHERE relnamespace = to_regnamespace({schema}) AND relname = ANY ({tables})
                   AND relkind IN ('r', 'p') AND NOT (relrowsecurity AND relforcerowsecurity)
                   AND relname <> ALL (accepted)
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.%I)', {schema}, name) INTO holds;
        IF holds THEN
            RAISE EXCEPTION '% holds rows, which row-level security would hide from clients that do not set '
                'app.tenant_id; if that is right, run before: SET twinstore.accept_rls = ''%''', name, name;
        END IF;
    END LOOP;
END
$guard$;
"""


def script(module: ModuleSpec[object], role: str, names: Collection[str] | None = None) -> str:
    """Return everything, or some migrations, as SQL that an administrator can run by hand, also again."""
    schema = sql.Identifier(module.name)
    head = [
        f"-- Schema {module.name}, for psql as the owner role. An administrator first runs:",
        # A name may hold the end of a line, which ends a comment as well.
        f"-- {' '.join(create_role(role).splitlines())}",
        f"CREATE SCHEMA IF NOT EXISTS {schema.as_string()};",
        f"{sql.SQL(CREATE_LEDGER).format(schema=schema).as_string().strip()};",
    ]
    selected = (item for item in shipped_migrations(module) if names is None or item.name in names)
    return "\n".join([*head, *(_scripted(module, item, role) for item in selected)])


def _scripted(module: ModuleSpec[object], migration: Migration, role: str) -> str:
    schema = sql.Identifier(module.name).as_string()
    values = ", ".join(
        sql.Literal(value).as_string() for value in (migration.name, migration.category, migration.checksum)
    )
    return (
        f"\n-- {migration.name}\nBEGIN;\n"
        f"SELECT pg_advisory_xact_lock({lock_number(module.name)});\n"
        f"{_guards(module, migration)}{migration.rendered(role).strip()}\n"
        f"INSERT INTO {schema}.schema_migrations "
        "(migration_name, category, checksum, applied_at, applied_by, duration_ms)\n"
        f"VALUES ({values}, clock_timestamp(), current_user, 0) ON CONFLICT DO NOTHING;\nCOMMIT;\n"
    )


def _guards(module: ModuleSpec[object], migration: Migration) -> str:
    """Return the SQL that stops a file that would take over a table that is not ours, or hide its rows."""
    parts = {
        "schema": sql.Literal(module.name),
        "ledger": sql.Identifier(module.name, "schema_migrations"),
        "file": sql.Literal(migration.name),
    }
    guards = (
        (sql.SQL(OWN_TABLES), created_tables(migration)),
        (sql.SQL(FORCED_TABLES), forced_tables(migration)),
    )
    return "".join(
        text.format(**parts, tables=sql.Literal(sorted(tables))).as_string().lstrip()
        for text, tables in guards
        if tables
    )
