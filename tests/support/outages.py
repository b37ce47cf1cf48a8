"""Servers of a test's own that are restarted, killed and stepped down in the middle of calls.

Also a row that another client has locked, and a file of JSON lines that several processes append to, any of
which may be killed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import psycopg
from pymongo import MongoClient
from typing_extensions import override

import twinstore_embedded
from tests.support.databases import without_retention
from tests.support.servers import mongo_config, postgres_config
from twinstore.errors import UnavailableError
from twinstore_embedded import Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings
    from twinstore_embedded import MongoSet, PostgresServer

IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the directory made there has a unique name
DATABASE: Final = "outages"
# Several heartbeats.
ELECTION_MS: Final = 1000
# Shorter than an election takes, so that calls meet one as well as outlast it.
SELECTION_MS: Final = 1000


class Outages(Protocol):
    """A server, and what may happen to it."""

    @property
    def settings(self) -> Settings:
        """Those of a store on it."""
        ...

    @property
    def kinds(self) -> Mapping[str, Callable[[Callable[[], object]], None]]:
        """What may happen, by name.

        Each ends when the server serves again. It calls what it is given while the server is away, or while
        a member is.
        """
        ...


class PostgresOutages(Outages):
    """A PostgreSQL that is shut down or killed, and started again."""

    def __init__(self, server: PostgresServer) -> None:
        """Take a server that keeps what it confirmed over a crash."""
        self._server = server

    @property
    def settings(self) -> Settings:
        """Those of a store on it."""
        return without_retention(postgres_config(self._server.app_url(), self._server.owner_url()))

    @property
    def kinds(self) -> Mapping[str, Callable[[Callable[[], object]], None]]:
        """Fast and immediate shutdown, and the death of the postmaster."""
        return {how.name.lower(): partial(self._restart, how) for how in Shutdown}

    def _restart(self, how: Shutdown, meanwhile: Callable[[], object]) -> None:
        self._server.halt(how)
        meanwhile()
        self._server.resume()


class MongoOutages(Outages):
    """A replica set of three whose primary steps down or is killed, or which is killed as a whole."""

    def __init__(self, members: MongoSet) -> None:
        """Take the set."""
        self._set = members

    @property
    def settings(self) -> Settings:
        """Those of a store on it."""
        settings = mongo_config(f"{self._set.url}&serverSelectionTimeoutMS={SELECTION_MS}", DATABASE)
        return without_retention(settings)

    @property
    def kinds(self) -> Mapping[str, Callable[[Callable[[], object]], None]]:
        """A step down, the death of the primary, and that of all members."""
        return {
            "stepped down": self._step_down,
            "primary killed": self._lose_primary,
            "all killed": self._lose_all,
        }

    def _step_down(self, meanwhile: Callable[[], object]) -> None:
        await_all(self._set)
        self._set.step_down()
        meanwhile()
        self._set.primary()

    def _lose_primary(self, meanwhile: Callable[[], object]) -> None:
        await_all(self._set)
        lost = self._set.primary()
        self._set.halt(lost)
        meanwhile()
        self._set.primary()
        # After the others have gone on without it, so that it has to follow them.
        self._set.resume(lost)

    def _lose_all(self, meanwhile: Callable[[], object]) -> None:
        await_all(self._set)
        numbers = range(len(self._set.ports))
        for number in numbers:
            self._set.halt(number)
        meanwhile()
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._set.resume, numbers))
        self._set.primary()


def await_all(members: MongoSet) -> None:
    """Wait until every member follows the primary; start one that hangs again, as its operator would.

    mongod 6.0.5 sometimes never ends a rollback after ``Rolling back to the stable timestamp``.

    Raises:
        UnavailableError: a member does not follow although it was started again.
    """
    try:
        members.await_all()
    except UnavailableError:
        for number, port in enumerate(members.ports):
            with MongoClient[dict[str, Any]](port=port, directConnection=True) as client:
                state = client.admin.command("hello")
            if not state["secondary"] and not state["isWritablePrimary"]:
                sys.stderr.write(f"Member {number} of the replica set hangs and is started again.\n")
                members.halt(number)
                members.resume(number)
        members.await_all()


@contextmanager
def outages_of(driver: str, *, election_ms: int = ELECTION_MS) -> Iterator[Outages]:
    """Run a server of this driver for the length of the block, its data in memory where there is room.

    Args:
        driver: whose server.
        election_ms: how long a primary may be silent; on a busy machine one that lives may be for a second.
    """
    parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with server_directory("outages", parent) as directory:
        if driver == "mongo":
            members = twinstore_embedded.start_mongo_set(directory, election_ms=election_ms, owned=True)
            yield MongoOutages(members)
        else:
            yield PostgresOutages(twinstore_embedded.start_postgres(directory, owned=True))


@contextmanager
def server_directory(name: str, parent: Path | None = None) -> Iterator[Path]:
    """Give a directory for servers, which are stopped at the end."""
    # Not tmp_path: pytest closes its parents to the user that PostgreSQL runs as under root.
    directory = Path(tempfile.mkdtemp(prefix=f"twinstore-{name}-", dir=parent))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        twinstore_embedded.stop(directory)
        shutil.rmtree(directory)


def opened(path: Path) -> int:
    """Return the file for appending."""
    return os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)


def append_line(file: int, content: object) -> None:
    """Append a line.

    The system writes page by page, so a killed process may leave the beginning of a line. Every line also
    begins with a line feed, so that such a rest is a separate line and does not spoil another.
    """
    os.write(file, b"\n" + json.dumps(content).encode() + b"\n")


def whole_lines(path: Path) -> tuple[list[Any], int]:
    """Return the lines that are whole, and how many are not."""
    found: list[Any] = []
    torn = 0
    for text in filter(None, path.read_bytes().splitlines()):
        try:
            found.append(json.loads(text))
        except ValueError:
            torn += 1
    return found, torn


TIMEOUT_SECONDS: Final = 30.0
NAME: Final = "twinstore-test-calls"
ACTIVITY: Final = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND state = ANY (%s)"


class LockedRows(Protocol):
    """The side of the server."""

    def settings(self, **changes: object) -> Settings:
        """Return settings whose calls the server can distinguish from those of others."""
        ...

    def locked(self, run_id: str) -> AbstractContextManager[None]:
        """Lock a run for the length of the block."""
        ...

    def active_calls(self) -> int:
        """Return how many calls the server works on or waits with at this moment."""
        ...

    def open_transactions(self) -> int:
        """Return how many transactions of such calls are open."""
        ...


class PostgresRows(LockedRows):
    """On PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @override
    def settings(self, **changes: object) -> Settings:
        found = self._database.config["Persistence"]
        assert isinstance(found, dict)
        url = (
            f"{self._database.app_url}{'&' if '?' in self._database.app_url else '?'}application_name={NAME}"
        )
        postgres = {**found["Postgres"], "ConnectionString": url, "PoolMin": 0, **changes}
        return {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}

    @contextmanager
    @override
    def locked(self, run_id: str) -> Iterator[None]:
        with psycopg.connect(self._database.superuser_url) as connection, connection.transaction():
            connection.execute("SELECT 1 FROM scheduler.runs WHERE id = %s FOR UPDATE", (run_id,))
            yield

    @override
    def active_calls(self) -> int:
        return self._count("active")

    @override
    def open_transactions(self) -> int:
        return self._count("active", "idle in transaction", "idle in transaction (aborted)")

    def connections(self) -> int:
        """Return how many connections the calls have."""
        return self._count("active", "idle", "idle in transaction", "idle in transaction (aborted)")

    def _count(self, *states: str) -> int:
        with psycopg.connect(self._database.superuser_url, autocommit=True) as connection:
            found = connection.execute(ACTIVITY, (NAME, list(states))).fetchone()
        assert found is not None
        return int(found[0])


