"""Rows go into a temporary table by COPY and from there into their own.

COPY straight into a table under row-level security is not possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from twinstore.errors import ConfigurationError
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore_postgres.codec import Row, Table
    from twinstore_postgres.connecting import Connection

__all__ = ["Stage"]

CREATE: Final = (
    "CREATE TEMPORARY TABLE {stage} ON COMMIT DELETE ROWS AS SELECT {columns} FROM {table} WITH NO DATA"
)
EMPTY: Final = "TRUNCATE {stage}"
FILL: Final = "COPY {stage} ({columns}) FROM STDIN (FORMAT BINARY)"
# New rows are inserted; the answer is their number by tenant. Rows that exist are left as they are.
INSERT_NEW: Final = """
WITH written AS (
    INSERT INTO {table} ({columns}) SELECT {columns} FROM {stage}
    ON CONFLICT ({key}) DO NOTHING RETURNING {tenant}
)
SELECT {tenant}, count(*) FROM written GROUP BY {tenant}
"""
# The keys of staged rows that are stored with other content.
SELECT_OTHER: Final = """
SELECT {staged_key} FROM {stage} AS staged JOIN {table} AS stored ON ({stored_key}) = ({staged_key})
 WHERE ({stored_columns}) IS DISTINCT FROM ({staged_columns})
"""
# Stored rows with other content become equal to the staged ones; the answer is their keys.
OVERWRITE: Final = """
UPDATE {table} AS stored SET ({columns}) = ROW({staged_columns}){version}
  FROM {stage} AS staged
 WHERE ({stored_key}) = ({staged_key}) AND ({stored_columns}) IS DISTINCT FROM ({staged_columns})
RETURNING {staged_key}
"""


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of the staged rows."""

    written: dict[str, int]
    others: list[Row]


class Stage:
    """The temporary table of one entity on one connection."""

    def __init__(self, connection: Connection, table: Table[Any]) -> None:
        """Take the connection; :meth:`create` makes the table."""
        self._connection = connection
        self._types = [column.sql_type for column in table.columns]
        parts = names(table)
        self._create = sql.SQL(CREATE).format(**parts)
        self._empty, self._fill, self._insert, self._select, self._overwrite = (
            sql.SQL(template).format(**parts).as_bytes()
            for template in (EMPTY, FILL, INSERT_NEW, SELECT_OTHER, OVERWRITE)
        )

    def create(self) -> None:
        """Make the table; it lasts as long as the connection, its rows as long as a transaction.

        Raises:
            ConfigurationError: the role may not create temporary tables.
        """
        try:
            self._connection.execute(self._create)
        except psycopg.errors.InsufficientPrivilege as error:
            info = self._connection.info
            raise ConfigurationError(
                f"The role {info.user!r} may not create temporary tables, which an import needs. "
                f"An administrator must run: GRANT TEMPORARY ON DATABASE "
                f"{sql.Identifier(info.dbname).as_string()} TO {sql.Identifier(info.user).as_string()};",
                driver=DRIVER,
            ) from error

    def merge(self, rows: Sequence[Row], *, overwrite: bool) -> Merged:
        """Insert the rows that are new; overwrite, or only find, those with other content."""
        self._connection.execute(self._empty)
        with self._connection.cursor() as cursor, cursor.copy(self._fill) as copy:
            copy.set_types(self._types)
            for row in rows:
                copy.write_row(row)
        written: dict[str, int] = dict(self._connection.execute(self._insert).fetchall())
        if sum(written.values()) == len(rows):
            return Merged(written, [])
        others = self._overwrite if overwrite else self._select
        return Merged(written, self._connection.execute(others).fetchall())


def names(table: Table[Any]) -> dict[str, sql.Composable]:
    """Return what the statements are made of."""
    columns = [column.name for column in table.columns]
    return {
        "table": table.name,
        "stage": sql.Identifier("pg_temp", f"twinstore_stage_{table.entity.name}"),
        "columns": table.column_list,
        "key": table.key_list,
        "tenant": sql.Identifier(table.tenant),
        "stored_key": of("stored", table.key),
        "staged_key": of("staged", table.key),
        "stored_columns": of("stored", columns),
        "staged_columns": of("staged", columns),
        "version": sql.SQL(", row_version = stored.row_version + 1" if table.versioned else ""),
    }


def of(alias: str, columns: Sequence[str]) -> sql.Composable:
    """Return columns of one side."""
    return sql.SQL(", ").join(sql.Identifier(alias, column) for column in columns)
