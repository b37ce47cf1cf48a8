"""What there is to read: a source may lack a table, or have a view in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

if TYPE_CHECKING:
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.derive import Table

__all__ = ["Found", "found_of", "without_key"]

# Nobody checks the rows of a foreign table, whatever it says of its columns, and a view says nothing of them.
FIND: Final = b"""
SELECT c.relkind = 'f'
       OR (SELECT count(*) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname = ANY (%s) AND a.attnotnull) < cardinality(%s::text[])
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A table, or what stands for it.

    Attributes:
        nullable: part of the key may be null, as in a view, or in a table that somebody else made.
    """

    nullable: bool


def found_of(connection: Connection, table: Table) -> Found | None:
    """Return what there is of a table, ``None`` where there is nothing of its name."""
    # Of an expression on the payload nobody says that it is never null, so there is no such column.
    key = [column.name if table.has_own_key else "" for column in table.key]
    row = connection.execute(FIND, [key, key, table.entity.module, table.entity.name]).fetchone()
    return None if row is None else Found(nullable=bool(row[0]))


def without_key(table: Table) -> sql.Composable:
    """Return the condition of rows whose key is null, at least in part."""
    return sql.SQL(" OR ").join(sql.SQL("{} IS NULL").format(column.term()) for column in table.key)
