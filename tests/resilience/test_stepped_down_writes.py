"""A primary that is lost between a write and its majority, or recovers: a write is applied at most once."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pymongo import MongoClient

import twinstore
import twinstore_embedded
from tests.support.databases import without_retention
from tests.support.outages import eventually
from tests.support.servers import mongo_config
from twinstore.errors import Outcome, TimeoutExceededError, UnavailableError
from twinstore.scheduler.catalog import GRAPH_JOB_EVENTS
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_impact_set, make_policy_job, make_run, moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.scheduler.storage import SchedulerStorage

TENANT: Final = "acme"
HOUR: Final = timedelta(hours=1)
# The answer of such a primary: it wrote, no other member has it, and the write may be repeated. Without the
# code of a step down, after which the client would search for another primary until this one reports again.
STEPPED_DOWN: Final[dict[str, object]] = {
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
    with twinstore.open_storage(without_retention(mongo_config(server.url, "scheduler"))) as opened:
        opened.scheduler.initializer.ensure_migrations()
        yield opened.scheduler


@contextmanager
def failing(
    server: twinstore_embedded.MongoServer, mode: dict[str, int], data: dict[str, object]
) -> Iterator[None]:
    """Let some commands fail; something in the block must meet it."""
    point = {"configureFailPoint": "failCommand"}
    with MongoClient[dict[str, object]](server.url) as client:
        armed = client.admin.command({**point, "mode": mode, "data": data})
        try:
            yield
        finally:
            met = client.admin.command({**point, "mode": "off"})
    assert met["count"] > armed["count"], "nothing failed"


def stepping_down(server: twinstore_embedded.MongoServer) -> AbstractContextManager[None]:
    """Answer the next change of one document as a primary that steps down does, after it was applied."""
    return failing(server, {"times": 1}, STEPPED_DOWN)


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


def purge(storage: SchedulerStorage) -> None:
    storage.impact_snapshots.purge_generated(START, tenant_id=TENANT, batch_size=1)


def purge_in_unit(storage: SchedulerStorage) -> None:
    with storage.transaction(TENANT) as unit:
        unit.impact_snapshots.purge_generated(START, tenant_id=TENANT, batch_size=1)


def test_a_purge_that_fails_after_its_first_batch_does_not_say_that_nothing_was_removed(
    server: twinstore_embedded.MongoServer, storage: SchedulerStorage
) -> None:
    for name in "abc":
        storage.impact_snapshots.upsert(TENANT, make_impact_set(snapshot_id=name))
    exceeded: dict[str, object] = {"failCommands": ["find"], "errorCode": 50}
    outcomes: list[Outcome] = []
    # Before anything was read, after one batch, and in a unit, of which nothing is applied before its end.
    for skipped, call in ((0, purge), (1, purge), (1, purge_in_unit)):
        with failing(server, {"skip": skipped}, exceeded), pytest.raises(TimeoutExceededError) as caught:
            call(storage)
        outcomes.append(caught.value.outcome)
    assert outcomes == [Outcome.NOT_APPLIED, Outcome.UNKNOWN, Outcome.NOT_APPLIED]
    assert len(storage.impact_snapshots.list(TENANT)) == 2


def create_a_run(storage: SchedulerStorage) -> object:
    return storage.runs.create(make_run(TENANT, "created")).id


def replace_a_run(storage: SchedulerStorage) -> object:
    storage.runs.create(make_run(TENANT, "replaced"))
    return storage.runs.update(moved(make_run(TENANT, "replaced"), RunState.QUEUED))


def put_a_snapshot(storage: SchedulerStorage) -> object:
    return storage.impact_snapshots.upsert(TENANT, make_impact_set(snapshot_id="put"))


@pytest.mark.parametrize(
    ("call", "command", "answer"),
    [
        (create_a_run, "insert", "created"),
        (replace_a_run, "update", True),
        (put_a_snapshot, "update", "put"),
    ],
)
@pytest.mark.parametrize("failure", [STEPPED_DOWN, {"closeConnection": True}])
def test_a_write_of_one_row_is_repeated_and_applied_once(
    call: Callable[[SchedulerStorage], object],
    command: str,
    answer: object,
    failure: dict[str, object],
    server: twinstore_embedded.MongoServer,
) -> None:
    with twinstore.open_storage(without_retention(mongo_config(server.url, "once"))) as opened:
        opened.scheduler.initializer.ensure_migrations()
        with failing(server, {"times": 1}, {**failure, "failCommands": [command]}):
            # Applied twice, the second one would find the key taken, or another version.
            assert call(opened.scheduler) == answer
    with MongoClient[dict[str, object]](server.url) as client:
        client.drop_database("once")


@pytest.mark.parametrize("failure", [{"errorCode": 262}, {"closeConnection": True}])
def test_a_read_of_one_row_is_repeated_while_there_is_time(
    failure: dict[str, object], server: twinstore_embedded.MongoServer, storage: SchedulerStorage
) -> None:
    storage.impact_snapshots.upsert(TENANT, make_impact_set(snapshot_id="read"))
    with failing(server, {"times": 2}, {"failCommands": ["find"], **failure}):
        assert storage.impact_snapshots.get_required(TENANT, "read").snapshot_id == "read"


def read_in_unit(storage: SchedulerStorage) -> None:
    with storage.transaction(TENANT) as unit:
        assert unit.runs.get(TENANT, "nobody") is None
        # Not the first command of the transaction.
        assert unit.runs.get(TENANT, "nobody") is None


def change_a_run(storage: SchedulerStorage) -> None:
    run = make_run(TENANT, "changed")
    storage.runs.create(run)
    storage.runs.update(moved(run, RunState.CANCELLED))


LOGGED_IN_AGAIN: Final[dict[str, tuple[str, Callable[[SchedulerStorage], object]]]] = {
    "a read": ("find", lambda storage: storage.runs.get(TENANT, "nobody")),
    "a read in a unit": ("find", read_in_unit),
    "a list": ("find", lambda storage: storage.runs.list(TENANT)),
    "an insert": ("insert", lambda storage: storage.runs.create(make_run(TENANT, "logged in again"))),
    "an update": ("update", change_a_run),
}


@pytest.mark.parametrize("name", LOGGED_IN_AGAIN)
def test_a_call_whose_login_has_run_out_is_repeated(
    name: str, server: twinstore_embedded.MongoServer, storage: SchedulerStorage
) -> None:
    command, call = LOGGED_IN_AGAIN[name]
    with failing(server, {"times": 1}, {"failCommands": [command], "errorCode": 391}):
        call(storage)


@contextmanager
def recovering(server: twinstore_embedded.MongoServer) -> Iterator[None]:
    """Let the only member be neither primary nor secondary, as after a rollback."""
    with MongoClient[dict[str, object]](port=server.port, directConnection=True) as client:
        client.admin.command("replSetStepDown", 60, force=True)
        client.admin.command("replSetMaintenance", True)  # noqa: FBT003  # as the shell has it
        try:
            yield
        finally:
            client.admin.command("replSetMaintenance", False)  # noqa: FBT003
            client.admin.command("replSetFreeze", 0)
            assert eventually(lambda: bool(client.admin.command("hello")["isWritablePrimary"]))


@pytest.mark.parametrize("commits", [False, True])
def test_a_unit_of_work_that_meets_a_member_that_recovers_can_be_repeated(
    commits: bool,  # noqa: FBT001  # a parameter of a test
    server: twinstore_embedded.MongoServer,
    storage: SchedulerStorage,
) -> None:
    run = make_run(TENANT, f"recovered, {commits}")
    # The client does not look for another primary; it keeps no connection, but the one that loses the commit.
    options = "directConnection=true" if commits else "directConnection=true&maxIdleTimeMS=1"
    settings = mongo_config(f"mongodb://127.0.0.1:{server.port}/?{options}", "scheduler")

    def write(opened: SchedulerStorage, stack: ExitStack) -> None:
        with opened.transaction(TENANT) as unit:
            unit.runs.create(run)
            # The commit is sent, and its answer lost; the next connection finds a member that recovers.
            lost: dict[str, object] = {"failCommands": ["commitTransaction"], "closeConnection": True}
            stack.enter_context(failing(server, {"times": 1}, lost))
            stack.enter_context(recovering(server))

    with twinstore.open_storage(without_retention(settings)) as opened, ExitStack() as stack:
        assert opened.scheduler.runs.get(TENANT, run.id) is None
        if not commits:
            stack.enter_context(recovering(server))
        with pytest.raises(UnavailableError) as caught:
            write(opened.scheduler, stack)
    assert caught.value.outcome is (Outcome.UNKNOWN if commits else Outcome.NOT_APPLIED)
    assert storage.runs.get(TENANT, run.id) is None
