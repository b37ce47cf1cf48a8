"""The databases and the directory that the modules are loaded into, and the command line over them."""

from __future__ import annotations

import json
import shutil
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from pymongo import MongoClient

import twinstore_embedded
from benchmarks.children import run_child
from benchmarks.cli_cases import fast_part
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.catalog.entity import Entity

__all__ = ["Order", "Stores", "Timed", "open_stores"]

FILESYSTEM: Final = "Filesystem"


@dataclass(frozen=True, slots=True)
class Timed:
    """What the command line reported about one entity."""

    rows: int
    seconds: float
    peak_bytes: int | None

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


@dataclass(frozen=True, slots=True)
class Order:
    """A command about one entity, and the content of its report after the run."""

    command: str
    arguments: list[str]
    out: Path

    def report(self) -> dict[str, Any]:
        """Return the report."""
        name = "backfill-report.json" if self.command == "copy" else "parity-report.json"
        report: dict[str, Any] = json.loads((self.out / name).read_text(encoding="utf-8"))
        return report

    def rows(self) -> int:
        """Return how many rows were read, or proved equal."""
        report = self.report()
        return int(report["totals"]["read"] if self.command == "copy" else report["documents_equal"])

    def seconds(self) -> float:
        """Return how long the work took, without the start of a process."""
        return float(self.report()["envelope"]["seconds"])

    def fast(self) -> float | None:
        """Return the part of the rows that native code moved or compared, if the report has it."""
        return fast_part(self.report())


@dataclass(frozen=True, slots=True)
class Stores:
    """Both servers with one database, and a directory.

    Attributes:
        servers: the embedded servers.
        directory: where the files of the benchmark are.
        database: the name of the database on both servers.
        returning: whether MongoDB is the target of the reverse migration, in a separate database.
    """

    servers: twinstore_embedded.Servers
    directory: Path
    database: str
    returning: bool = False

    def empty(self) -> None:
        """Recreate all databases, and remove the directory of the filesystem driver."""
        shutil.rmtree(self.root, ignore_errors=True)
        for stores in (self, replace(self, returning=True)):
            stores.drop_mongo()
        self.create_postgres("template0")

    def drop_mongo(self) -> None:
        """Remove the database on MongoDB."""
        with closing(MongoClient[dict[str, Any]](self.servers.mongo.url)) as client:
            client.drop_database(self.mongo_database)

    def create_postgres(self, template: str) -> None:
        """Recreate the database on PostgreSQL, as a copy of another one."""
        with closing(psycopg.connect(self.servers.postgres.superuser_url(), autocommit=True)) as admin:
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            admin.execute(drop.format(sql.Identifier(self.database)))
            create = sql.SQL("CREATE DATABASE {} OWNER twinstore_owner TEMPLATE {}")
            admin.execute(create.format(sql.Identifier(self.database), sql.Identifier(template)))
            admin.execute("CHECKPOINT")

    @property
    def mongo_database(self) -> str:
        """The name of the database on MongoDB."""
        return f"{self.database}_return" if self.returning else self.database

    @property
    def root(self) -> Path:
        """The directory of the filesystem driver."""
        return self.directory / f"{self.database}.files"

    def settings(self, section: str, driver: str) -> dict[str, Any]:
        """Return the settings of one module; ``driver`` is the one that answers."""
        postgres = self.servers.postgres
        return {
            "Persistence": {
                section: driver,
                "Mongo": {"ConnectionString": self.servers.mongo.url, "Database": self.mongo_database},
                "Postgres": {
                    "ConnectionString": postgres.app_url(database=self.database),
                    "OwnerConnectionString": postgres.owner_url(database=self.database),
                },
            },
            "TaskRunner": {"Storage": {FILESYSTEM: {"Root": str(self.root)}}},
        }

    def migrate(self, module: str, section: str, driver: str) -> None:
        """Create the schema of a module on one driver."""
        with open_module(module, config=self.settings(section, driver)) as storage:
            storage.initializer.ensure_migrations()

    def raw_mongo(self, entity: Entity) -> float:
        """Return the rows per second of a scan of raw batches, which decodes nothing."""
        with closing(MongoClient[dict[str, Any]](self.servers.mongo.url)) as client:
            collection = client[self.mongo_database][entity.collection]
            rows, began = collection.estimated_document_count(), perf_counter()
            for _ in collection.find_raw_batches():
                pass
            return rows / (perf_counter() - began)

    def raw_postgres(self, entity: Entity) -> float:
        """Return the rows per second of a binary COPY out of the table, which decodes nothing."""
        name = sql.Identifier(entity.module, entity.name)
        with closing(self.superuser()) as connection, connection.cursor() as cursor:
            began = perf_counter()
            with cursor.copy(sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(name)) as rows:
                for _ in rows:
                    pass
            return cursor.rowcount / (perf_counter() - began)

    def superuser(self) -> psycopg.Connection:
        """Connect to the database on PostgreSQL as superuser."""
        return psycopg.connect(self.servers.postgres.superuser_url(database=self.database), autocommit=True)

    def vacuum(self) -> None:
        """Bring statistics and visibility up to date, as autovacuum does a minute after a load."""
        with closing(self.superuser()) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def run(self, command: str, entity: Entity, section: str, source: str, target: str) -> Timed:
        """Copy or verify one entity with the command line, as a user does, and return what it took."""
        order = self.order(command, entity, section, source, target)
        child = run_child(order.arguments, expected=0)
        return Timed(order.rows(), order.seconds(), child.peak_bytes)

    def order(self, command: str, entity: Entity, section: str, source: str, target: str) -> Order:
        """Return the command that copies or verifies one entity, with its settings written and no report."""
        config = self.directory / f"{self.database}.json"
        config.touch(mode=0o600)
        config.write_text(json.dumps(self.settings(section, target)), encoding="utf-8")
        out = self.directory / "out" / f"{command}-{entity.name}-{source}-{target}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        words = ["backfill", command, "--module", entity.module, "--from", source, "--to", target]
        words += ["--source-config", str(config), "--target-config", str(config)]
        words += ["--entity", entity.name, "--jobs", "2", "--out", str(out), "--format", "json"]
        if command == "copy":
            words.append("--execute")
        return Order(command, words, out)


@contextmanager
def open_stores(directory: Path, database: str) -> Iterator[Stores]:
    """Start both servers; stop them at the end. What they hold stays in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with twinstore_embedded.servers(directory / "servers") as servers:
        yield Stores(servers, directory, database)
