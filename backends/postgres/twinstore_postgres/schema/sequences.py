"""Whether the sequences that number rows go on above the rows that are there.

A copy raises them, but a dump that was restored, or a statement by hand, may leave one behind: every row is
right then, and the next one is refused because its number is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from psycopg import sql
from psycopg.rows import class_row, scalar_row

from twinstore.catalog.keys import INT64_MAX
from twinstore.models.fields import SYSTEM_TENANT
from twinstore_postgres.access.statements import counter_of
from twinstore_postgres.connection.cursors import OwnCursor
from twinstore_postgres.connection.transaction import SET_TENANT
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.mapping.table import Table

# No row for a table or column that is missing, or of which nothing may be read.
SEQUENCE: Final = b"""
SELECT s.name, q.seqincrement AS step, q.seqcycle AS cycles, q.seqmax AS highest, q.seqcache AS cache,
       format_type(q.seqtypid, NULL) AS kind,
       pg_sequence_last_value(q.seqrelid) AS last, q.seqstart AS first,
       has_sequence_privilege(q.seqrelid, 'SELECT') AS readable
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 CROSS JOIN LATERAL pg_get_serial_sequence(%(table)s, a.attname) AS s (name)
  LEFT JOIN pg_sequence q ON q.seqrelid = to_regclass(s.name)
 WHERE a.attrelid = to_regclass(%(table)s) AND a.attname = %(column)s AND c.relkind IN ('r', 'p')
   AND has_table_privilege(c.oid, 'SELECT')
   AND (s.name IS NULL OR has_sequence_privilege(q.seqrelid, 'USAGE, SELECT'))
"""
# Only the sequence itself knows a number that it was set to and has not given yet.
# Behind the last number of all an integer would overflow.
FOLLOWING: Final = "SELECT last_value::numeric + is_called::int FROM {sequence}"
HIGHEST: Final = "SELECT coalesce(max({column}), 0) FROM {table}"


class Sequence(NamedTuple):
    """A sequence: its name, ``None`` where the column has none, by what it counts, and its last number."""

    name: str | None
    step: int | None
    cycles: bool | None
    highest: int | None
    cache: int | None
    kind: str | None
    last: int | None
    first: int | None
    readable: bool | None

    @property
    def following(self) -> int | None:
        """The number that comes next, as far as the catalogue knows it."""
        return self.first if self.last is None or self.step is None else self.last + self.step

    @property
    def odd(self) -> str:
        """What of it no migration made, and would end the numbers early or give them out of order."""
        flaws = {
            f"is of type {self.kind}": self.kind != "bigint",
            f"counts by {self.step}": self.step != 1,
            f"ends at {self.highest}": self.highest != INT64_MAX,
            "begins again": self.cycles,
            f"gives each session {self.cache} numbers at a time": self.cache != 1,
        }
        return ", ".join(flaw for flaw, found in flaws.items() if found)


def odd_sequences(connection: Connection, module: ModuleSpec[object]) -> Iterator[str]:
    """Yield a sentence for each sequence with settings that no migration made."""
    for _, found in _sequences(connection, module):
        if found.name is not None and found.odd:
            yield _odd(found)


def numbering_differences(connection: Connection, module: ModuleSpec[object]) -> Iterator[str]:
    """Yield a sentence for each sequence that is missing, has other settings, or lags behind its rows."""
    for table, found in _sequences(connection, module):
        name, column = counter_of(table)
        if found.name is None:
            yield (
                f"Missing: sequence of {name}.{column}. To fix: ALTER SEQUENCE "
                f"{serial_name(table, column)} OWNED BY {name}.{column};"
            )
        elif found.odd:
            yield _odd(found)
        else:
            yield from _lagging(connection, table, found.name, found)


def _sequences(connection: Connection, module: ModuleSpec[object]) -> Iterator[tuple[Table, Sequence]]:
    for entity in module.catalog.entities:
        if entity.assigned is not None:
            name, column = counter_of(table_of(entity))
            with OwnCursor(connection, class_row(Sequence)) as cursor:
                found = cursor.execute(SEQUENCE, {"table": name, "column": column}).fetchone()
            if found is not None:
                yield table_of(entity), found


def _odd(found: Sequence) -> str:
    return (
        f"The sequence {found.name} {found.odd}; wanted: bigint, by 1, to its end, without a cache. To fix: "
        f"ALTER SEQUENCE {found.name} AS bigint INCREMENT BY 1 NO MAXVALUE CACHE 1 NO CYCLE;"
    )


def serial_name(table: Table, column: str) -> str:
    """Return the name that the type ``bigserial`` gives the sequence of a column."""
    return sql.Identifier(table.entity.module, f"{table.entity.name}_{column}_seq").as_string()


def _lagging(connection: Connection, table: Table, sequence: str, found: Sequence) -> Iterator[str]:
    """Yield a sentence where a row has the number that comes next, or a higher one."""
    name, column = counter_of(table)
    with connection.transaction(), OwnCursor(connection, scalar_row) as cursor:
        cursor.execute(SET_TENANT, [SYSTEM_TENANT])
        highest = cursor.execute(HIGHEST.format(column=column, table=name).encode()).fetchone()
        following = found.following
        if found.readable:
            following = cursor.execute(FOLLOWING.format(sequence=sequence).encode()).fetchone()
    if following is not None and highest is not None and following <= highest:
        yield (
            f"The sequence {sequence} gives {following} next, but rows are numbered up to {highest}, so new "
            f"rows of {name} are refused. To fix: SELECT setval('{sequence}', {highest});"
        )
