"""The file, its one table, its connections, and what their errors mean.

A connection lives as long as one unit of work. SQLite forbids to take an open one across a fork, and to open
one costs little more than a statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from twinstore.driver import Clock, OneTable, RowLocks
from twinstore.errors import ConcurrencyError, MigrationError, TwinstoreError, UnavailableError
from twinstore_sqlite.plugin import SqliteSettings

DRIVER: Final = "SQLite"
BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
LOCKS: Final[dict[Path, RowLocks]] = {}
COLUMNS: Final = """
    entity TEXT, key TEXT, document TEXT NOT NULL CHECK (json_type(document) = 'object'),
    markers TEXT NOT NULL CHECK (json_type(markers) = 'object'),
    derived TEXT NOT NULL CHECK (json_type(derived) = 'object'),
    version TEXT NOT NULL, PRIMARY KEY (entity, key)"""
TABLE: Final = OneTable(f"CREATE TABLE IF NOT EXISTS rows ({COLUMNS}) WITHOUT ROWID")


class SqliteFile:
    """One file. Nothing is opened before the first unit."""

    def __init__(self, settings: SqliteSettings, clock: Clock, *, read_only: bool) -> None:
        """Take where the file is, the clock of the storage, and whether it is a source."""
        self.path = settings.path.resolve()
        self.clock = clock
        # All storages of this process on one file keep apart by the same locks.
        self.locks = LOCKS.setdefault(self.path, RowLocks(DRIVER))
        self._settings = settings
        self._mode = "rw" if read_only else "rwc"  # a source is never created

    def connect(self) -> sqlite3.Connection:
        """Return a connection in autocommit mode."""
        uri = f"{self._settings.path.absolute().as_uri()}?mode={self._mode}"
        seconds = self._settings.timeout_ms / 1000
        connection = sqlite3.connect(
            uri, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False
        )
        connection.execute(f"PRAGMA synchronous = {self._settings.synchronous}")
        return connection

    @contextmanager
    def connected(self) -> Generator[sqlite3.Connection]:
        """Open a connection for the length of a block; what it did not commit is rolled back."""
        with translated(), closing(self.connect()) as connection:
            yield connection


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the file has a table."""
    found = connection.execute("SELECT 1 FROM main.sqlite_master WHERE name = ?", [name])
    return found.fetchone() is not None


@contextmanager
def translated() -> Generator[None]:
    """Raise the errors of the library in place of those of SQLite, whose texts may repeat a row."""
    try:
        yield
    except sqlite3.Error as error:
        raise meaning(error) from error


def meaning(error: sqlite3.Error) -> TwinstoreError:
    """Return what an error means to a caller."""
    code = getattr(error, "sqlite_errorcode", 0)
    # Unique values are looked up before they are written: who meets the constraint has lost a race.
    if code & 0xFF in BUSY or isinstance(error, sqlite3.IntegrityError):
        return ConcurrencyError("Another writer was faster; repeat the call or the unit.", driver=DRIVER)
    if "no such table" in str(error):
        return MigrationError("The file has no schema yet. Run: twinstore migrate run", driver=DRIVER)
    return UnavailableError(f"The file cannot be used ({type(error).__name__}).", driver=DRIVER)
