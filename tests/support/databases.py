"""Cheap isolation on the shared test servers: a fresh database, or a fresh tenant, for every test."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import psycopg
import pymongo
from psycopg import sql
from pymongo import MongoClient, monitoring
from pymongo.errors import PyMongoError
from typing_extensions import override

import twinstore
from docs.parts.entities import MODULES
from tests.support.server_supervisor import HAS_ITERATIONS, QUICK_LOGIN, exclusive, run_id
from tests.support.servers import Settings, mongo_config, postgres_config, postgres_url
from twinstore import open_storage
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import module_plugin
from twinstore.scheduler.module import MODULE
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pytest

DRIVERS: Final = ("memory", "mongo", "postgres")


def without_retention(settings: Settings) -> Settings:
    """Return settings with which MongoDB never removes a row: what samples finish lies in the past."""
    return {**settings, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the environment of a process that is configured with these settings alone, as a host would."""
    inherited = {name: value for name, value in os.environ.items() if "__" not in name}
    return {**inherited, **dict(_variables(settings))}


def _variables(settings: Settings, path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _variables(cast("Settings", value), f"{path}{name}__")
        else:
            yield f"{path}{name}", str(value)


@contextmanager
def fresh_settings(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Give the settings of a store that has its schema and no row."""
    if driver == "memory":
        yield {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": f"test-{uuid4().hex}"}}}
        return
    server = request.getfixturevalue(f"{driver}_server")
    with server.migrated_database() as fresh:
        yield without_retention(fresh.config)


LEDGER: Final = "_migrations"
# More documents than this are dropped with their database faster than removed one by one.
MOST_TO_REMOVE: Final = 1_000
CHECKS: Final = 3
# Sections of the status of the server that cost more than the one that is wanted.
EXCLUDED_SECTIONS: Final = dict.fromkeys(("repl", "metrics", "locks", "wiredTiger", "tcmalloc"), 0)


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """What has to be as it was before a database is given again.

    Attributes:
        catalog: its collections and their indexes, as the server keeps them: options, identities, and
            whether an index has met an array, which changes how the server may use it ever after.
        ledger: which migrations are applied, and the lease of the last one.
    """

    catalog: list[dict[str, object]]
    ledger: list[dict[str, object]]

    @property
    def names(self) -> set[str]:
        """The names of the collections."""
        return {str(collection["name"]) for collection in self.catalog}


class MigratedDatabases:
    """The databases of this process with the schema of one module that no test holds.

    They are emptied and not dropped, which costs the server and its client a tenth of a new one.

    A test takes one from here and gives it back. What a test has changed besides its documents, whatever
    that is, is dropped with its database.
    """

    def __init__(
        self,
        client: MongoClient[dict[str, object]],
        name: Callable[[], MongoDatabase],
        module: str = "scheduler",
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Take a client of the server, what names a database that does not exist yet, and the module."""
        self._client = client
        self._name = name
        self._module = module
        self._options = options
        self._made: dict[str, DatabaseState] = {}
        self._idle: list[MongoDatabase] = []

    def take(self) -> MongoDatabase:
        """Return a migrated database without a row: it keeps what becomes old, and has a ledger of copies."""
        if self._idle:
            return self._idle.pop()
        database = self._name()
        settings = without_retention(database.config)
        with open_module(self._module, "Mongo", settings, options=self._options) as storage:
            storage.initializer.ensure_migrations()
            storage.bulk.ledger_initializer.ensure_migrations()
        self._made[database.name] = self._seen(database.name)
        return database

    def give_back(self, database: MongoDatabase) -> bool:
        """Empty a database for the next test; return whether that was possible: else it must be dropped.

        A test may create collections besides those of the migrations, if it drops them.
        """
        made, seen = self._made[database.name], self._seen(database.name)
        own = [collection for collection in seen.catalog if collection["name"] in made.names]
        if DatabaseState(own, seen.ledger) != made or not self._is_quiet() or self._is_large(database.name):
            del self._made[database.name]
            return False
        stored = self._client[database.name]
        for name in seen.names - made.names:
            stored.drop_collection(name)
        for name in made.names - {LEDGER}:
            stored[name].delete_many({})
        self._idle.append(database)
        return True

    def _is_quiet(self) -> bool:
        """Return whether at some check no transaction is open.

        That of a killed process may hold documents here until the server ends it; those of the other tests
        are short.
        """
        return any(not self._open_transactions() for _ in range(CHECKS))

    def _open_transactions(self) -> int:
        status = self._client.admin.command({"serverStatus": 1, **EXCLUDED_SECTIONS})
        return int(status["transactions"]["currentOpen"])

    def _is_large(self, name: str) -> bool:
        """Return whether a database has too many documents to remove them."""
        return bool(self._client[name].command("dbStats")["objects"] > MOST_TO_REMOVE)

    def _seen(self, name: str) -> DatabaseState:
        """Return what there is besides the documents of the entities."""
        stages: list[dict[str, object]] = [
            {"$listCatalog": {}},
            {"$match": {"db": name}},
            {"$sort": {"name": 1}},
        ]
        catalog = list(self._client.admin.aggregate(stages))
        return DatabaseState(catalog, list(self._client[name][LEDGER].find(sort=[("_id", 1)])))


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
    def complete_database(self) -> Iterator[PostgresDatabase]:
        """Create a database with the tables of every module and the ledger of copies."""
        with self.empty_database() as database:
            settings = for_every_module(database.config, "Postgres")
            migrate(settings)
            with open_storage(settings) as storage:
                storage.scheduler.bulk.ledger_initializer.ensure_migrations()
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


class StartedListener(monitoring.CommandListener):
    """Hears of a command when it is sent; :meth:`started` is the test's."""

    @override
    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Ignore it."""

    @override
    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Ignore it."""


# From this number on a migration runs on request only.
RELEASE: Final = 100


def names(
    store: str, suffix: str, *, keep_suffix: bool, module: ModuleSpec[object] = MODULE
) -> tuple[str, ...]:
    """Return the migrations that run by themselves, in their order."""
    found = sorted(item.name for item in module.migrations(store).iterdir() if item.name.endswith(suffix))
    shipped = (name for name in found if int(name[:3]) < RELEASE)
    return tuple(name if keep_suffix else name.removesuffix(suffix) for name in shipped)


POSTGRES_FILES: Final = names("postgres", ".sql", keep_suffix=True)
MONGO_STEPS: Final = names("mongo", ".json", keep_suffix=False)
LEDGER_FILES: Final = names("postgres", ".sql", keep_suffix=True, module=LEDGER_MODULE)


def for_every_module(config: Settings, driver: str) -> Settings:
    """Return settings in which the driver of a database answers for every module."""
    switches = {module_plugin(module.name).settings.section: driver for module in MODULES}
    section = config["Persistence"]
    assert isinstance(section, dict)
    return {"Persistence": {**section, **switches}}


def migrate(settings: Settings) -> None:
    """Make everything of every module."""
    with open_storage(settings) as storage:
        for module in MODULES:
            storage.module(module.name).initializer.ensure_migrations()
