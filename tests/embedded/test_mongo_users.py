"""A mongod that asks for a login: its first user, further ones, and what a restart keeps of them."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

import twinstore_embedded
from twinstore.errors import ConfigurationError
from twinstore_embedded.mongod import find_mongo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore_embedded import MongoServer

pytestmark = pytest.mark.long

UNAUTHORIZED = 13


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="twinstore-embedded-"))
    yield path
    twinstore_embedded.stop(path)
    shutil.rmtree(path)


def forget(server: MongoServer, **changes: object) -> None:
    """Change what a stopped server remembers."""
    memory = server.home / "server.json"
    memory.write_text(json.dumps({**json.loads(memory.read_text()), **changes}))


@pytest.mark.smoke
def test_reading_requires_a_login_and_a_reader_cannot_write(directory: Path) -> None:
    server = twinstore_embedded.start_mongo(directory, users=True)
    with MongoClient[dict[str, Any]](server.url) as client:
        client["mine"]["rows"].insert_one({"_id": 1})
        client["other"]["rows"].insert_one({"_id": 1})
    nobody = f"mongodb://127.0.0.1:{server.port}/?directConnection=true"
    with MongoClient[dict[str, Any]](nobody) as client, pytest.raises(OperationFailure) as caught:
        client["mine"]["rows"].find_one()
    assert caught.value.code == UNAUTHORIZED
    with MongoClient[dict[str, Any]](server.user_url("mine", "reader", "read")) as client:
        assert client.get_default_database()["rows"].find_one() == {"_id": 1}
        for refused in (
            lambda: client["mine"]["rows"].insert_one({}),
            client["other"]["rows"].find_one,
            client["local"]["oplog.rs"].find_one,
            lambda: client.admin.command("serverStatus"),
        ):
            with pytest.raises(OperationFailure) as denied:
                refused()
            assert denied.value.code == UNAUTHORIZED


def test_a_restart_keeps_the_users_also_on_another_port(directory: Path) -> None:
    first = twinstore_embedded.start_mongo(directory, users=True)
    reader = first.user_url("mine", "reader", "read")
    first.stop()
    second = twinstore_embedded.start_mongo(directory, users=True)
    assert second.url == first.url
    assert find_mongo(directory, users=True) == second
    with MongoClient[dict[str, Any]](reader) as client:
        assert client["mine"]["rows"].find_one() is None
    second.stop()
    forget(second, port=None)
    third = twinstore_embedded.start_mongo(directory, users=True)
    with MongoClient[dict[str, Any]](third.url) as client:
        client["mine"]["rows"].insert_one({"_id": 1})


def test_it_runs_next_to_the_servers_without_users_and_is_stopped_with_them(directory: Path) -> None:
    guarded = twinstore_embedded.start_mongo(directory, users=True)
    plain = twinstore_embedded.start_mongo(directory)
    assert guarded.home != plain.home
    assert twinstore_embedded.stop(directory) == ("mongo", "mongo-users")


def test_a_lost_password_is_reported_with_the_remedy(directory: Path) -> None:
    server = twinstore_embedded.start_mongo(directory, users=True)
    server.stop()
    forget(server, passwords={})
    with pytest.raises(ConfigurationError, match=r"are lost and cannot be reset; delete it to start over"):
        twinstore_embedded.start_mongo(directory, users=True)


def test_only_a_replica_set_has_users(directory: Path) -> None:
    with pytest.raises(ValueError, match="replica set"):
        twinstore_embedded.start_mongo(directory, users=True, replica_set=False)


def test_the_passwords_are_not_shown(directory: Path) -> None:
    server = twinstore_embedded.start_mongo(directory, users=True)
    assert not any(password in repr(server) for password in server.passwords.values())
    assert (server.home / "key").stat().st_mode & 0o777 == 0o600
