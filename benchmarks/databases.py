"""The servers of a benchmark, its databases, and the settings files that name them."""

from __future__ import annotations

import json
import secrets
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from pymongo import MongoClient

import twinstore
import twinstore_embedded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.collection import Collection

__all__ = ["SOURCE", "BenchmarkDatabases", "open_databases"]

SOURCE: Final = "twinstore_bench"
RETURN: Final = "twinstore_bench_return"
BULK: Final = "twinstore_bench_bulk"
EMPTY: Final = (
    "TRUNCATE scheduler.runs, scheduler.execution_logs, scheduler.backfill_ranges, scheduler.backfill_jobs"
)


@dataclass(frozen=True, slots=True)
class BenchmarkDatabases:
    """A mongod and a PostgreSQL with empty, migrated databases.

    Attributes:
        servers: both servers.
        client: a client with pymongo's defaults.
        mongo_url, app_url, owner_url: how a user of the library connects.
        superuser_url: how the raw limit connects; COPY into a table under row-level security is refused.
        directory: where settings files and reports go.
        source: the name of the database on MongoDB that is copied.
        bulk_url: how a copy connects that writes past row-level security, ``None`` where it does not.
    """

    servers: twinstore_embedded.Servers
    client: MongoClient[dict[str, Any]]
    mongo_url: str
    app_url: str
    owner_url: str
    superuser_url: str
    directory: Path
    source: str = SOURCE
    bulk_url: str | None = None

    def runs(self, *, back: bool = False) -> Collection[dict[str, Any]]:
        """Return the runs in MongoDB: the source, or the target of the reverse migration."""
        return self.client[RETURN if back else self.source]["runs"]

    def superuser(self) -> psycopg.Connection:
        """Connect to the database of the benchmark as superuser."""
        return psycopg.connect(self.superuser_url, autocommit=True)

    def settings(self, driver: str = "Mongo", *, back: bool = False) -> dict[str, Any]:
        """Return the settings of both drivers; ``driver`` is the one that answers."""
        mongo = {"ConnectionString": self.mongo_url, "Database": RETURN if back else self.source}
        postgres = {"ConnectionString": self.app_url, "OwnerConnectionString": self.owner_url}
        if self.bulk_url is not None:
            postgres["BulkConnectionString"] = self.bulk_url
        return {"Persistence": {"Scheduler": driver, "Mongo": mongo, "Postgres": postgres}}

    def settings_file(self, *, back: bool = False) -> Path:
        """Write the settings for the command line, readable by this user only."""
        name = "bulk" if self.bulk_url else "source"
        path = self.directory / ("return.json" if back else f"{name}.json")
        path.touch(mode=0o600)
        path.write_text(json.dumps(self.settings(back=back)), encoding="utf-8")
        return path

    def empty_postgres(self) -> None:
        """Remove the runs and everything a copy remembers; leave no dirty pages to the next case."""
        with closing(self.superuser()) as connection:
            connection.execute(EMPTY)
            connection.execute("CHECKPOINT")

    def vacuum_postgres(self) -> None:
        """Bring statistics and visibility up to date, as autovacuum does a minute after a load."""
        with closing(self.superuser()) as connection:
            connection.execute("VACUUM ANALYZE scheduler.runs")
            connection.execute("CHECKPOINT")

    def with_bulk_role(self) -> BenchmarkDatabases:
        """Return the same databases with a role for copies that no policy binds."""
        password = secrets.token_hex(16)
        with closing(self.superuser()) as connection:
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(BULK)))
            create = sql.SQL("CREATE ROLE {} LOGIN BYPASSRLS PASSWORD {} IN ROLE twinstore_app")
            connection.execute(create.format(sql.Identifier(BULK), sql.Literal(password)))
        place = self.superuser_url.rpartition("@")[2]
        return replace(self, bulk_url=f"postgresql://{BULK}:{password}@{place}")

    def empty_source(self, database: str) -> BenchmarkDatabases:
        """Return the same databases with a source of their own, which is empty."""
        taken = replace(self, source=database)
        self.client.drop_database(database)
        self._migrate(taken.settings())
        return taken

    def take_from(self, database: str, count: int) -> BenchmarkDatabases:
        """Return the same databases with a source of their own, which has the first runs of this one."""
        taken = self.empty_source(database)
        into = {"into": {"db": database, "coll": "runs"}, "whenMatched": "fail"}
        self.runs().aggregate([{"$limit": count}, {"$merge": into}])
        return taken

    def empty_mongo(self) -> None:
        """Recreate the target of the reverse migration, with its validators and indexes."""
        self.client.drop_database(RETURN)
        self._migrate(self.settings(back=True))

    def _prepare(self, admin_url: str, database: str) -> None:
        for name in (SOURCE, RETURN):
            self.client.drop_database(name)
        with closing(psycopg.connect(admin_url, autocommit=True)) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))
            create = sql.SQL("CREATE DATABASE {} OWNER twinstore_owner TEMPLATE template0")
            admin.execute(create.format(sql.Identifier(database)))
        for driver in ("Mongo", "Postgres"):
            self._migrate(self.settings(driver))

    @staticmethod
    def _migrate(settings: dict[str, Any]) -> None:
        with twinstore.open_storage(settings) as storage:
            storage.scheduler.initializer.ensure_migrations()


@contextmanager
def open_databases(directory: Path, *, durable: bool) -> Iterator[BenchmarkDatabases]:
    """Start both servers with fresh databases; stop them at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    with (
        twinstore_embedded.servers(directory / "servers", durable=durable) as servers,
        closing(MongoClient[dict[str, Any]](servers.mongo.url)) as client,
    ):
        databases = BenchmarkDatabases(
            servers=servers,
            client=client,
            mongo_url=servers.mongo.url,
            app_url=servers.postgres.app_url(database=SOURCE),
            owner_url=servers.postgres.owner_url(database=SOURCE),
            superuser_url=servers.postgres.superuser_url(database=SOURCE),
            directory=directory,
        )
        databases._prepare(servers.postgres.superuser_url(), SOURCE)  # noqa: SLF001  # its own factory
        yield databases
