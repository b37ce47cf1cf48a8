"""A primary that is lost between a write and its majority: the write is repeated, and applied once."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pymongo import MongoClient

import twinstore
import twinstore_embedded
from tests.servers import mongo_config
from tests.stores import kept
from twinstore.scheduler.catalog import GRAPH_JOB_EVENTS
from twinstore.testing.instants import START
from twinstore.testing.scheduler.policy_builders import make_policy_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.scheduler.storage import SchedulerStorage

TENANT: Final = "acme"
HOUR: Final = timedelta(hours=1)
# What such a primary answers: it wrote, nobody else has it, and the write may be repeated. Not with the code
# of a step down, after which the client would look for another primary until it hears of this one again.
STEPPED_DOWN: Final = {
    "failCommands": ["findAndModify"],
    "writeConcernError": {"code": 262, "errmsg": "waiting for the majority took too long"},
    "errorLabels": ["RetryableWriteError"],
}


@pytest.fixture(scope="module")
def server() -> Iterator[twinstore_embedded.MongoServer]:
    directory = Path(tempfile.mkdtemp(prefix="twinstore-stepped-down-"))
    parameters = {"enableTestCommands": 1}
    yield twinstore_embedded.start_mongo(directory, parameters=parameters, owned=True)
    twinstore_embedded.stop(directory)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def storage(server: twinstore_embedded.MongoServer) -> Iterator[SchedulerStorage]:
    with twinstore.open_storage(kept(mongo_config(server.url, "scheduler"))) as opened:
        opened.scheduler.initializer.ensure_migrations()
        yield opened.scheduler


@contextmanager
def stepping_down(server: twinstore_embedded.MongoServer) -> Iterator[None]:
    """Answer the next change of one document as a primary that steps down does, after it was applied."""
    point = {"configureFailPoint": "failCommand"}
    with MongoClient[dict[str, object]](server.url) as client:
        armed = client.admin.command({**point, "mode": {"times": 1}, "data": STEPPED_DOWN})
        yield
        met = client.admin.command({**point, "mode": "off"})
    assert met["count"] > armed["count"], "nothing met the primary that stepped down"


def lease_a_job(storage: SchedulerStorage) -> object:
    storage.policy_jobs.create(make_policy_job(TENANT, "job"))
    storage.policy_jobs.lease_next("worker", START, lease=HOUR)
    return storage.policy_jobs.get_required(TENANT, "job").attempt_count


def take_a_lock(storage: SchedulerStorage) -> object:
    with storage.locks.acquire("once", timedelta(0)) as handle:
        return handle.fence


def draw_a_number(storage: SchedulerStorage) -> object:
    return storage.bulk.access().next_number(GRAPH_JOB_EVENTS)


CALLS: Final = {call.__name__: call for call in (lease_a_job, take_a_lock, draw_a_number)}


@pytest.mark.parametrize("name", CALLS)
def test_a_change_that_answers_with_its_document_is_repeated_and_applied_once(
    name: str, server: twinstore_embedded.MongoServer, storage: SchedulerStorage
) -> None:
    call: Callable[[SchedulerStorage], object] = CALLS[name]
    with stepping_down(server):
        assert call(storage) == 1


def test_a_migration_takes_its_lease_all_the_same(server: twinstore_embedded.MongoServer) -> None:
    with twinstore.open_storage(mongo_config(server.url, "new")) as opened, stepping_down(server):
        assert opened.scheduler.initializer.ensure_migrations().applied
