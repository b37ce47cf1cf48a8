"""What a migration that failed says: the rows that stand in the way, or the right that is missing."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from twinstore.errors import MigrationError
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.migrator import Migration

__all__ = ["migration_failed", "naming_rights"]

MOST_DUPLICATES: Final = 100
UNIQUE_INDEX: Final = re.compile(
    r"^CREATE UNIQUE INDEX (?:IF NOT EXISTS )?(?P<name>\w+)\s+ON (?P<table>[\w.]+) \((?P<columns>[^;]*)\)"
    r"(?: WHERE (?P<where>[^;]*?))?;",
    re.MULTILINE,
)
DIRECTION: Final = re.compile(r"(?: ASC| DESC)?(?: NULLS (?:FIRST|LAST))?$")
# Null equals nothing under a unique index.
DUPLICATES: Final = """
SELECT array_to_string(ARRAY[{texts}], ' / ') FROM {table}
 WHERE num_nulls({columns}) = 0 AND ({where})
 GROUP BY {columns} HAVING count(*) > 1 ORDER BY 1 LIMIT {most}
"""
RIGHTS: Final = """
SELECT current_user, current_database(),
       n.oid IS NOT NULL, coalesce(has_schema_privilege(n.oid, 'CREATE'), false)
  FROM (SELECT to_regnamespace(%s) AS oid) AS n
"""


def migration_failed(
    connection: Connection, module: ModuleSpec[object], migration: Migration, error: psycopg.Error
) -> MigrationError:
    """Return the error of a file that was rolled back; the connection is outside of a transaction."""
    return MigrationError(
        f"The migration {migration.name} failed and was rolled back: {reason(connection, migration, error)} "
        f"{remedy(connection, module, error)}",
        module=module.name,
        driver=DRIVER,
    )


@contextmanager
def naming_rights(connection: Connection, module: ModuleSpec[object]) -> Iterator[None]:
    """Say what an administrator grants to a role that may not even look at the schema.

    Raises:
        MigrationError: the server refused something in the block for want of a right.
    """
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationError(
            f"The schema {module.name} cannot be migrated: {error.diag.message_primary}. "
            f"{remedy(connection, module, error)}",
            module=module.name,
            driver=DRIVER,
        ) from error


def reason(connection: Connection, migration: Migration, error: psycopg.Error) -> str:
    """Return what the server says, without its details: they may show a row."""
    said = " ".join((error.diag.message_primary or str(error).partition("\n")[0]).split())
    if not isinstance(error, psycopg.errors.UniqueViolation):
        return f"{said}."
    index = next(
        (m for m in UNIQUE_INDEX.finditer(migration.text) if m["name"] == error.diag.constraint_name), None
    )
    if index is None:
        return f"{said}."
    keys = duplicates(connection, index)
    more = f" (the first {MOST_DUPLICATES})" if len(keys) == MOST_DUPLICATES else ""
    return (
        f"{index['table']} has rows that are equal in {index['columns']}, so the unique index "
        f"{index['name']} cannot be built. Keys{more}: {'; '.join(keys)}."
    )


def duplicates(connection: Connection, index: re.Match[str]) -> list[str]:
    """Return the keys that more than one row has."""
    columns = [DIRECTION.sub("", column) for column in split(index["columns"])]
    # The text comes from the package.
    statement = DUPLICATES.format(
        texts=", ".join(f"({column})::text" for column in columns),
        table=index["table"],
        columns=", ".join(columns),
        where=index["where"] or "true",
        most=MOST_DUPLICATES,
    )
    with connection.transaction():
        connection.execute("SELECT set_config('app.tenant_id', 'system', true)")
        connection.execute("SELECT set_config('statement_timeout', '0', true)")
        return [str(key) for (key,) in connection.execute(statement.encode()).fetchall()]


def split(columns: str) -> Iterator[str]:
    """Yield the columns of an index, some of which are expressions with commas of their own."""
    depth, begin = 0, 0
    for place, character in enumerate(columns):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            yield columns[begin:place].strip()
            begin = place + 1
    yield columns[begin:].strip()


def remedy(connection: Connection, module: ModuleSpec[object], error: psycopg.Error) -> str:
    """Return what to do."""
    again = f"run: twinstore migrate run --module {module.name} --backend {DRIVER}"
    if isinstance(error, psycopg.errors.UniqueViolation):
        return f"Make them differ and {again}"
    if not isinstance(error, psycopg.errors.InsufficientPrivilege):
        return f"Correct the cause and {again}"
    ((user, database, exists, creates),) = connection.execute(RIGHTS, [module.name]).fetchall()
    role, schema = sql.Identifier(str(user)).as_string(), sql.Identifier(module.name).as_string()
    if not exists:
        grant = f"GRANT CREATE ON DATABASE {sql.Identifier(str(database)).as_string()} TO {role};"
    elif not creates:
        grant = f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {role};"
    else:
        return (
            f"The role {role} does not own what the migration changes; give the owner of the tables of "
            f"{schema} as OwnerConnectionString and {again}"
        )
    return f"The owner role lacks a right; an administrator must run: {grant} Then {again}"
