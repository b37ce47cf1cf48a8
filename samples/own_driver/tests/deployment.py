"""Deployments of the SQLite driver, with a probe that looks into the file."""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from twinstore.driver import (
    ModuleOptions,
    OpenRequest,
    SharedResources,
    SystemClock,
    Tenant,
    format_timestamp,
    open_module,
    row_of_json,
)
from twinstore.testing import ProbeDefaults, StoredRow
from twinstore_sqlite.backend import SqliteBackend
from twinstore_sqlite.file import LOCKS, TABLE
from twinstore_sqlite.plugin import SqliteSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.driver import Clock, Entity, Key, ModuleSpec, ModuleStorage

R = TypeVar("R")


class SqliteProbe(ProbeDefaults):
    """Reads and breaks rows past the driver."""

    def __init__(self, path: Path, module: str) -> None:
        self._path = path
        self._module = module
        self._opened: sqlite3.Connection | None = None

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Run one statement and commit it."""
        if self._opened is None:
            self._opened = sqlite3.connect(self._path, timeout=5, check_same_thread=False)
        with self._opened:
            return self._opened.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the connection, if one was opened."""
        if self._opened is not None:
            self._opened.close()

    def count(self, entity: Entity, tenant_id: str) -> int:
        owned = TABLE.visible(entity, Tenant(tenant_id))
        return int(self.execute(f"SELECT count(*) FROM rows WHERE {owned.text}", owned.values)[0][0])

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        rows = self._select("document, markers, derived", entity, key)
        row = row_of_json(entity, *rows[0]) if rows else None
        return None if row is None else StoredRow(row.document, row.markers)

    def stamp(self, entity: Entity, key: Key) -> object | None:
        rows = self._select("version", entity, key)
        return rows[0][0] if rows else None

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        self.alter(entity, key, {"foreign": content})

    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            part = "markers" if name in entity.markers else "document"
            stored = json.dumps(format_timestamp(value) if isinstance(value, datetime) else value)
            change = (
                f"UPDATE rows SET {part} = json_set({part}, '$.{name}', json(?)) WHERE entity = ? AND key = ?"
            )
            self.execute(change, [stored, *TABLE.place(entity, key)])

    @override
    def garble(self, entity: Entity, key: Key) -> bool:
        row = self.read(entity, key)
        assert row is not None
        kept = {*entity.identity, *(name for index in entity.indexes for name in index.names)}
        found = json.loads(self._select("document", entity, key)[0][0])
        self.alter(entity, key, {name: [value] for name, value in found.items() if name not in kept})
        return True

    @override
    def objects(self) -> frozenset[str]:
        return frozenset(row[0] for row in self.execute("SELECT name FROM sqlite_master"))

    @override
    def tamper_migration(self, name: str) -> None:
        table, place = "schema_migrations WHERE module = ? AND name = ?", [self._module, name]
        found = self.execute(f"SELECT checksum FROM {table}", place)
        if not found:
            record = [*place, "newer", datetime.now().astimezone().isoformat()]
            self.execute("INSERT INTO schema_migrations VALUES (?, ?, ?, ?)", record)
        elif found[0][0] == "newer":
            self.execute(f"DELETE FROM {table}", place)
        else:
            tampered = found[0][0].removeprefix("x") if found[0][0].startswith("x") else f"x{found[0][0]}"
            self.execute(f"UPDATE {table.replace(' WHERE', ' SET checksum = ? WHERE')}", [tampered, *place])

    def _select(self, what: str, entity: Entity, key: Key) -> list[Any]:
        return self.execute(f"SELECT {what} FROM rows WHERE entity = ? AND key = ?", TABLE.place(entity, key))


class SqliteDeployment:
    """A file in its own folder."""

    def __init__(self, module: ModuleSpec[object], folder: Path) -> None:
        self._module = module
        self._folder = folder
        self._path = folder / "data.sqlite"
        self.probe = SqliteProbe(self._path, module.name)

    def waiting(self) -> bool:
        return LOCKS[self._path.resolve()].waiting > 0

    def settings(self, path: Path | None = None) -> Mapping[str, object]:
        section = {"Path": str(path or self._path), "Synchronous": "OFF"}
        return {"Persistence": {"SQLite": section}}

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        del expiring
        return open_module(self._module.name, "SQLite", self.settings(), clock=clock)

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[SqliteBackend[R]]:
        request = OpenRequest(
            module=module,
            settings=SqliteSettings(path=self._path, synchronous="OFF"),
            options=ModuleOptions(),
            resources=SharedResources(),
            clock=clock or SystemClock(),
        )
        with closing(SqliteBackend(module, request)) as backend:
            backend.initializer.ensure_migrations()
            yield backend

    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        with closing(sqlite3.connect(self._path, timeout=5)) as connection, connection:
            yield connection

    @contextmanager
    def break_connection(self) -> Iterator[ModuleStorage[object, object]]:
        way = self._folder / "way"
        way.symlink_to(self._folder)
        settings = self.settings(way / self._path.name)
        with open_module(self._module.name, "SQLite", settings) as storage:
            storage.check_ready()
            way.unlink()
            yield storage


@contextmanager
def sqlite_deployments(module: ModuleSpec[object], *, migrated: bool = True) -> Iterator[SqliteDeployment]:
    """Make a file, migrated by default, and remove it at the end."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        deployment = SqliteDeployment(module, Path(folder))
        stack.callback(deployment.probe.close)
        if migrated:
            with deployment.open() as storage:
                storage.initializer.ensure_migrations()
                storage.bulk.ledger_initializer.ensure_migrations()
        yield deployment
