"""A process is killed inside a transaction: MongoDB keeps it for a minute, and nobody waits so long."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import twinstore
from twinstore.scheduler import ExecutionLogEntry
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore_mongo.abandoned import LONG_SECONDS, Losses

if TYPE_CHECKING:
    from tests.databases import MongoDatabase

TENANT: Final = "acme"
# What a worker is killed in: it has written the run, as an append to its log does, and not committed.
HOLD: Final = """
import sys
from pymongo import MongoClient
client = MongoClient(sys.argv[1], appname="twinstore")
with client.start_session() as session, session.start_transaction():
    client[sys.argv[2]]["runs"].update_one({"_id": "killed"}, {"$inc": {"_version": 1}}, session=session)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_log_goes_on_soon_after_a_writer_to_it_was_killed(mongo_database: MongoDatabase) -> None:
    with twinstore.open_storage(mongo_database.config) as opened:
        storage = opened.scheduler
        storage.initializer.ensure_migrations()
        storage.runs.create(make_run(TENANT, "killed"))
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, mongo_database.url, mongo_database.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            holder.kill()
        begun = time.monotonic()
        (line,) = storage.execution_logs.append(
            [ExecutionLogEntry(tenant_id=TENANT, run_id="killed", logged_at=at(), message="it goes on")]
        )
        assert line.sequence == 1
        # As long as it is repeated at all, which is far below what the server waits.
        assert time.monotonic() - begun < 10


def test_losses_count_when_one_follows_the_other_for_long() -> None:
    instants = [100.0, 100.6, LONG_SECONDS + 100, LONG_SECONDS + 100.5, LONG_SECONDS + 101, 110.0, 110.5]
    losses = Losses(iter(instants).__next__)
    answers = [losses.go_on() for _ in instants]
    assert answers == [False, False, True, False, True, False, False]
