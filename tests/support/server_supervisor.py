"""Keeps the servers of one test run, in a separate process.

All workers of pytest share one pair of servers, and a run that needs none starts none. The first worker that
asks starts the keeper; the keeper ends with the run, also when pytest was killed, because both sides hold a
file lock that the system releases with its process:

    run.lock      held by the pytest controller; the keeper waits for it, then stops the servers
    keeper.lock   held by the keeper; the controller waits for it, so that nothing runs on after pytest
    start.lock    held by the worker that starts the keeper, while the others wait
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pymongo import MongoClient

import twinstore_embedded
from tests.support.servers import ServerUrls, Source, choose_source, given_urls, kinds_of_run, running_podman

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # the directory made there has a unique name
# The oplog alone may take 1 GB.
ROOM_BYTES = 4_000_000_000
PARAMETERS: dict[str, object] = {
    # Much of the test data lies in the past; no row is to be removed in the middle of a test.
    "ttlMonitorEnabled": False,
    # Dropping a database waits for the journal, by default up to 100 ms.
    "journalCommitInterval": 10,
    # The files of a dropped collection stay open until a checkpoint beyond the history for reads of the past:
    # by default for five minutes, in which more databases come than a process may hold files.
    "minSnapshotHistoryWindowInSeconds": 30,
    "syncdelay": 5,
    # In 256 MB a transaction of 15 MB may not fit next to those of other workers.
    "wiredTigerEngineRuntimeConfig": "cache_size=512M",
}
# What makes guessing a password slow takes a client three times as long as all else that it does to connect.
QUICK_LOGIN: Final = "SET scram_iterations = 1"
HAS_ITERATIONS: Final = 160_000
# Fresh statistics change plans and estimates, which is not to happen in the middle of a test.
NO_AUTOVACUUM: Final = "ALTER SYSTEM SET autovacuum = off"
# A keeper outlives the worker that started it; a Popen that is collected while its process runs would warn.
_keepers: list[subprocess.Popen[bytes]] = []


class ServersUnavailableError(Exception):
    """The servers of the test run did not start."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock of a file and hold it; a POSIX lock is not inherited by a fork."""
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _fastest_directory() -> Path:
    """Return where the data of the servers lies: in memory where there is room for it.

    Every test makes collections and tables, each of which the servers bring to the disk before they answer.
    """
    if os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES:
        return IN_MEMORY
    return Path(tempfile.gettempdir())


@contextmanager
def shared_run() -> Iterator[Path]:
    """Make the directory that the workers of one run share; leave when nothing is left running."""
    directory = _fastest_directory() / f"twinstore-tests-{uuid4().hex[:8]}"
    directory.mkdir(mode=0o711)
    try:
        with exclusive(directory / "run.lock"):
            yield directory
        with exclusive(directory / "keeper.lock"):
            pass
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_id(directory: Path) -> str:
    """Return what distinguishes this run on a server that it shares with others."""
    return directory.name.rpartition("-")[2]


def servers_of(directory: Path) -> ServerUrls:
    """Return the servers of this run; the first caller starts them."""
    if choose_source(os.environ) is Source.URLS:
        return given_urls(os.environ)
    with exclusive(directory / "start.lock"):
        answer = directory / "servers.json"
        if not answer.exists():
            answer.write_text(_start_keeper(directory))
    content = json.loads(answer.read_text())
    if "failure" in content:
        raise ServersUnavailableError(content["failure"])
    return ServerUrls(**content)


def _start_keeper(directory: Path) -> str:
    log = directory / "keeper.log"
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(directory)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    _keepers.append(keeper)
    assert keeper.stdout is not None
    with keeper.stdout as answer:
        line = answer.readline().decode()
    return line or json.dumps({"failure": f"The test servers did not start:\n{log.read_text()}"})


@contextmanager
def running(source: Source, directory: Path, kinds: tuple[str, ...]) -> Iterator[ServerUrls]:
    """Run the servers of these kinds for the length of the block."""
    if source in {Source.CONTAINERS, Source.PODMAN}:
        with running_podman(directory) if source is Source.PODMAN else nullcontext():
            # It reads the settings of the engine when it is imported, which takes long.
            from tests.support.containers import running_containers  # noqa: PLC0415

            with running_containers(kinds) as urls:
                yield urls
    elif len(kinds) == 1:
        with alone(kinds[0], directory / "data") as urls:
            yield urls
    else:
        with twinstore_embedded.servers(directory / "data", durable=False) as servers:
            yield ServerUrls(servers.mongo.url, servers.postgres.superuser_url())


@contextmanager
def alone(kind: str, data: Path) -> Iterator[ServerUrls]:
    """Run one server; do not start the other one."""
    with ExitStack() as stack:
        if kind == "mongo":
            mongo = twinstore_embedded.start_mongo(data, owned=True)
            stack.callback(mongo.stop)
            yield ServerUrls(mongo=mongo.url)
        else:
            postgres = twinstore_embedded.start_postgres(data, durable=False, owned=True)
            stack.callback(postgres.stop)
            yield ServerUrls(postgres=postgres.superuser_url())


def _tune_postgres(url: str) -> None:
    """Let the server of this run do nothing by itself, and its superuser log in as quickly as the roles."""
    known = conninfo_to_dict(url)
    change = sql.SQL("ALTER ROLE {} PASSWORD {}").format(
        sql.Identifier(str(known["user"])), known["password"]
    )
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        if connection.info.server_version >= HAS_ITERATIONS:
            connection.execute(QUICK_LOGIN)
            connection.execute(change)
        connection.execute(NO_AUTOVACUUM)
        connection.execute("SELECT pg_reload_conf()")


def _tune(url: str) -> None:
    """Set what suits databases that live for a moment, on the server of this run alone."""
    with MongoClient[dict[str, object]](url) as client:
        for name, value in PARAMETERS.items():
            client.admin.command({"setParameter": 1, name: value})


def keep(directory: Path) -> None:
    """Run the servers until the test run is over, however it ended."""
    with exclusive(directory / "keeper.lock"):
        with running(choose_source(os.environ), directory, kinds_of_run(os.environ)) as urls:
            if urls.mongo:
                _tune(urls.mongo)
            if urls.postgres:
                _tune_postgres(urls.postgres)
            print(json.dumps(asdict(urls)), flush=True)  # noqa: T201  # the answer to the worker
            with exclusive(directory / "run.lock"):
                pass
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
