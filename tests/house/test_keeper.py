from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.docs.tutorials import running_in
from tests.support.outages import eventually
from tests.support.server_supervisor import ROOT, ServersUnavailableError, servers_of, shared_run
from tests.support.servers import MONGO_URL, ONLY, POSTGRES_URL, SERVERS, ServerUrls

RUN = """
import sys
from tests.support.server_supervisor import servers_of, shared_run

with shared_run() as directory:
    servers_of(directory)
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (MONGO_URL, ONLY, POSTGRES_URL, SERVERS):
        monkeypatch.delenv(name, raising=False)


def answering(urls: ServerUrls) -> set[str]:
    found = set[str]()
    with suppress(psycopg.OperationalError), psycopg.connect(urls.postgres):
        found.add("postgres")
    with (
        suppress(PyMongoError),
        MongoClient[dict[str, object]](urls.mongo, serverSelectionTimeoutMS=60_000) as mongo,
    ):
        mongo.admin.command("ping")
        found.add("mongo")
    return found


def wait_until_gone(directory: Path) -> None:
    deadline = time.monotonic() + 120
    while directory.exists():
        assert time.monotonic() < deadline, f"the keeper left {directory} behind"
        time.sleep(0.02)


def test_servers_end_with_their_run_although_it_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        directory = Path(run.stdout.readline().strip())
        urls = ServerUrls(**json.loads((directory / "servers.json").read_text()))
        assert answering(urls) == {"mongo", "postgres"}
        run.kill()
    wait_until_gone(directory)
    # Not by their ports, which servers of other tests may have by now.
    assert eventually(lambda: running_in(directory) == [])


def test_a_failed_start_says_why_and_is_not_repeated() -> None:
    with shared_run() as directory:
        (directory / "data").touch()
        with pytest.raises(ServersUnavailableError, match=r"did not start:(.|\n)*data"):
            servers_of(directory)
        (directory / "keeper.log").unlink()
        with pytest.raises(ServersUnavailableError, match="did not start"):
            servers_of(directory)
        assert not (directory / "keeper.log").exists()
