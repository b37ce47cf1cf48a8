from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
import typer
from pymongo import MongoClient
from typer.testing import CliRunner

import twinstore_embedded
from twinstore_embedded.cli import down, up
from twinstore_embedded.mongod import find_mongo
from twinstore_embedded.postgres import find_postgres_server
from twinstore_embedded.processes import is_alive
from twinstore_embedded.state import exclusive

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

START = (
    "import sys, twinstore_embedded as e; s = e.start(sys.argv[1], durable=False);"
    "print(s.mongo.pid, s.postgres.pid)"
)


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not tmp_path: pytest closes its parents to the user that PostgreSQL runs as under root.
    path = Path(tempfile.mkdtemp(prefix="twinstore-embedded-"))
    path.chmod(0o711)
    yield path
    twinstore_embedded.stop(path)
    shutil.rmtree(path)


@contextmanager
def occupied(port: int) -> Iterator[None]:
    with socketserver.TCPServer(
        ("127.0.0.1", port), socketserver.BaseRequestHandler, bind_and_activate=False
    ) as it:
        it.allow_reuse_address = True
        it.server_bind()
        it.server_activate()
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield
        it.shutdown()
        thread.join()


def start_elsewhere(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START, str(directory)], check=True, capture_output=True, text=True
    )
    return done.stdout


def processes_of(directory: Path) -> list[psutil.Process]:
    """The servers of a directory without their own children, which come and go."""
    named = [
        it
        for it in psutil.process_iter(["cmdline", "ppid"])
        if str(directory) in " ".join(it.info["cmdline"] or [])
    ]
    return [it for it in named if it.info["ppid"] not in {parent.pid for parent in named}]


def test_a_standalone_mongod_has_no_replica_set(directory: Path) -> None:
    server = twinstore_embedded.start_mongo(directory, replica_set=False)
    with MongoClient[dict[str, object]](server.url) as client:
        assert "setName" not in client.admin.command("hello")
        client["twinstore"]["rows"].insert_one({"_id": 1})


def test_the_owner_owns_the_database_and_the_application_role_is_bound(directory: Path) -> None:
    server = twinstore_embedded.start_postgres(directory, durable=False)
    with psycopg.connect(server.owner_url()) as connection:
        connection.execute("CREATE SCHEMA scheduler")
    with psycopg.connect(server.app_url()) as connection:
        query = (
            "SELECT rolname, rolsuper, rolbypassrls, rolcreaterole FROM pg_roles WHERE rolname = current_user"
        )
        assert connection.execute(query).fetchone() == ("twinstore_app", False, False, False)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE SCHEMA mine")


def test_a_wrong_password_is_refused(directory: Path) -> None:
    server = twinstore_embedded.start_postgres(directory, durable=False)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.app_url().replace(server.passwords["twinstore_app"], "wrong"))


def test_a_second_process_reuses_the_running_servers(directory: Path) -> None:
    first = twinstore_embedded.start(directory, durable=False)
    assert start_elsewhere(directory).split() == [str(first.mongo.pid), str(first.postgres.pid)]


def test_servers_outlive_the_process_that_started_them(directory: Path) -> None:
    pids = [int(pid) for pid in start_elsewhere(directory).split()]
    assert all(is_alive(pid) for pid in pids)
    assert twinstore_embedded.stop(directory) == ("mongo", "postgres")


def test_processes_that_start_at_once_end_up_with_one_server_each(directory: Path) -> None:
    with ThreadPoolExecutor() as pool:
        answers = set(pool.map(start_elsewhere, [directory] * 4))
    assert len(answers) == 1
    assert {str(process.pid) for process in processes_of(directory)} == set(answers.pop().split())


@pytest.mark.smoke
def test_a_clean_stop_leaves_no_process_and_no_lock(directory: Path) -> None:
    twinstore_embedded.start(directory, durable=False).stop()
    assert processes_of(directory) == []
    assert not (directory / "postgres" / "data" / "postmaster.pid").exists()
    assert (directory / "mongo" / "data" / "mongod.lock").read_bytes() == b""
    with exclusive(directory / "mongo", timeout=0), exclusive(directory / "postgres", timeout=0):
        pass


def test_stopping_what_was_never_started_creates_nothing(directory: Path) -> None:
    assert twinstore_embedded.stop(directory / "absent") == ()
    assert not (directory / "absent").exists()


