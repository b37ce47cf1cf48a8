"""Units of work: many at a time, although SQLite has one writer at a time.

A unit keeps its writes in a temporary table of its connection; a view hides the rows of the file behind them.
Nobody waits for it meanwhile. Its commit locks the file for a moment, finds every row that it holds as it
was, and moves the temporary table over. Within a process row locks let the first writer win; between
processes the first to commit wins.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final
from uuid import uuid4

from typing_extensions import override

from twinstore.driver import (
    DocumentRow,
    DocumentUnit,
    Entity,
    Key,
    KeyRange,
    Query,
    SqlText,
    Tenants,
    row_of_json,
)
from twinstore.errors import ConcurrencyError
from twinstore_sqlite.file import COLUMNS, DRIVER, TABLE, SqliteFile, has_table, translated

STAGE: Final = (
    "CREATE TEMP TABLE staged (entity, key, document, markers, derived, version, PRIMARY KEY (entity, key))",
    """CREATE TEMP VIEW seen AS SELECT * FROM staged WHERE document IS NOT NULL UNION ALL
       SELECT * FROM main.rows AS r
        WHERE NOT EXISTS (SELECT 1 FROM staged AS s WHERE s.entity = r.entity AND s.key = r.key)""",
)
MOVE: Final = (
    "DELETE FROM main.rows WHERE (entity, key) IN (SELECT entity, key FROM staged)",
    "INSERT INTO main.rows SELECT * FROM staged WHERE document IS NOT NULL",
    "COMMIT",
)
VERSION: Final = "SELECT version FROM main.rows WHERE entity = ? AND key = ?"


class SqliteUnit(DocumentUnit):
    """One unit of work on its own connection."""

    driver = DRIVER

    def __init__(self, file: SqliteFile, *, read_only: bool = False, isolated: bool = False) -> None:
        """Take the file; the connection is opened at the first call."""
        super().__init__(read_only=read_only)
        self._file = file
        self._isolated = isolated
        self._opened: sqlite3.Connection | None = None
        self._source = "rows"
        self._held: dict[tuple[str, str], object] = {}

    @override
    def now(self) -> datetime:
        return self._file.clock.now()

    @override
    def select(self, entity: Entity, query: Query) -> list[DocumentRow]:
        return list(self._rows(entity, TABLE.select(entity, query, self._source)))

    @override
    def keys(self, entity: Entity, query: Query) -> list[Key]:
        statement = TABLE.select_keys(entity, query, self._source)
        with translated():
            found = self._execute(statement.text, statement.values).fetchall()
        return [tuple(json.loads(key)) for (key,) in found]

    @override
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[DocumentRow]:
        return self._rows(entity, TABLE.scan(entity, within, scope, self._source))

    @override
    def hold(self, entity: Entity, key: Key) -> None:
        place = TABLE.place(entity, key)
        if place not in self._held:
            self._file.locks.acquire(self, place, isolated=self._isolated)
            self._held[place] = self._version(place)

    @override
    def write(self, row: DocumentRow) -> None:
        self._put(*TABLE.place(row.entity, row.key), *TABLE.values(row), uuid4().hex)

    @override
    def delete(self, entity: Entity, key: Key) -> None:
        self._put(*TABLE.place(entity, key), None, None, None, None)

    @override
    def commit(self) -> None:
        self.state.check_commit()
        self.state.check()
        if self._source == "seen":
            self._publish()
        self.rollback()

    @override
    def rollback(self) -> None:
        self.state.closed = True
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._file.locks.release(self)

    def _publish(self) -> None:
        """Move what is staged over, if every row that was held is as it was."""
        if self._isolated:
            self._execute("COMMIT")  # leaves the old state, which could not be written
        self._execute("BEGIN IMMEDIATE")
        if any(self._version(place) != version for place, version in self._held.items()):
            raise ConcurrencyError("Another process was faster; repeat the call or the unit.", driver=DRIVER)
        for statement in MOVE:
            self._execute(statement)

    def _put(self, *values: str | None) -> None:
        """Stage a row, or that there is none."""
        if self._source == "rows":
            for statement in STAGE:
                self._execute(statement)
            self._source = "seen"
        self._execute("REPLACE INTO staged VALUES (?, ?, ?, ?, ?, ?)", values)

    def _version(self, place: tuple[str, str]) -> object:
        return self._execute(VERSION, place).fetchone()

    def _rows(self, entity: Entity, statement: SqlText) -> Iterator[DocumentRow]:
        cursor = self._execute(statement.text, statement.values)
        with translated():
            for row in cursor:
                yield row_of_json(entity, *row)

    def _execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        with translated():
            return self.connection.execute(statement, values)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, opened at the first call; the state that an isolated unit reads begins with it."""
        if self._opened is None:
            self._opened = self._file.connect()
            if self.read_only and not has_table(self._opened, "rows"):
                self._opened.execute(f"CREATE TEMP TABLE rows ({COLUMNS})")  # without schema it is empty
            if self._isolated:
                self._opened.execute("BEGIN")
        return self._opened


class JoinedUnit(SqliteUnit):
    """One unit of work in the transaction of a caller, which locks the file."""

    def __init__(self, file: SqliteFile, connection: sqlite3.Connection) -> None:
        """Take the connection of the caller, who commits and closes it."""
        super().__init__(file)
        self._joined = connection

    @property
    @override
    def connection(self) -> sqlite3.Connection:
        """The connection of the caller."""
        return self._joined

    @override
    def hold(self, entity: Entity, key: Key) -> None:
        """Do nothing: nobody else can write."""

    @override
    def _put(self, *values: str | None) -> None:
        self._execute("DELETE FROM rows WHERE entity = ? AND key = ?", values[:2])
        if values[2] is not None:
            self._execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", values)

    @contextmanager
    @override
    def part(self) -> Generator[None]:
        if not self._joined.in_transaction:
            self._execute("BEGIN IMMEDIATE")  # or the end of the savepoint would be that of the transaction
        self._execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self._execute("ROLLBACK TO part")
            raise
        finally:
            self._execute("RELEASE part")
