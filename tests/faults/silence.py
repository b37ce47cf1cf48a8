"""Servers of a test's own that fall silent: frozen as a host that hangs, with all their processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg

import twinstore_embedded
from tests.servers import mongo_config, postgres_config
from tests.stores import kept
from twinstore_embedded.postgres import find_postgres_server
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.servers import Settings
    from twinstore_embedded import MongoServer, PostgresServer

__all__ = [
    "Ended",
    "await_none_connected",
    "connected_to",
    "ended_together",
    "frozen",
    "mongo_of_its_own",
    "most_connections",
    "postgres_of_its_own",
    "settings_of",
    "timed",
]

# Calls that hang are what these tests look for: they end the test, not the run.
HANGING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: after how many seconds, and with which error."""

    seconds: float
    error: BaseException | None

    def __str__(self) -> str:
        """Name the error."""
        return f"{self.seconds:.1f} s, {type(self.error).__name__}: {self.error}"


def timed(call: Callable[[], object]) -> Ended:
    """Make a call, and return how it ended."""
    begun = time.monotonic()
    try:
        call()
    except Exception as error:  # noqa: BLE001  # the test judges it
        return Ended(time.monotonic() - begun, error)
    return Ended(time.monotonic() - begun, None)


def ended_together(calls: Mapping[str, Callable[[], object]]) -> dict[str, Ended]:
    """Make calls at once, each on a thread of its own, and return how each of them ended."""
    pool = ThreadPoolExecutor(len(calls))
    try:
        begun = {name: pool.submit(timed, call) for name, call in calls.items()}
        return {name: future.result(HANGING_SECONDS) for name, future in begun.items()}
    finally:
        pool.shutdown(wait=False)


@contextmanager
def frozen(server: PostgresServer | MongoServer) -> Iterator[None]:
    """Freeze a server, its first process and all others, for the length of the block."""
    # A server that was started anew has another number.
    found = find_postgres_server(server.home.parent) or server
    first = psutil.Process(found.pid)
    first.suspend()
    # No more come, because the first one makes them.
    others = first.children(recursive=True)
    try:
        for other in others:
            other.suspend()
        yield
    finally:
        for process in (*others, first):
            process.resume()


@contextmanager
def postgres_of_its_own() -> Iterator[PostgresServer]:
    """Run a PostgreSQL for the length of the block."""
    with _directory() as directory:
        yield twinstore_embedded.start_postgres(directory, durable=False, owned=True)


@contextmanager
def mongo_of_its_own() -> Iterator[MongoServer]:
    """Run a replica set of one node for the length of the block."""
    with _directory() as directory:
        yield twinstore_embedded.start_mongo(directory, owned=True)


@contextmanager
def _directory() -> Iterator[Path]:
    # Not tmp_path: pytest closes its parents to the user that PostgreSQL runs as under root.
    directory = Path(tempfile.mkdtemp(prefix="twinstore-silence-"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        twinstore_embedded.stop(directory)
        shutil.rmtree(directory)


def settings_of(server: PostgresServer | MongoServer, **changes: object) -> Settings:
    """Return the settings of a store on a server, with some of its section changed."""
    if isinstance(server, twinstore_embedded.MongoServer):
        settings, section = mongo_config(server.url, "silence"), "Mongo"
    else:
        quick = "?connect_timeout=2"
        settings = postgres_config(server.app_url() + quick, server.owner_url() + quick)
        section = "Postgres"
    persistence = settings["Persistence"]
    assert isinstance(persistence, dict)
    persistence[section] |= changes
    persistence["Tracking"] = section
    return kept(settings)


@contextmanager
def most_connections(server: PostgresServer, role: str) -> Iterator[list[int]]:
    """Count the connections of a role again and again; at the end the list holds the highest number."""
    highest = [0]
    counting = True

    def look(admin: psycopg.Connection[tuple[int]]) -> int:
        found = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", (role,)).fetchone()
        return 0 if found is None else found[0]

    def count() -> None:
        with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
            while counting:
                highest[0] = max(highest[0], look(admin))

    with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
        # Those of the test before end a moment after it.
        assert wait_until(lambda: look(admin) == 0, HANGING_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(count)
        try:
            yield highest
        finally:
            counting = False
            counted.result(HANGING_SECONDS)


def await_none_connected(server: PostgresServer | MongoServer) -> None:
    """Wait until this process has no connection to a server: those of a test end a moment after it."""
    assert wait_until(lambda: connected_to(server) == 0, HANGING_SECONDS)


def connected_to(server: PostgresServer | MongoServer) -> int:
    """Return how many connections this process has to a server; those that it has closed linger there."""
    found = psutil.Process().net_connections("tcp4")
    return sum(one.status == "ESTABLISHED" and one.raddr[1:] == (server.port,) for one in found)