class MongoRows(LockedRows):
    """On MongoDB."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database

    @override
    def settings(self, **changes: object) -> Settings:
        del changes  # of PostgreSQL
        url = f"{self._database.url}{'&' if '?' in self._database.url else '/?'}appname={NAME}"
        mongo = {"ConnectionString": url, "Database": self._database.name}
        return {
            "Persistence": {"Scheduler": "Mongo", "Mongo": mongo},
            "Scheduler": {"Storage": {"RunRetentionDays": 0}},
        }

    @contextmanager
    @override
    def locked(self, run_id: str) -> Iterator[None]:
        with (
            MongoClient[dict[str, object]](self._database.url) as client,
            client.start_session() as session,
            session.start_transaction(),
        ):
            runs = client[self._database.name]["runs"]
            runs.update_one({"_id": run_id}, {"$inc": {"_version": 1}}, session=session)
            yield
            session.abort_transaction()

    @override
    def active_calls(self) -> int:
        return len(
            self._operations({"type": "op", "active": True, "ns": {"$regex": f"^{self._database.name}\\."}})
        )

    @override
    def open_transactions(self) -> int:
        return len(self._operations({"transaction": {"$exists": True}}))

    def _operations(self, which: dict[str, object]) -> list[dict[str, object]]:
        with MongoClient[dict[str, object]](self._database.url) as client:
            stages: list[dict[str, object]] = [
                {"$currentOp": {"allUsers": True, "idleSessions": True}},
                {"$match": {"appName": NAME, **which}},
            ]
            return list(client.admin.aggregate(stages))


def eventually(holds: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> bool:
    """Whether something comes to hold before the patience ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return holds()
