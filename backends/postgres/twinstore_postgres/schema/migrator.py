"""Applies the SQL files of a module, each in one transaction with its row in the ledger."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from twinstore.errors import MigrationError
from twinstore.migrations.applied import check_history
from twinstore.migrations.migration import MigrationState, MigrationStatus, no_migrations
from twinstore_postgres.connection.cursors import own_cursor
from twinstore_postgres.connection.errors import translate
from twinstore_postgres.schema.files import FILE_NAME, Migration
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.mapping.codec import Values

# For locks of tables, too: a session that waits for an exclusive one blocks all that come later.
LOCK_SECONDS: Final = 60
STORE: Final = "postgres"
CREATES: Final = re.compile(r"^CREATE TABLE IF NOT EXISTS \w+\.(?P<table>\w+)", re.MULTILINE)
FORCES: Final = re.compile(r"^ALTER TABLE \w+\.(?P<table>\w+) FORCE ROW LEVEL SECURITY", re.MULTILINE)

CREATE_SCHEMA: Final = "CREATE SCHEMA {schema}"
CREATE_LEDGER: Final = """
CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
    migration_name TEXT COLLATE "C" PRIMARY KEY,
    category       TEXT COLLATE "C" NOT NULL,
    checksum       TEXT COLLATE "C" NOT NULL,
    applied_at     TIMESTAMPTZ(3) NOT NULL,
    applied_by     TEXT COLLATE "C" NOT NULL,
    duration_ms    BIGINT NOT NULL
)
"""
SELECT_LEDGER: Final = "SELECT migration_name, checksum, applied_at FROM {schema}.schema_migrations"
INSERT_LEDGER: Final = (
    "INSERT INTO {schema}.schema_migrations"
    " (migration_name, category, checksum, applied_at, applied_by, duration_ms)"
    " VALUES (%s, %s, %s, clock_timestamp(), current_user, %s)"
)


@cache
def shipped_migrations(module: ModuleSpec[object]) -> tuple[Migration, ...]:
    """Return the files of a module in order of their number.

    Raises:
        MigrationError: there are none yet.
    """
    folder, found = module.migrations(STORE), []
    for entry in folder.iterdir() if folder.is_dir() else ():
        if FILE_NAME.fullmatch(entry.name):
            # A checkout on Windows must not change the checksum that a database has recorded.
            text = entry.read_text(encoding="utf-8")
            found.append(Migration(entry.name, text.replace("\r\n", "\n").replace("\r", "\n")))
    if not found:
        raise no_migrations(module.name, DRIVER)
    return tuple(sorted(found, key=lambda migration: migration.name))


def lock_number(schema: str) -> int:
    """Return the number of the advisory lock that guards the migrations of a schema."""
    digest = sha256(f"twinstore:migrations:{schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def applied_migrations(connection: Connection, module: ModuleSpec[object]) -> dict[str, MigrationStatus]:
    """Return the ledger; empty where none exists."""
    ledger = f"{module.name}.schema_migrations"
    # It may be a connection of the application.
    cursor = own_cursor(connection)
    if cursor.execute("SELECT to_regclass(%s)::text", [ledger]).fetchone() == (None,):
        return {}
    try:
        rows: list[Values] = cursor.execute(
            sql.SQL(SELECT_LEDGER).format(schema=sql.Identifier(module.name))
        ).fetchall()
    except psycopg.errors.UndefinedColumn as error:
        raise MigrationError(
            f"The table {ledger} is not the ledger of twinstore, which has the columns migration_name, "
            "category, checksum, applied_at, applied_by and duration_ms; nothing was changed. Give the "
            "module its own database.",
            module=module.name,
            driver=DRIVER,
        ) from error
    # The text behind a planning name is not ours to judge, and the shipped name says more than that one.
    others = other_names(module)
    planned = {others[name]: recorded(others[name], "", at) for name, _, at in rows if name in others}
    return planned | {row[0]: recorded(*row) for row in rows if row[0] not in others}


def recorded(name: str, checksum: str, at: datetime) -> MigrationStatus:
    """Return one row of the ledger, as missing.

    Under a planning name its checksum is empty, and the tables may have been created outside our migrations.
    """
    return MigrationStatus(
        name=name, category="unknown", checksum=checksum, state=MigrationState.MISSING, applied_at=at
    )


def other_names(module: ModuleSpec[object]) -> dict[str, str]:
    """Return other names of shipped migrations.

    A ledger written before this library existed may hold the first migration under its planning name.
    """
    return {first.planning_name: first.name for first in shipped_migrations(module)[:1]}


def check_ledger(module: ModuleSpec[object], applied: Mapping[str, MigrationStatus]) -> None:
    """Refuse a ledger that this library cannot continue; see ``check_history``."""
    shipped = [item.status for item in shipped_migrations(module)]
    check_history(shipped, applied.values(), module=module.name, driver=DRIVER)


def apply(
    connection: Connection,
    module: ModuleSpec[object],
    migration: Migration,
    role: str,
    check: Callable[[], None],
) -> bool:
    """Apply one file unless another process did so meanwhile; return whether it was applied here.

    The lock lasts as long as the transaction and also covers the creation of schema and ledger. What
    ``check`` raises under the lock leaves everything as it was.

    Raises:
        MigrationError: the file failed and nothing of it remains, or the lock was not granted in time.
    """
    schema = sql.Identifier(module.name)
    try:
        with connection.transaction():
            lock(connection, module.name)
            applied = _prepared_ledger(connection, module)
            check_ledger(module, applied)
            if migration.name in applied:
                return False
            check()
            started = monotonic()
            # As bytes: the text comes from this package, and only the quoted role was put in. Not prepared,
            # because a prepared statement is a single one.
            connection.execute(migration.rendered(role).encode(), prepare=False)
            duration = round((monotonic() - started) * 1000)
            row = (migration.name, migration.category, migration.checksum, duration)
            connection.execute(sql.SQL(INSERT_LEDGER).format(schema=schema), row)
            return True
    except psycopg.errors.LockNotAvailable as error:
        raise lock_refused(module.name) from error
    except psycopg.OperationalError as error:  # of the connection, not of the file
        raise translate(error) from error
    except psycopg.Error as error:
        raise migration_failed(connection, module, migration, error) from error


def lock(connection: Connection, schema: str) -> None:
    """Let no other process migrate the schema until the transaction ends, and look at all tenants in it."""
    connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_SECONDS}s"])
    # Building an index takes as long as it takes.
    connection.execute("SELECT set_config('statement_timeout', '0', true)")
    # Data steps of a migration work for all tenants.
    connection.execute("SELECT set_config('app.tenant_id', 'system', true)")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(schema)])


def lock_refused(module: str) -> MigrationError:
    """Return the error of a lock that was not granted in time."""
    return MigrationError(
        f"Another process has been migrating schema {module}, or holds its tables, for more than "
        f"{LOCK_SECONDS} s; wait for it and try again.",
        module=module,
        driver=DRIVER,
    )


def _prepared_ledger(connection: Connection, module: ModuleSpec[object]) -> dict[str, MigrationStatus]:
    schema = sql.Identifier(module.name)
    # CREATE SCHEMA IF NOT EXISTS needs the right to create even where the schema exists.
    if connection.execute("SELECT to_regnamespace(%s)", [module.name]).fetchone() == (None,):
        connection.execute(sql.SQL(CREATE_SCHEMA).format(schema=schema))
    connection.execute(sql.SQL(CREATE_LEDGER).format(schema=schema))
    return applied_migrations(connection, module)


def forced_tables(migration: Migration) -> set[str]:
    """Return the tables on which a file forces row-level security."""
    return {match["table"] for match in FORCES.finditer(migration.text)}


def created_tables(migration: Migration) -> tuple[str, ...]:
    """Return the tables that a file creates, in its order."""
    return tuple(match["table"] for match in CREATES.finditer(migration.text))


ADDS: Final = re.compile(
    r"^ALTER TABLE \w+\.(?P<table>\w+) ADD COLUMN IF NOT EXISTS (?P<column>\w+) ", re.MULTILINE
)


def added_columns(migration: Migration) -> tuple[str, ...]:
    """Return the columns that a file adds to tables of earlier ones, as ``table.column``."""
    return tuple(f"{match['table']}.{match['column']}" for match in ADDS.finditer(migration.text))


def create_role(role: str) -> str:
    """Return the statement with which an administrator creates the application role."""
    name = sql.Identifier(role).as_string()
    return f"CREATE ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS PASSWORD '...';"


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
    message = " ".join((error.diag.message_primary or str(error).partition("\n")[0]).split())
    if not isinstance(error, psycopg.errors.UniqueViolation):
        return f"{message}."
    index = next(
        (m for m in UNIQUE_INDEX.finditer(migration.text) if m["name"] == error.diag.constraint_name), None
    )
    if index is None:
        return f"{message}."
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
    """Yield the columns of an index, some of which are expressions that contain commas."""
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