def test_ports_taken_meanwhile_are_replaced_and_the_data_stays(directory: Path) -> None:
    first = twinstore_embedded.start(directory, durable=False)
    with MongoClient[dict[str, object]](first.mongo.url) as client:
        client["twinstore"]["rows"].insert_one({"_id": 1})
    first.stop()
    with occupied(first.mongo.port), occupied(first.postgres.port):
        second = twinstore_embedded.start(directory, durable=False)
    assert second.mongo.port != first.mongo.port
    assert second.postgres.port != first.postgres.port
    with MongoClient[dict[str, object]](second.mongo.url) as client:
        assert client["twinstore"]["rows"].find_one() == {"_id": 1}


def test_a_block_stops_what_it_started_and_leaves_what_ran_before(directory: Path) -> None:
    mongo = twinstore_embedded.start_mongo(directory)
    with twinstore_embedded.servers(directory, durable=False) as running:
        assert running.mongo.pid == mongo.pid
        assert (running.mongo.owned, running.postgres.owned) == (False, True)
    assert is_alive(mongo.pid)
    assert not is_alive(running.postgres.pid)


def test_a_server_that_another_caller_keeps_running_outlives_the_block(directory: Path) -> None:
    with twinstore_embedded.servers(directory, durable=False) as running:
        start_elsewhere(directory)
    assert is_alive(running.mongo.pid)
    assert is_alive(running.postgres.pid)


def test_only_the_user_can_read_the_passwords(directory: Path) -> None:
    CliRunner().invoke(application(), ["up", "--data-dir", str(directory)])
    secret = [directory / "postgres" / "server.json", directory / "appsettings.json"]
    assert [path.stat().st_mode & 0o777 for path in secret] == [0o600, 0o600]
    assert [
        path.name for path in (directory / "postgres").iterdir() if path.name.startswith(".password")
    ] == []


def application() -> typer.Typer:
    app = typer.Typer()
    app.command("up")(up)
    app.command("down")(down)
    return app


@pytest.mark.smoke
def test_up_masks_passwords_and_writes_settings_that_connect(directory: Path) -> None:
    result = CliRunner().invoke(application(), ["up", "--data-dir", str(directory)])
    settings = json.loads((directory / "appsettings.json").read_bytes())["Persistence"]
    app_url = settings["Postgres"]["ConnectionString"]
    psycopg.connect(app_url).close()
    assert settings["Scheduler"] == "Mongo"
    assert app_url not in result.output
    assert "twinstore_app:***@127.0.0.1" in result.output
    assert f"export TWINSTORE_CONFIG={directory / 'appsettings.json'}" in result.output


def test_up_shows_secrets_only_when_asked(directory: Path) -> None:
    arguments = ["up", "--data-dir", str(directory), "--only", "postgres", "--format", "json"]
    masked, shown = (
        CliRunner().invoke(application(), [*arguments, *more]) for more in ([], ["--show-secrets"])
    )
    server = find_postgres_server(directory)
    assert server is not None
    assert server.app_url() not in masked.output
    assert json.loads(shown.output)["settings"]["Persistence:Postgres:ConnectionString"] == server.app_url()
    assert find_mongo(directory) is None


def test_down_says_what_it_stopped_and_is_content_with_nothing(directory: Path) -> None:
    CliRunner().invoke(application(), ["up", "--data-dir", str(directory), "--only", "mongo"])
    first, second = (
        CliRunner().invoke(application(), ["down", "--data-dir", str(directory)]) for _ in range(2)
    )
    assert (first.exit_code, first.output) == (0, f"Stopped mongo of {directory}. The data stays.\n")
    assert (second.exit_code, second.output) == (0, f"Nothing was running in {directory}.\n")


def test_the_servers_listen_on_this_machine_only(directory: Path) -> None:
    running = twinstore_embedded.start(directory, durable=False)
    for pid in (running.mongo.pid, running.postgres.pid):
        addresses = {
            it.laddr.ip for it in psutil.Process(pid).net_connections() if it.status == psutil.CONN_LISTEN
        }
        assert addresses == {"127.0.0.1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite runs as a normal user, so every test proves this")
def test_under_root_postgres_runs_as_an_unprivileged_user(directory: Path) -> None:
    server = twinstore_embedded.start_postgres(directory, durable=False)
    assert psutil.Process(server.pid).uids().effective != 0
