"""Cheap isolation on the shared test servers: a fresh database, or a fresh tenant, for every test."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pymongo
from psycopg import sql
from pymongo import MongoClient
from pymongo.errors import PyMongoError

import twinstore
from tests.migrated_databases import MigratedDatabases
from tests.server_supervisor import HAS_ITERATIONS, QUICK_LOGIN, exclusive, run_id
from tests.servers import Settings, mongo_config, postgres_config, postgres_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

OWNER_ROLE: Final = "twinstore_test_owner"
APP_ROLE: Final = "twinstore_test_app"
PASSWORD: Final = "twinstore"
CLONE: Final = "CREATE DATABASE {} OWNER {} TEMPLATE {}"
# With fsync off, copying the files of the small template takes about 15 ms and never grows the log. Before
# version 15 there was no other way.
BY_FILES: Final = " STRATEGY = FILE_COPY"
HAS_STRATEGIES: Final = 150_000
OWN_OPERATIONS: Final = {"$currentOp": {"allUsers": False, "idleSessions": True, "idleConnections": True}}
DROP_SECONDS: Final = 2.0
DROPS: Final = 5


@dataclass(frozen=True, slots=True)
class MongoDatabase:
    """One MongoDB database and the settings that choose it."""

    url: str
    name: str

    @property
    def config(self) -> Settings:
        """Settings for ``open_storage``."""
        return mongo_config(self.url, self.name)


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """One PostgreSQL database as superuser, owner of the schemas, and application."""

    superuser_url: str
    owner_url: str
    app_url: str
    name: str

    @property
    def config(self) -> Settings:
        """Settings for ``open_storage``."""
        return postgres_config(self.app_url, self.owner_url)


def end_lost(client: MongoClient[dict[str, Any]]) -> None:
    """End the transactions whose client has no connection any more."""
    found = list(client.admin.aggregate([OWN_OPERATIONS]))
    connected = {item["connectionId"] for item in found if item["type"] == "op" and "connectionId" in item}
    lost = [
        {"id": item["lsid"]["id"]}
        for item in found
        if item["type"] == "idleSession" and "transaction" in item
        if item.get("connectionId") not in {None, *connected}
    ]
    if lost:
        client.admin.command("killSessions", lost)


class MongoServer:
    """The MongoDB of this run."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.client = MongoClient[dict[str, Any]](url, appname="twinstore")
        self._prefix = f"twinstore_{run_id(directory)}"
        self._migrated: dict[str, MigratedDatabases] = {}

    @contextmanager
    def database(self) -> Iterator[MongoDatabase]:
        """Name a database that does not exist yet and drop it afterwards."""
        database = self._name()
        try:
            yield database
        finally:
            self._drop(database)

    @contextmanager
    def migrated_database(
        self, module: str = "scheduler", options: Mapping[str, object] | None = None
    ) -> Iterator[MongoDatabase]:
        """Give a database that has every migration applied, and no row; the next test may get the same.

        Args:
            module: whose migrations.
            options: its options, the same at each call.
        """
        made = MigratedDatabases(self.client, self._name, module, options)
        idle = self._migrated.setdefault(module, made)
        database = idle.take()
        try:
            yield database
        finally:
            if not idle.give_back(database):
                self._drop(database)

    def _name(self) -> MongoDatabase:
        return MongoDatabase(self.url, f"{self._prefix}_{uuid4().hex[:12]}")

    def _drop(self, database: MongoDatabase) -> None:
        # It waits for transactions of workers that a test has killed, which the server keeps for a minute.
        for _ in range(DROPS):
            end_lost(self.client)
            with suppress(PyMongoError), pymongo.timeout(DROP_SECONDS):
                self.client.drop_database(database.name)
                return
        self.client.drop_database(database.name)

    def drop_leftovers(self) -> None:
        """Drop every database of this run."""
        for name in self.client.list_database_names():
            if name.startswith(self._prefix):
                self.client.drop_database(name)

    def close(self) -> None:
        """Close the client."""
        self.client.close()


class PostgresServer:
    """The PostgreSQL of this run."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.admin = psycopg.connect(url, autocommit=True)
        self._directory = directory
        self._prefix = f"twinstore_{run_id(directory)}"

    def named(self, name: str) -> PostgresDatabase:
        """Return the URLs of a database on this server."""
        return PostgresDatabase(
            postgres_url(self.url, dbname=name),
            postgres_url(self.url, dbname=name, user=OWNER_ROLE, password=PASSWORD),
            postgres_url(self.url, dbname=name, user=APP_ROLE, password=PASSWORD),
            name,
        )

    @contextmanager
    def migrated_database(self) -> Iterator[PostgresDatabase]:
        """Clone the template, which has every migration applied."""
        with self._database(self._template()) as database:
            yield database

    @contextmanager
    def empty_database(self) -> Iterator[PostgresDatabase]:
        """Create a database that has the roles and nothing else."""
        self._create_roles()
        with self._database("template0") as database:
            yield database

    @contextmanager
    def _database(self, template: str) -> Iterator[PostgresDatabase]:
        name = f"{self._prefix}_{uuid4().hex[:12]}"
        self._create(name, template)
        try:
            yield self.named(name)
        finally:
            self._drop(name)

    def _template(self) -> str:
        name = f"{self._prefix}_template"
        with exclusive(self._directory / "template.lock"):
            ready = self._directory / "template.ready"
            if not ready.exists():
                self._build_template(name)
                ready.touch()
        return name

    def _build_template(self, name: str) -> None:
        self._create_roles()
        self._drop(name)
        self._create(name, "template0")
        with twinstore.open_storage(self.named(name).config) as storage:
            storage.scheduler.initializer.ensure_migrations()

    def _create_roles(self) -> None:
        if self.admin.info.server_version >= HAS_ITERATIONS:
            self.admin.execute(QUICK_LOGIN)
        for role in (OWNER_ROLE, APP_ROLE):
            statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), PASSWORD)
            with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                self.admin.execute(statement)

    def _create(self, name: str, template: str) -> None:
        names = sql.Identifier(name), sql.Identifier(OWNER_ROLE), sql.Identifier(template)
        how = BY_FILES if self.admin.info.server_version >= HAS_STRATEGIES else ""
        self.admin.execute(sql.SQL(f"{CLONE}{how}").format(*names))  # both are of this file

    def _drop(self, name: str) -> None:
        self.admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def drop_leftovers(self) -> None:
        """Drop every database of this run, the template included."""
        names = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
        for (name,) in self.admin.execute(names, [self._prefix]).fetchall():
            self._drop(name)

    def close(self) -> None:
        """Close the connection of the superuser."""
        self.admin.close()
