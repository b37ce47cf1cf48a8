"""Units of work: many at a time, although SQLite has one writer at a time.

A unit keeps its writes in a temporary table of its connection, beneath a view in which they hide the rows of the
file. Nobody waits for it meanwhile. Its commit locks the file for a moment, finds every row that it holds as it
was, and moves the temporary table over. Within a process claims let the first writer win; between processes it
is the first to commit.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from typing_extensions import override

from twinstore import jsontext
from twinstore.documents import DocumentUnit, SqlText, row_of_json
from twinstore.errors import ConcurrencyError
from twinstore_sqlite.schema import COLUMNS, column, title, value, visible
from twinstore_sqlite.store import DRIVER, has_table, translated

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterator, Sequence
    from datetime import datetime

    from twinstore.bulk import KeyRange
    from twinstore.catalog import Entity, Key
    from twinstore.documents import StoredRow
    from twinstore.query import Query
    from twinstore.tenancy import Tenants
    from twinstore_sqlite.store import SqliteFile

STAGED: Final = (
    "CREATE TEMP TABLE staged (entity, key, document, markers, derived, version, PRIMARY KEY (entity, key))"
)
SEEN: Final = """
    CREATE TEMP VIEW seen AS
    SELECT * FROM staged WHERE document IS NOT NULL UNION ALL
    SELECT * FROM main.rows AS r
     WHERE NOT EXISTS (SELECT 1 FROM staged AS s WHERE s.entity = r.entity AND s.key = r.key)
"""
VERSION: Final = "SELECT version FROM main.rows WHERE entity = ? AND key = ?"
MOVE: Final = (
    "DELETE FROM main.rows WHERE (entity, key) IN (SELECT entity, key FROM staged)",
    "INSERT INTO main.rows SELECT * FROM staged WHERE document IS NOT NULL",
    "COMMIT",
)


class SqliteUnit(DocumentUnit):
    """One unit of work on a connection of its own."""

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
    def select(self, entity: Entity, query: Query) -> list[StoredRow]:
        by_name = partial(column, entity)
        where = SqlText.conditions(query, by_name, value)
        order = f"ORDER BY {SqlText.order(query, by_name)} LIMIT {query.limit + 1}"
        return list(self._rows(entity, query.scope, [where], order))

    @override
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[StoredRow]:
        fields = ", ".join(column(entity, name) for name in entity.key)
        marks = ", ".join("?" for _ in entity.key)
        bounds = [(">=", within.lower), ("<", within.upper)]
        where = [SqlText(f"({fields}) {sign} ({marks})", key) for sign, key in bounds if key is not None]
        return self._rows(entity, scope, where, f"ORDER BY {fields}")

    @override
    def hold(self, entity: Entity, key: Key) -> None:
        place = (title(entity), dumps(key))
        if place not in self._held:
            self._file.claims.claim(self, place, isolated=self._isolated)
            found = self._execute(VERSION, place).fetchone()
            self._held[place] = None if found is None else found[0]

    @override
    def write(self, row: StoredRow) -> None:
        parts = (jsontext.dumps(part).decode() for part in (row.document, row.markers, row.derived))
        self.put(title(row.entity), dumps(row.key), *parts, uuid4().hex)

    @override
    def delete(self, entity: Entity, key: Key) -> None:
        self.put(title(entity), dumps(key), None, None, None, None)

    def put(self, *values: str | None) -> None:
        """Stage a row, or that there is none."""
        if self._source == "rows":
            self._execute(STAGED)
            self._execute(SEEN)
            self._source = "seen"
        self._execute("REPLACE INTO staged VALUES (?, ?, ?, ?, ?, ?)", values)

    @override
    def commit(self) -> None:
        self.state.check_commit()
        self.state.check()
        if self._source == "seen":
            self._publish()
        self.rollback()

    def _publish(self) -> None:
        """Move what is staged over, if every row that was held is as it was."""
        if self._isolated:
            self._execute("COMMIT")  # leaves the old state, which could not be written
        self._execute("BEGIN IMMEDIATE")
        for place, version in self._held.items():
            found = self._execute(VERSION, place).fetchone()
            if (None if found is None else found[0]) != version:
                raise ConcurrencyError(
                    "Another process has changed the same row since; repeat the call or the unit as a whole.",
                    driver=DRIVER,
                )
        for statement in MOVE:
            self._execute(statement)

    @override
    def rollback(self) -> None:
        self.state.closed = True
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._file.claims.release(self)

    def _rows(self, entity: Entity, scope: Tenants, where: list[SqlText], order: str) -> Iterator[StoredRow]:
        found = SqlText.joined([visible(entity, scope, self._source), *where], " AND ")
        text = f"SELECT document, markers, derived FROM {self._source} WHERE {found.text} {order}"
        cursor = self._execute(text, found.values)
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
                self._opened.execute(f"CREATE TEMP TABLE rows {COLUMNS}")  # a store without schema is empty
            if self._isolated:
                self._opened.execute("BEGIN")
        return self._opened


class JoinedUnit(SqliteUnit):
    """One unit of work in the transaction of a caller, who has locked the file with the first write."""

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
        """Do nothing: nobody else can write once this transaction has."""

    @override
    def put(self, *values: str | None) -> None:
        """Write at once; the caller commits."""
        place, content = values[:2], values[2:]
        self._execute("DELETE FROM rows WHERE entity = ? AND key = ?", place)
        if None not in content:
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
