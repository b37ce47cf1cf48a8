"""How often a call waits for the server, counted by a proxy that sees what is really sent."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

import twinstore
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import (
    make_audit_record,
    make_impact_set,
    make_run,
    make_run_summary,
    make_schedule,
    moved,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.databases import PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage

PORT: Final = "5432"
CHUNK: Final = 65536
# The messages of the protocol that ask for an answer at once.
SYNC: Final = b"S"
QUERY: Final = b"Q"


class Messages:
    """Counts, in what one client sends, the messages after which it waits for the server."""

    def __init__(self) -> None:
        self.waits = 0
        self._rest = b""
        self._started = False

    def feed(self, data: bytes) -> None:
        """Take what the client sent; all messages but the first have a type, and a length counts itself."""
        self._rest += data
        while True:
            head = 1 if self._started else 0
            if len(self._rest) < head + 4:
                return
            end = head + int.from_bytes(self._rest[head : head + 4])
            if len(self._rest) < end:
                return
            self.waits += self._started and self._rest[:1] in {SYNC, QUERY}
            self._started, self._rest = True, self._rest[end:]


class Proxy:
    """Proxies clients to the server and counts how often they wait for it."""

    def __init__(self, parts: dict[str, str]) -> None:
        self._parts = parts
        self._messages: list[Messages] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def turns(self) -> int:
        """Return how often a client has waited so far."""
        return sum(item.waits for item in self._messages)

    @property
    def port(self) -> int:
        """The port at which it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop; every connection was closed by its client before."""
        # A listener that is only closed would leave its thread in accept.
        with closing(socket.create_connection(("127.0.0.1", self.port))):
            pass
        for thread in self._threads:
            thread.join(30)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            first = client.recv(CHUNK)
            if not first:
                client.close()
                return
            server, messages = self._connect(), Messages()
            self._messages.append(messages)
            messages.feed(first)
            server.sendall(first)
            for pair in ((client, server, messages), (server, client, None)):
                self._threads.append(Thread(target=pump, args=pair, daemon=True))
                self._threads[-1].start()

    def _connect(self) -> socket.socket:
        host, port = self._parts["host"], self._parts.get("port", PORT)
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{host}/.s.PGSQL.{port}")
        return connection


def pump(source: socket.socket, sink: socket.socket, messages: Messages | None) -> None:
    """Hand on what one side says until it ends; count before the other side can hear it."""
    with closing(source), suppress(OSError):  # the other side may be faster to close
        while data := source.recv(CHUNK):
            if messages is not None:
                messages.feed(data)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def proxy(module_postgres_database: PostgresDatabase) -> Iterator[Proxy]:
    with closing(
        Proxy({k: str(v) for k, v in conninfo_to_dict(module_postgres_database.app_url).items()})
    ) as made:
        yield made


@pytest.fixture(scope="module")
def storage(module_postgres_database: PostgresDatabase, proxy: Proxy) -> Iterator[SchedulerStorage]:
    parts = conninfo_to_dict(module_postgres_database.app_url)
    user, password = (quote(str(parts[name]), safe="") for name in ("user", "password"))
    url = f"postgresql://{user}:{password}@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
    settings = {"Persistence": {"Postgres": {"ConnectionString": url, "PoolMax": 1}}}
    with twinstore.add_scheduler_postgres_storage(settings) as opened:
        yield opened


def later(storage: SchedulerStorage, tenant: str) -> None:
    schedule = storage.schedules.get_required(tenant, f"s@{tenant}")
    storage.schedules.upsert(schedule.evolve(updated_at=schedule.updated_at + timedelta(seconds=1)))


CALLS: Final[dict[str, tuple[int, Callable[[SchedulerStorage, str], object]]]] = {
    "get": (1, lambda s, t: s.runs.get(t, f"r@{t}")),
    "get by a unique value": (1, lambda s, t: s.triggers.get(t, f"s@{t}")),
    "list": (1, lambda s, t: s.runs.list(t)),
    "due": (1, lambda s, _: s.schedules.get_due_schedules(at(0))),
    "insert": (1, lambda s, t: s.runs.create(make_run(t, f"new@{t}"))),
    "put a new row": (1, lambda s, t: s.impact_snapshots.upsert(t, make_impact_set(snapshot_id=f"new@{t}"))),
    "put an equal row": (1, lambda s, t: s.impact_snapshots.upsert(t, make_impact_set(snapshot_id=f"i@{t}"))),
    "put another row": (
        1,
        lambda s, t: s.impact_snapshots.upsert(t, make_impact_set(snapshot_id=f"i@{t}", generated_at=at(9))),
    ),
    "put a row under an own key": (1, lambda s, t: s.run_summaries.upsert(make_run_summary(t, f"s@{t}"))),
    "put a row that never changes": (1, lambda s, t: s.audit.append(make_audit_record(t, f"new@{t}"))),
    "put it again": (2, lambda s, t: s.audit.append(make_audit_record(t, f"a@{t}"))),
    "remove": (1, lambda s, t: s.impact_snapshots.delete(t, f"i@{t}")),
    "purge": (2, lambda s, t: s.runs.purge_finished(at(99), tenant_id=t)),
    # Twice a get, which the test needs to know what it changes.
    "change": (3, lambda s, t: s.runs.update(moved(s.runs.get_required(t, f"r@{t}"), RunState.CANCELLED))),
    "change two rows": (3, later),
    "insert two rows": (2, lambda s, t: s.schedules.upsert(make_schedule(t, f"new@{t}", name="new"))),
    # A look at the trigger, the locks of schedule, trigger and run, and all writes with the commit.
    "fire": (3, lambda s, t: s.triggers.fire(t, f"s@{t}", at(10**6))),
    "fire what is not due": (1, lambda s, t: s.triggers.fire(t, f"s@{t}", at(0))),
    "change nothing": (2, lambda s, t: s.schedules.restore(t, f"s@{t}", "eve", at(9))),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_waits_as_often_as_it_must(
    storage: SchedulerStorage, proxy: Proxy, tenant: str, name: str
) -> None:
    storage.schedules.upsert(make_schedule(tenant, f"s@{tenant}"))
    storage.runs.create(make_run(tenant, f"r@{tenant}"))
    storage.runs.update(moved(storage.runs.create(make_run(tenant, f"done@{tenant}")), RunState.CANCELLED))
    storage.audit.append(make_audit_record(tenant, f"a@{tenant}"))
    storage.impact_snapshots.upsert(tenant, make_impact_set(snapshot_id=f"i@{tenant}"))
    turns, call = CALLS[name]
    before = proxy.turns
    call(storage, tenant)
    assert proxy.turns - before == turns


def test_inside_a_unit_nothing_is_committed_in_between(
    storage: SchedulerStorage, proxy: Proxy, tenant: str
) -> None:
    storage.schedules.upsert(make_schedule(tenant, f"s@{tenant}"))
    before = proxy.turns
    with storage.transaction(tenant) as unit:
        schedule = unit.schedules.get_required(tenant, f"s@{tenant}")
        unit.schedules.upsert(schedule.evolve(updated_at=schedule.updated_at + timedelta(seconds=1)))
    # One for the read, which begins the transaction; one to lock, one to write, one to commit.
    assert proxy.turns - before == 4
