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
from twinstore_postgres.connection.transaction import ROLL_BACK_TO, SAVEPOINT

if TYPE_CHECKING:
    from psycopg import Copy

    from twinstore_postgres.connection.batch import Step
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.connection.transaction import Transaction
    from twinstore_postgres.mapping.codec import Values
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


def find_step(table: Table) -> Step:
    """Return the statement that finds a table."""
    # An expression on the payload cannot be declared NOT NULL, so there is no such column.
    key = [column.name if table.has_own_key else "" for column in table.key]
    return FIND, [key, key, table.entity.module, table.entity.name]


def table_info(found: Values | None) -> TableInfo | None:
    """Return what the answer says of a table, ``None`` where there is nothing of its name."""
    return None if found is None else TableInfo(nullable=bool(found[0]))


def without_key(table: Table) -> sql.Composable:
    """Return the condition of rows whose key is null, at least in part."""
    return sql.SQL(" OR ").join(sql.SQL("{} IS NULL").format(column.term()) for column in table.key)


class Snapshot:
    """A transaction that reads one state."""

    def __init__(self, transaction: Transaction) -> None:
        """Take the transaction; nothing is sent yet."""
        self._transaction = transaction
        self._found: dict[Table, TableInfo | None] = {}
        # Where every stream begins: what only reads has nothing to undo.
        transaction.later(SAVEPOINT)

    @property
    def connection(self) -> Connection:
        """The connection, inside the transaction."""
        self._transaction.run()
        return self._transaction.connection

    def find(self, table: Table) -> TableInfo | None:
        """Return what there is to read of a table, ``None`` where there is nothing of its name.

        The server is asked once for each table.
        """
        if table not in self._found:
            (found,) = self._transaction.run(find_step(table), subject=Subject(table.entity))
            self._found[table] = table_info(found.first)
        return self._found[table]

    @contextmanager
    def copy(self, statement: sql.Composed, values: Sequence[object] = ()) -> Iterator[Copy]:
        """Stream the answer of one statement.

        A stream that is only partly read is cancelled. The savepoint keeps that, and any other error of the
        stream, from ending the snapshot.
        """
        connection = self.connection
        try:
            with (
                translated(outcome=Outcome.NOT_APPLIED),
                connection.cursor().copy(statement, values) as copy,
                in_one_process(connection),
            ):
                yield copy
        except BaseException:
            if not connection.closed:
                self._transaction.later(ROLL_BACK_TO)
            raise
