"""A module on SQLite: what the driver can do, its schema, and its bulk port."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from typing_extensions import override

from twinstore.driver import (
    LEDGER_MODULE,
    AppliedScript,
    Capabilities,
    DocumentBackend,
    DocumentBulk,
    ModuleSpec,
    OpenRequest,
    Script,
    ScriptInitializer,
    retry,
    wrong_handle,
)
from twinstore.errors import ConfigurationError
from twinstore_sqlite.file import DRIVER, TABLE, SqliteFile, has_table
from twinstore_sqlite.plugin import SqliteSettings
from twinstore_sqlite.unit import JoinedUnit, SqliteUnit

R = TypeVar("R")
CAPABILITIES: Final = Capabilities(
    backend=DRIVER,
    server_version=sqlite3.sqlite_version,
    transactions=True,
    sessions=True,
    cross_process_locks=True,
    bulk=True,
    largest_document_bytes=1_000_000_000,
    remedy="Use the driver of a server; this one keeps everything in a file.",
)
LEDGER: Final = """CREATE TABLE IF NOT EXISTS schema_migrations
    (module TEXT, name TEXT, checksum TEXT, applied_at TEXT, PRIMARY KEY (module, name))"""
RECORDED: Final = "SELECT name, checksum, applied_at FROM schema_migrations WHERE module = ?"


class SqliteInitializer(ScriptInitializer):
    """Makes the table and the indexes that the descriptions of a module ask for."""

    def __init__(self, file: SqliteFile, module: ModuleSpec[object]) -> None:
        """Take the file and the module."""
        super().__init__(module.name, DRIVER, TABLE.scripts(module.catalog))
        self._file = file

    @override
    def recorded(self) -> Mapping[str, AppliedScript]:
        with self._file.connected() as connection:
            known = has_table(connection, "schema_migrations")
            rows = connection.execute(RECORDED, [self._module]).fetchall() if known else []
        return {name: AppliedScript(checksum, datetime.fromisoformat(at)) for name, checksum, at in rows}

    @override
    def apply(self, script: Script) -> bool:
        return retry(lambda: self._apply(script))

    def _apply(self, script: Script) -> bool:
        record = [self._module, script.name, script.checksum, datetime.now(UTC).isoformat()]
        with self._file.connected() as connection:
            # In this mode readers of an old state do not keep a writer waiting, nor the other way round.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(LEDGER)
            if connection.execute(f"{RECORDED} AND name = ?", record[:2]).fetchone() is not None:
                return False
            connection.execute(script.text)
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?, ?, ?)", record)
            connection.execute("COMMIT")
            return True


class SqliteBackend(DocumentBackend[R]):
    """Implements :class:`~twinstore.plugins.backend.ModuleBackend` for any module."""

    def __init__(self, module: ModuleSpec[R], request: OpenRequest) -> None:
        """Take the module and the settings; nothing is opened yet."""
        super().__init__(module, CAPABILITIES)
        if not isinstance(request.settings, SqliteSettings):
            raise ConfigurationError(f"{DRIVER} needs its own settings.", driver=DRIVER)
        self._file = SqliteFile(request.settings, request.clock, read_only=request.read_only)
        self.initializer = SqliteInitializer(self._file, module)

    @property
    @override
    def bulk(self) -> DocumentBulk:
        place = f"sqlite:{self._file.path}"
        ledger = SqliteInitializer(self._file, LEDGER_MODULE)
        entities = self._module.catalog.entities
        return DocumentBulk(self, entities, identity=place, place=place, ledger_initializer=ledger)

    @override
    def begin(self, *, read_only: bool = False, isolated: bool = False) -> SqliteUnit:
        return SqliteUnit(self._file, read_only=read_only, isolated=isolated)

    @override
    def joined(self, handle: object) -> JoinedUnit:
        if not isinstance(handle, sqlite3.Connection):
            raise wrong_handle(handle, "a connection of sqlite3", DRIVER)
        return JoinedUnit(self._file, handle)
