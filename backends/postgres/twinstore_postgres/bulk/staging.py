"""Rows go into a temporary table by COPY and from there into their own.

COPY straight into a table under row-level security is not possible.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from twinstore.errors import ConfigurationError
from twinstore_postgres.columns import VERSION
from twinstore_postgres.derive import listed
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore_postgres.codec import Row
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.derive import Table

__all__ = ["Merged", "Presence", "Stage"]

CREATE: Final = (
    "CREATE TEMPORARY TABLE {stage} ON COMMIT DELETE ROWS AS SELECT {columns} FROM {table} WITH NO DATA"
)
EMPTY: Final = "TRUNCATE {stage}"
FILL: Final = "COPY {stage} ({columns}) FROM STDIN (FORMAT BINARY)"
# What is stored nearest to the two ends of some keys; both answers come from the index of the key.
FIRST: Final = "SELECT {key} FROM {table} WHERE ({key}) >= ({values}) ORDER BY {key} LIMIT 1"
LAST: Final = "SELECT {key} FROM {table} WHERE ({key}) <= ({values}) ORDER BY {descending} LIMIT 1"
# All staged rows are inserted, or the statement fails.
INSERT_ALL: Final = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {stage}"
# The keys of staged rows that are not stored as they are, and whether they are missing.
COMPARE: Final = """
SELECT {staged_key}, {missing}
  FROM {stage} AS staged LEFT JOIN {table} AS stored ON ({stored_key}) = ({staged_key})
 WHERE ({stored_columns}) IS DISTINCT FROM ({staged_columns})
"""
# New rows are inserted; the answer is their number by tenant. Rows that exist are left as they are.
INSERT_NEW: Final = """
WITH written AS (
    INSERT INTO {table} ({columns}) SELECT {columns} FROM {stage}
    ON CONFLICT ({key}) DO NOTHING RETURNING {label} AS label
)
SELECT label, count(*) FROM written GROUP BY label
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


STORED: Final = sql.Identifier("stored")
STAGED: Final = sql.Identifier("staged")


class Presence(Enum):
    """What the ends of some keys suggest about all of them; only a hint, because rivals write too."""

    NONE = "nothing is stored there"
    SOME = "some rows are stored there"
    ALL = "the first and the last row are stored"


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of the staged rows."""

    written: Mapping[str, int]
    others: Sequence[Row]


NOTHING_NEW: Final = Merged({}, ())


class Stage:
    """The temporary table of one entity on one connection."""

    def __init__(self, connection: Connection, table: Table) -> None:
        """Take the connection; :meth:`create` makes the table."""
        self._connection = connection
        self._table = table
        self._types = [column.sql_type for column in table.columns]
        self._used = False
        parts = names(table)
        self._create = sql.SQL(CREATE).format(**parts)
        self._empty, self._fill, self._first, self._last = (
            sql.SQL(template).format(**parts).as_bytes() for template in (EMPTY, FILL, FIRST, LAST)
        )
        self._insert_all, self._compare, self._insert_new, self._select, self._overwrite = (
            sql.SQL(template).format(**parts).as_bytes()
            for template in (INSERT_ALL, COMPARE, INSERT_NEW, SELECT_OTHER, OVERWRITE)
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

    def begin(self) -> None:
        """Note that a transaction has begun, in which the table is empty."""
        self._used = False

    def presence(self, rows: Sequence[Row]) -> Presence:
        """Return what is stored around rows in key order."""
        first, last = self._table.key_of(rows[0]), self._table.key_of(rows[-1])
        after = self._connection.execute(self._first, first).fetchone()
        if after is None or after > last:
            return Presence.NONE
        before = self._connection.execute(self._last, last).fetchone()
        return Presence.ALL if (after, before) == (first, last) else Presence.SOME

    def merge(self, rows: Sequence[Row], presence: Presence, *, overwrite: bool) -> Merged:
        """Insert the rows that are new; overwrite, or only find, those with other content.

        Raises:
            psycopg.errors.UniqueViolation: also for a key that is stored, where ``presence`` is ``NONE``.
        """
        self._stage(rows)
        if presence is Presence.NONE:
            self._connection.execute(self._insert_all)
            return Merged(Counter(self._table.owner_label(row) for row in rows), ())
        if presence is Presence.ALL:
            found = self._connection.execute(self._compare).fetchall()
            if not found:
                return NOTHING_NEW
            if not overwrite and not any(missing for *_, missing in found):
                return Merged({}, [tuple(key) for *key, _ in found])
        return self._merge(len(rows), overwrite=overwrite)

    def _stage(self, rows: Sequence[Row]) -> None:
        if self._used:
            self._connection.execute(self._empty)
        self._used = True
        with self._connection.cursor() as cursor, cursor.copy(self._fill) as copy:
            copy.set_types(self._types)
            for row in rows:
                copy.write_row(row)

    def _merge(self, staged: int, *, overwrite: bool) -> Merged:
        written: dict[str, int] = dict(self._connection.execute(self._insert_new).fetchall())
        if sum(written.values()) == staged:
            return Merged(written, ())
        others = self._overwrite if overwrite else self._select
        return Merged(written, self._connection.execute(others).fetchall())


def names(table: Table) -> dict[str, sql.Composable]:
    """Return what the statements are made of."""
    columns = [column.name for column in table.columns]
    version = sql.SQL(", {0} = {1}.{0} + 1").format(sql.Identifier(VERSION), STORED)
    return table.parts | {
        "stage": sql.Identifier("pg_temp", f"twinstore_stage_{table.entity.name}"),
        "values": sql.SQL(", ").join([sql.Placeholder()] * len(table.key)),
        "descending": sql.SQL(", ").join(
            sql.SQL("{} DESC").format(sql.Identifier(name)) for name in table.key
        ),
        "missing": sql.SQL("{}.{} IS NULL").format(STORED, sql.Identifier(table.key[0])),
        "label": table.label,
        "stored_key": listed(table.key, STORED),
        "staged_key": listed(table.key, STAGED),
        "stored_columns": listed(columns, STORED),
        "staged_columns": listed(columns, STAGED),
        "version": version if table.entity.versioned else sql.SQL(""),
    }
