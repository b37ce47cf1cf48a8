"""What there is to read: a source may lack a table, or have a view in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.errors import Outcome
from twinstore_postgres.connection.errors import Subject, translated
from twinstore_postgres.connection.target import in_one_process

if TYPE_CHECKING:
    from psycopg import Copy

    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.mapping.table import Table

# The server does not check the rows of a foreign table or partition against its columns, and a view declares
# nothing.
FIND: Final = b"""
SELECT c.relkind = 'f'
       OR EXISTS (SELECT FROM pg_partition_tree(c.oid) JOIN pg_class p ON p.oid = relid WHERE p.relkind = 'f')
       OR (SELECT count(*) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname = ANY (%s) AND a.attnotnull) < cardinality(%s::text[])
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table, or a view that replaces it.

    Attributes:
        nullable: part of the key may be null, as in a view, or in a table that we did not create.
    """

    nullable: bool


def table_info(connection: Connection, table: Table) -> TableInfo | None:
    """Return what there is of a table, ``None`` where there is nothing of its name."""
    # An expression on the payload cannot be declared NOT NULL, so there is no such column.
    key = [column.name if table.has_own_key else "" for column in table.key]
    row = connection.execute(FIND, [key, key, table.entity.module, table.entity.name]).fetchone()
    return None if row is None else TableInfo(nullable=bool(row[0]))


def without_key(table: Table) -> sql.Composable:
    """Return the condition of rows whose key is null, at least in part."""
    return sql.SQL(" OR ").join(sql.SQL("{} IS NULL").format(column.term()) for column in table.key)


class Snapshot:
    """A transaction that reads one state."""

    def __init__(self, connection: Connection) -> None:
        """Take the connection, inside the transaction."""
        self.connection = connection
        self._found: dict[Table, TableInfo | None] = {}

    def find(self, table: Table) -> TableInfo | None:
        """Return what there is to read of a table, ``None`` where there is nothing of its name.

        The server is asked once for each table.
        """
        if table not in self._found:
            with translated(Subject(table.entity), outcome=Outcome.NOT_APPLIED):
                self._found[table] = table_info(self.connection, table)
        return self._found[table]

    @contextmanager
    def copy(self, statement: sql.Composed, values: Sequence[object] = ()) -> Iterator[Copy]:
        """Stream the answer of one statement.

        A stream that is only partly read is cancelled. The savepoint keeps that, and any other error of the
        stream, from ending the snapshot.
        """
        cursor = self.connection.cursor()
        with (
            translated(outcome=Outcome.NOT_APPLIED),
            self.connection.transaction(),
            cursor.copy(statement, values) as copy,
            in_one_process(self.connection),
        ):
            yield copy
