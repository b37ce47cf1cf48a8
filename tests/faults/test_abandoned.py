"""A process is killed inside a transaction: MongoDB keeps it for a minute, and nobody waits so long."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import pytest
from pydantic import SecretStr

import twinstore
from tests import forked
from twinstore.backend import SharedResources
from twinstore.scheduler import ExecutionLogEntry, RunState
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore_mongo.abandoned import LONG_SECONDS, Losses
from twinstore_mongo.connection import Connection
from twinstore_mongo.settings import MongoSettings
from twinstore_mongo.waiting import Waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase
    from twinstore.scheduler.storage import SchedulerStorage

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


# As long as anything is repeated at all, which is far below what the server waits.
PATIENCE_SECONDS: Final = 25


@pytest.fixture
def storage(empty_mongo_database: MongoDatabase) -> Iterator[SchedulerStorage]:
    """A storage with a run, whose document the transaction of a killed process has changed."""
    with twinstore.open_storage(empty_mongo_database.config) as opened:
        opened.scheduler.initializer.ensure_migrations()
        opened.scheduler.runs.create(make_run(TENANT, "killed"))
        kill_a_writer(empty_mongo_database)
        yield opened.scheduler


def kill_a_writer(database: MongoDatabase) -> None:
    """Kill a process in the middle of its transaction."""
    words = ["-c", HOLD, database.url, database.name]
    with forked.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()


@contextmanager
def soon() -> Iterator[None]:
    """Fail when the block takes longer than a service would wait."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < PATIENCE_SECONDS


def test_a_log_goes_on_soon_after_a_writer_to_it_was_killed(storage: SchedulerStorage) -> None:
    with soon():
        (line,) = storage.execution_logs.append(
            [ExecutionLogEntry(tenant_id=TENANT, run_id="killed", logged_at=at(), message="it goes on")]
        )
    assert line.sequence == 1


def test_a_write_outside_of_transactions_goes_on_soon_as_well(storage: SchedulerStorage) -> None:
    """Such a one waits inside the server, without an error until its time is over."""
    run = storage.runs.get_required(TENANT, "killed")
    with soon():
        storage.runs.update(run.evolve(state=RunState.QUEUED))
    assert storage.runs.get_required(TENANT, "killed").state is RunState.QUEUED


def test_a_command_that_needs_the_whole_collection_goes_on_soon_as_well(
    storage: SchedulerStorage, empty_mongo_database: MongoDatabase
) -> None:
    del storage
    url = SecretStr(empty_mongo_database.url)
    settings = MongoSettings(connection_string=url, database=empty_mongo_database.name)
    with SharedResources() as resources:
        store = Connection(settings, resources).store
        with soon(), store.with_index_timeout():
            store.collection("runs").create_index("a")


def test_losses_count_when_one_follows_the_other_for_long() -> None:
    instants = [100.0, 100.6, LONG_SECONDS + 100, LONG_SECONDS + 100.5, LONG_SECONDS + 101, 110.0, 110.5]
    losses = Losses(iter(instants).__next__)
    answers = [losses.go_on(instant) for instant in instants]
    assert answers == [False, False, True, False, True, False, False]


def test_losses_count_as_well_when_each_attempt_takes_long() -> None:
    """As on a busy machine: what counts is the pause from a loss to the attempt that follows it."""
    losses = Losses(iter([100.0, 103.0, 106.0, 120.0]).__next__)
    assert [losses.go_on(begun) for begun in (98.0, 100.2, 103.2, 118.0)] == [False, True, True, False]


class Steps:
    """A clock that a test sets, and pauses that end when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self._paused, self._go_on = SimpleQueue[float](), SimpleQueue[None]()

    def look(self) -> None:
        """Count."""
        self.looks += 1

    def pause(self, seconds: float) -> None:
        """Tell the test and wait for it."""
        self._paused.put(seconds)
        self._go_on.get(timeout=PATIENCE_SECONDS)

    def reached(self) -> None:
        """Wait until the thread pauses."""
        assert self._paused.get(timeout=PATIENCE_SECONDS) == LONG_SECONDS

    def pass_to(self, instant: float) -> None:
        """Let the time pass and end the pause."""
        self.now = instant
        self._go_on.put(None)


def test_calls_are_looked_at_while_they_take_long_and_only_then() -> None:
    steps = Steps()
    waits = Waits(steps.look, clock=lambda: steps.now, pause=steps.pause)
    waits.begin("long")
    for instant, looks in ((0.9, 0), (1.0, 0), (2.0, 1), (3.0, 2)):
        steps.reached()
        assert steps.looks == looks
        steps.pass_to(instant)
    steps.reached()
    assert steps.looks == 3
    waits.end("long")
    steps.now = 10.0
    waits.begin("short")
    steps.pass_to(10.5)
    steps.reached()
    waits.end("short")
    steps.pass_to(12.0)
    # The thread has ended or will, without another look; the next call has one of its own.
    waits.begin("next")
    steps.reached()
    assert steps.looks == 3
    waits.end("next")
    steps.pass_to(13.0)
