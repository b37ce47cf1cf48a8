"""Takes a migration back with the script that its module ships, which an administrator can run as well.

The script counts again under the locks of its tables, so it drops exactly the rows that were agreed to.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from twinstore.errors import MigrationError
from twinstore.migrations.revert import Reversal, check_consent, check_not_needed, revert_files, revert_of
from twinstore_postgres.schema.migrator import (
    STORE,
    applied_migrations,
    check_ledger,
    created_tables,
    lock,
    lock_refused,
    shipped_migrations,
)
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from twinstore.migrations.migration import Consent, MigrationStatus
    from twinstore.migrations.revert import RevertFile
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.schema.files import Migration

COUNT: Final = "SELECT count(*) FROM {table}"


def reversal(connection: Connection, module: ModuleSpec[object], name: str) -> Reversal:
    """Return what would be dropped; see :class:`~twinstore.migrations.revert.RevertsMigrations`."""
    file = revert_script(module, name)
    with transaction(connection, module):
        return found(connection, module, file)


def revert(
    connection: Connection, module: ModuleSpec[object], name: str, accept: AbstractSet[Consent]
) -> Reversal:
    """Run the script of a migration; see :class:`~twinstore.migrations.revert.RevertsMigrations`."""
    file = revert_script(module, name)
    try:
        with transaction(connection, module):
            present = found(connection, module, file)
            if not present.applied:
                return present
            check_consent(present, accept)
            run(connection, file, present.rows)
    except psycopg.errors.RaiseException:
        # Rows came between the two counts; the script has dropped nothing.
        check_consent(reversal(connection, module, name), frozenset())
        raise
    return replace(present, done=True)


def revert_script(module: ModuleSpec[object], name: str) -> RevertFile:
    """Return the script of a migration."""
    return revert_of(revert_files(module.migrations(STORE)), name, module=module.name, driver=DRIVER)


@contextmanager
def transaction(connection: Connection, module: ModuleSpec[object]) -> Iterator[None]:
    """Keep other migrations out; what the block did is rolled back unless the script has committed it."""
    # Not that of psycopg, which does not expect a script to commit.
    connection.execute("BEGIN")
    try:
        lock(connection, module.name)
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise lock_refused(module.name) from error
    except psycopg.errors.DependentObjectsStillExist as error:
        raise MigrationError(
            f"The schema {module.name} has something that uses the tables which would be dropped: "
            f"{' '.join(str(error).split())}. Nothing was changed.",
            module=module.name,
            driver=DRIVER,
        ) from error
    finally:
        connection.rollback()


def found(connection: Connection, module: ModuleSpec[object], file: RevertFile) -> Reversal:
    """Return what the tables of a migration hold, unless another applied one uses them."""
    applied = applied_migrations(connection, module)
    check_ledger(module, applied)
    migration = next(item for item in shipped_migrations(module) if item.name == f"{file.name}.sql")
    known = migration.name in applied
    if known:
        users = users_of(module, migration, applied)
        check_not_needed(migration.name, users, module=module.name, driver=DRIVER)
    return Reversal(
        module=module.name,
        backend=DRIVER,
        migration=migration.name,
        applied=known,
        rows=rows_of(connection, module.name, created_tables(migration)) if known else {},
    )


def users_of(
    module: ModuleSpec[object], migration: Migration, applied: Mapping[str, MigrationStatus]
) -> list[str]:
    """Return the applied migrations behind one that name a table of it."""
    tables = "|".join(map(re.escape, created_tables(migration)))
    names = re.compile(rf"\b{re.escape(module.name)}\.(?:{tables})\b")
    return [
        item.name
        for item in shipped_migrations(module)
        if item.name > migration.name and item.name in applied and names.search(item.text)
    ]


def rows_of(connection: Connection, schema: str, tables: tuple[str, ...]) -> dict[str, int]:
    """Return the rows of the tables that are there."""
    counted: dict[str, int] = {}
    for table in tables:
        if connection.execute("SELECT to_regclass(%s)", [f"{schema}.{table}"]).fetchone() != (None,):
            statement = sql.SQL(COUNT).format(table=sql.Identifier(schema, table))
            ((counted[table],),) = connection.execute(statement).fetchall()
    return counted


def run(connection: Connection, file: RevertFile, rows: Mapping[str, int]) -> None:
    """Run the script, which commits; it refuses when the tables hold other numbers than these."""
    numbers = ",".join(map(str, rows.values()))
    connection.execute("SELECT set_config('twinstore.kept_elsewhere', %s, true)", [numbers])
    # As bytes, because the text comes from the package; not prepared, because it is several statements.
    connection.execute(file.text.encode(), prepare=False)
