"""The file, its connections, and what their errors mean.

A connection lives as long as one unit of work. SQLite forbids to take an open one across a fork, and to open
one costs little more than a statement.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from twinstore.documents import Claims
from twinstore.errors import ConcurrencyError, MigrationError, TwinstoreError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from twinstore.clock import Clock
    from twinstore_sqlite.plugin import SqliteSettings

DRIVER: Final = "SQLite"
BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
CLAIMS: Final[dict[Path, Claims]] = {}


class SqliteFile:
    """One file. Nothing is opened before the first unit."""

    def __init__(self, settings: SqliteSettings, clock: Clock, *, read_only: bool = False) -> None:
        """Take where the file is, the clock of the storage, and whether it is a source."""
        self.path = settings.path.resolve()
        self.clock = clock
        # All storages of this process on one file keep apart by the same claims.
        self.claims = CLAIMS.setdefault(self.path, Claims(DRIVER))
        self._settings = settings
        self._mode = "rw" if read_only else "rwc"

    def connect(self) -> sqlite3.Connection:
        """Return a connection in autocommit mode, which may be closed by another thread."""
        connection = sqlite3.connect(
            f"{self._settings.path.absolute().as_uri()}?mode={self._mode}",
            uri=True,
            timeout=self._settings.timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute(f"PRAGMA synchronous = {self._settings.synchronous}")
        return connection

    @contextmanager
    def connected(self) -> Generator[sqlite3.Connection]:
        """Open a connection for the length of a block; what it did not commit is rolled back."""
        with translated(), closing(self.connect()) as connection:
            yield connection

    @property
    def has_schema(self) -> bool:
        """Whether a migration has made the table."""
        with self.connected() as connection:
            return has_table(connection, "rows")


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
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, sqlite3.IntegrityError) or (code is not None and code & 0xFF in BUSY):
        return ConcurrencyError(
            "Another writer was faster, or did not end in time; repeat the call or the unit.", driver=DRIVER
        )
    if "no such table" in str(error):
        return MigrationError("The file has no schema yet. Run: twinstore migrate run", driver=DRIVER)
    return UnavailableError(
        f"SQLite cannot read or write the file ({type(error).__name__}); see the cause.", driver=DRIVER
    )
