"""Stores for commands that end in every way: good ones, and settings with which something is wrong."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from psycopg.conninfo import conninfo_to_dict
from pymongo import MongoClient

from tests.backfill.toolkit import Pair, fill, open_store, write_config
from tests.contract.deployments.wire import connected, end_all
from tests.servers import postgres_url
from twinstore.config import load_settings
from twinstore_backfill.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.contract.deployments.wire import Address
    from tests.databases import MongoDatabase, PostgresDatabase

__all__ = ["Proxy", "Stores", "prepared"]

PATIENCE: Final = 60
TENANTS: Final = ("acme", "broken", "surplus", "umbrella")
NO_MONGO: Final = {
    "ConnectionString": "mongodb://127.0.0.1:1/?directConnection=true",
    "ServerSelectionTimeoutMs": 200,
}
# In a statement of every copy and verification, and of nothing before them.
MARKER: Final = b"impact_snapshots"


@dataclass(frozen=True, slots=True)
class Stores:
    """Settings files by what is wrong with them, and the proxy of ``held``."""

    configs: Mapping[str, Path]
    held: Proxy


class Proxy:
    """Passes connections on to a server until a client sends the marker; then it holds or cuts them."""

    def __init__(self, target: Address, *, cut: bool) -> None:
        self.reached, self.go_on = Event(), Event()
        self._target, self._cut = target, cut
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut every connection and take no more."""
        self._closed = True
        self.go_on.set()
        end_all(self._listener, *self._sockets)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = connected(self._target)
                except OSError:
                    client.close()
                    raise
                self._sockets += [client, server]
                if self._closed:  # meanwhile
                    end_all(client, server)
                    return
                Thread(target=self._pass, args=(client, server), daemon=True).start()
                Thread(target=self._pass, args=(server, client, b"-"), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, unless: bytes = b"") -> None:
        with suppress(OSError):
            while chunk := source.recv(65_536):
                if not unless and MARKER in chunk:
                    self.reached.set()
                    if self._cut:
                        self.close()
                        return
                    self.go_on.wait(PATIENCE)
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def prepared(
    mongo: MongoDatabase, postgres: PostgresDatabase, empty: PostgresDatabase, directory: Path
) -> Iterator[Stores]:
    """Yield stores of four tenants.

    ``acme`` is equal, ``umbrella`` differs, ``broken`` has a document that no copy takes, and of ``surplus``
    the target has a row more.
    """
    good = {"Mongo": _section(mongo, "Mongo"), "Postgres": _section(postgres, "Postgres")}
    config = _written(directory, "good", good)
    _fill(config, mongo)
    _report(config)
    with ExitStack() as stack:
        proxies = {
            name: Proxy(_address(postgres), cut=name != "held") for name in ("cut-copy", "cut-verify", "held")
        }
        for proxy in proxies.values():
            stack.callback(proxy.close)
        ports = {name: proxy.port for name, proxy in proxies.items()} | {"no-postgres": 1}
        superuser = {**good["Postgres"], "ConnectionString": postgres.superuser_url}
        bad: dict[str, dict[str, Any]] = {
            "no-mongo": {**good, "Mongo": {**good["Mongo"], **NO_MONGO}},
            "superuser": {**good, "Postgres": superuser},
            "empty": {**good, "Postgres": _section(empty, "Postgres")},
            **{name: {**good, "Postgres": _through(good["Postgres"], port)} for name, port in ports.items()},
        }
        configs = {name: _written(directory, name, sections) for name, sections in bad.items()}
        yield Stores({"good": config, **configs}, proxies["held"])


def _section(database: MongoDatabase | PostgresDatabase, name: str) -> dict[str, Any]:
    sections: Any = database.config["Persistence"]
    found: dict[str, Any] = sections[name]
    return found


def _written(directory: Path, name: str, sections: Mapping[str, object]) -> Path:
    keep = {"Storage": {"RunRetentionDays": 0}}
    return write_config(directory / f"{name}.json", {"Persistence": sections, "Scheduler": keep})


def _fill(config: Path, mongo: MongoDatabase) -> None:
    settings = load_settings(config, environ={})
    with (
        open_store("scheduler", "mongo", settings) as source,
        open_store("scheduler", "postgres", settings) as target,
    ):
        source.storage.initializer.ensure_migrations()
        fill(source.storage, TENANTS)
        Pair(source, target, config.parent / "copied").copy()
        first = target.storage.schedules.list("umbrella")[0]
        target.storage.schedules.upsert(first.evolve(name="Renamed"))
    with MongoClient[dict[str, Any]](mongo.url) as client:
        runs = client[mongo.name]["runs"]
        document = runs.find_one({"tenantId": "broken"}) or {}
        client[mongo.name]["audit"].delete_one({"tenantId": "surplus"})
        runs.insert_one({**document, "_id": "bad", "state": "x"}, bypass_document_validation=True)


def _report(config: Path) -> None:
    """Write what a verification of the good stores finds."""
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
    command = ("--config", config, "backfill", "verify", *sides, "--out", config.parent / "report")
    main([str(word) for word in (*command, "--format", "json")])


def _address(database: PostgresDatabase) -> Address:
    server = conninfo_to_dict(database.app_url)
    host, port = str(server.get("host") or "127.0.0.1"), int(server.get("port") or 5432)
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def _through(section: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Return settings that reach PostgreSQL by a port of this host."""
    urls = ("ConnectionString", "OwnerConnectionString")
    return {
        **section,
        **{name: postgres_url(section[name], host="127.0.0.1", port=str(port)) for name in urls},
    }
