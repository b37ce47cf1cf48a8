"""What stands where a migration of ours would put its tables, and what forcing row-level security would hide.

A schema may belong to somebody else who gave it the same name. Its tables are taken over only when they have
the wanted shape, and rows are hidden only with consent. Nothing here changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.errors import MigrationError
from twinstore.migrations import COUNTED_ROWS, Effect, EffectKind
from twinstore_postgres.migrator import created_tables, forced_tables
from twinstore_postgres.schema import describe_schema, missing_parts, shape_of, wanted_schema
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.migrations import MigrationStatus
    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.migrator import Migration

__all__ = ["check_takeover", "hidden_rows", "taken_over"]

# What a file of ours adds to no table that is there already, and what it adds by itself.
MADE_WITH_THE_TABLE: Final = ("column ", "key ")
MADE_BY_THE_FILE: Final = (*MADE_WITH_THE_TABLE, "index ")
POLICY: Final = "policy "
SHOWN: Final = 50
# Relations of a name that a table should have, and whether rows are hidden from everybody already.
RELATIONS: Final = """
SELECT c.relname, c.relkind = 'r', c.relforcerowsecurity AND c.relrowsecurity
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = ANY (%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
COUNT: Final = "SELECT count(*) FROM (SELECT FROM {table} LIMIT {limit}) AS counted"


def taken_over(
    connection: Connection,
    module: ModuleSpec[object],
    applied: Mapping[str, MigrationStatus],
    migrations: Iterable[Migration],
) -> tuple[str, ...]:
    """Return how tables that no migration of ours made differ from the wanted ones, one sentence each.

    Those are the tables of a migration that is applied under a planning name, all of them, and those of a
    pending one, as far as they exist. Wanted is the shape after all migrations: a pending one that changes a
    table of an earlier one cannot be told from a difference, and is refused as well.
    """
    named: set[str] = set()
    pending: set[str] = set()
    for migration in migrations:
        if migration.name not in applied:
            pending.update(created_tables(migration))
        elif not applied[migration.name].checksum:
            named.update(created_tables(migration))
    relations = relations_of(connection, module.name, sorted(named | pending))
    if not named and not relations:
        return ()
    odd = {name for name, (ordinary, _) in relations.items() if not ordinary}
    wanted, real = shape_of(wanted_schema(module)), shape_of(describe_schema(connection, module.name))
    found = [f"Not wanted: {module.name}.{name} is not an ordinary table." for name in sorted(odd)]
    for table in sorted((named | (pending & set(relations))) - odd):
        kinds = MADE_BY_THE_FILE if table in named else MADE_WITH_THE_TABLE
        # A table that a later file drops again is wanted in no shape.
        shape = wanted.get(table, set())
        found += missing_parts(table, parts(shape, kinds), real)
        found += unwanted(shape, real.get(table, set()), (*kinds, POLICY))
    return tuple(found)


def check_takeover(
    connection: Connection,
    module: ModuleSpec[object],
    applied: Mapping[str, MigrationStatus],
    migrations: Iterable[Migration],
) -> None:
    """Refuse to take over tables that do not have the wanted shape.

    Raises:
        MigrationError: names the differences.
    """
    differences = taken_over(connection, module, applied, migrations)
    if not differences:
        return
    more = len(differences) - SHOWN
    listed = " ".join(differences[:SHOWN])
    raise MigrationError(
        f"The schema {module.name} has tables that twinstore did not make and that are not as it wants them; "
        f"nothing was changed. {listed}{f' And {more} more.' if more > 0 else ''} Give the module a database "
        "of its own, or bring these tables in line first.",
        module=module.name,
        driver=DRIVER,
    )


def hidden_rows(
    connection: Connection, module: ModuleSpec[object], pending: Iterable[Migration]
) -> tuple[Effect, ...]:
    """Return the tables with rows behind which pending migrations would force row-level security."""
    names = sorted(set[str]().union(*map(forced_tables, pending)))
    open_ones = [
        name
        for name, (ordinary, forced) in sorted(relations_of(connection, module.name, names).items())
        if ordinary and not forced
    ]
    return tuple(
        Effect(kind=EffectKind.RLS, name=name, rows=min(rows, COUNTED_ROWS), more=rows > COUNTED_ROWS)
        for name, rows in counted(connection, module.name, open_ones)
        if rows
    )


def relations_of(
    connection: Connection, schema: str, names: Sequence[str]
) -> Mapping[str, tuple[bool, bool]]:
    """Return the relations of these names: whether each is a table, and under forced row-level security."""
    if not names:
        return {}
    rows = connection.execute(RELATIONS, [schema, list(names)]).fetchall()
    return {name: (ordinary, forced) for name, ordinary, forced in rows}


def counted(connection: Connection, schema: str, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the rows of tables, one more than is counted where there are more.

    Table by table: a statement over several would hold the lock of one while it waits for another, and so
    deadlock with another process that is migrating them.
    """
    found: list[tuple[str, int]] = []
    for name in names:
        count = sql.SQL(COUNT).format(table=sql.Identifier(schema, name), limit=sql.Literal(COUNTED_ROWS + 1))
        ((rows,),) = connection.execute(count).fetchall()
        found.append((name, int(rows)))
    return found


def unwanted(wanted: AbstractSet[str], real: AbstractSet[str], kinds: tuple[str, ...]) -> list[str]:
    """Return one sentence for each part of these kinds that only the real table has."""
    return [f"Not wanted: {part}." for part in sorted(parts(real, kinds) - wanted)]


def parts(shape: AbstractSet[str], kinds: tuple[str, ...]) -> set[str]:
    """Return the parts of these kinds."""
    return {part for part in shape if part.startswith(kinds)}
