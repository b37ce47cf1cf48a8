from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from pymongo import MongoClient

import twinstore_embedded
from tests.embedded.test_servers import directory
from twinstore.errors import UnavailableError
from twinstore_embedded.processes import is_alive
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["directory"]

pytestmark = pytest.mark.long

DEADLINE = 30.0
OWN = """
import signal, sys, twinstore_embedded as e
with e.servers(sys.argv[1], durable=False) as s:
    print(s.mongo.pid, s.postgres.pid, flush=True)
    signal.pause()
"""


@contextmanager
def owner(directory: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    command = [sys.executable, "-c", OWN, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process, [int(pid) for pid in process.stdout.readline().split()]
        process.kill()


def test_a_halted_mongod_is_resumed_on_its_port_with_its_data(directory: Path) -> None:
    server = twinstore_embedded.start_mongo(directory, owned=True)
    with MongoClient[dict[str, object]](server.url, w="majority") as client:
        client["twinstore"]["rows"].insert_one({"_id": 1})
    server.halt()
    assert not is_alive(server.pid)
    server.resume()
    # One that runs is left alone.
    server.resume()
    with MongoClient[dict[str, object]](server.url) as client:
        assert client["twinstore"]["rows"].find_one() == {"_id": 1}


@pytest.mark.smoke
def test_a_killed_mongod_comes_back_with_its_data(directory: Path) -> None:
    first = twinstore_embedded.start_mongo(directory)
    with MongoClient[dict[str, object]](first.url, w="majority") as client:
        client["twinstore"]["rows"].insert_one({"_id": 1})
    os.kill(first.pid, signal.SIGKILL)
    second = twinstore_embedded.start_mongo(directory)
    with MongoClient[dict[str, object]](second.url) as client:
        assert client["twinstore"]["rows"].find_one() == {"_id": 1}
    assert second.url == first.url


@pytest.mark.smoke
def test_a_killed_postmaster_comes_back_with_its_data(directory: Path) -> None:
    first = twinstore_embedded.start_postgres(directory)
    with psycopg.connect(first.owner_url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
    os.kill(first.pid, signal.SIGKILL)
    second = twinstore_embedded.start_postgres(directory)
    with psycopg.connect(second.owner_url()) as connection:
        assert connection.execute("SELECT id FROM kept").fetchone() == (1,)
    assert second.app_url() == first.app_url()


def test_a_killed_postmaster_with_a_busy_backend_comes_back(directory: Path) -> None:
    first = twinstore_embedded.start_postgres(directory)
    with closing(psycopg.connect(first.owner_url())) as connection:
        connection.execute("SELECT 1")
        os.kill(first.pid, signal.SIGKILL)
        second = twinstore_embedded.start_postgres(directory)
    assert second.pid != first.pid


def test_servers_end_with_their_owner_when_it_is_killed(directory: Path) -> None:
    with owner(directory) as (process, pids):
        process.kill()
        process.wait()
        assert wait_until(lambda: not any(is_alive(pid) for pid in pids), DEADLINE)


def test_servers_end_with_their_owner_when_it_ends_well(directory: Path) -> None:
    with owner(directory) as (process, pids):
        process.send_signal(signal.SIGINT)
        process.wait()
        assert not any(is_alive(pid) for pid in pids)


def test_a_process_that_finds_an_orphan_becomes_its_owner(directory: Path) -> None:
    server = twinstore_embedded.start_mongo(directory)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    state = directory / "mongo" / "server.json"
    state.write_text(state.read_text().replace('"owner": null', f'"owner": {dead.pid}'))
    adopted = twinstore_embedded.start_mongo(directory, owned=True)
    assert (adopted.pid, adopted.owned) == (server.pid, True)
    adopted.stop()


def test_a_pid_file_that_names_another_program_is_no_obstacle(directory: Path) -> None:
    running = twinstore_embedded.start(directory, durable=False)
    running.stop()
    data = directory / "postgres" / "data"
    user = data.stat().st_uid if os.geteuid() == 0 else None
    with subprocess.Popen(["/bin/sleep", "60"], user=user) as stranger:
        (data / "postmaster.pid").write_text(f"{stranger.pid}\n{data}\n1\n1\n\n127.0.0.1\n1 1\nready\n")
        (directory / "mongo" / "data" / "mongod.lock").write_text(f"{stranger.pid}\n")
        twinstore_embedded.start(directory, durable=False)
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_lost_passwords_are_replaced_and_the_data_stays(directory: Path, damage: str) -> None:
    first = twinstore_embedded.start_postgres(directory)
    with psycopg.connect(first.owner_url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
    state = directory / "postgres" / "server.json"
    state.unlink() if damage == "missing" else state.write_text('{"port": 5')
    second = twinstore_embedded.start_postgres(directory)
    with psycopg.connect(second.owner_url()) as connection:
        assert connection.execute("SELECT id FROM kept").fetchone() == (1,)
    assert second.passwords != first.passwords


def test_an_interrupted_initdb_is_started_over(directory: Path) -> None:
    unfinished = directory / "postgres" / "data.new"
    unfinished.mkdir(parents=True)
    (directory / "postgres").chmod(0o711)
    (unfinished / "PG_VERSION").write_text("18\n")
    password = directory / "postgres" / ".password.left"
    password.touch()
    # The initdb of a process that was killed writes on, also where its files are removed.
    program = "import sys, os\nwhile True: os.makedirs(sys.argv[1], exist_ok=True)"
    with subprocess.Popen([sys.executable, "-c", program, unfinished / "base"]) as orphan:
        try:
            psycopg.connect(twinstore_embedded.start_postgres(directory, durable=False).app_url()).close()
        finally:
            orphan.kill()
    assert not password.exists()


def test_a_server_that_cannot_start_says_why(directory: Path) -> None:
    server = twinstore_embedded.start_postgres(directory, durable=False)
    server.stop()
    with (server.home / "data" / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    with pytest.raises(UnavailableError, match="no_such_setting"):
        twinstore_embedded.start_postgres(directory)
