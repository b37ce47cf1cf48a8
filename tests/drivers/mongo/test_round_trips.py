"""How often the hot calls on MongoDB go to the server, and that the shorter ways need no sound parent."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient
from typing_extensions import override

import twinstore
from tests.support.databases import StartedListener, without_retention
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import NotFoundError
from twinstore.scheduler import ExecutionLogEntry, GraphJobStatus
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore.testing.scheduler.graph_jobs import graph_moved, make_graph_build_job
from twinstore_mongo.access.changing import is_own_value
from twinstore_mongo.backend import MongoBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pymongo.monitoring import CommandStartedEvent

    from tests.support.databases import MongoDatabase
    from twinstore import SchedulerMongoSessionFactory, SchedulerSession
    from twinstore.scheduler.storage import SchedulerStorage

TENANT: Final = "tenant-of-counted-calls"


class Commands(StartedListener):
    """Notes the names of the commands of some blocks."""

    def __init__(self) -> None:
        self.names: list[str] | None = None

    @contextmanager
    def noted(self) -> Iterator[list[str]]:
        """Note what is sent until the block ends."""
        names = self.names = []
        yield names
        self.names = None

    @override
    def started(self, event: CommandStartedEvent) -> None:
        if self.names is not None:
            self.names.append(event.command_name)


@pytest.fixture(scope="module")
def commands() -> Commands:
    return Commands()


@pytest.fixture(scope="module")
def client(module_mongo_database: MongoDatabase, commands: Commands) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](module_mongo_database.url, event_listeners=[commands]) as opened:
        yield opened


@pytest.fixture(scope="module")
def storage(
    client: MongoClient[dict[str, Any]], module_mongo_database: MongoDatabase
) -> Iterator[SchedulerStorage]:
    settings = without_retention(
        {"Persistence": {"Mongo": {"Client": client, "Database": module_mongo_database.name}}}
    )
    with twinstore.add_scheduler_mongo_storage(settings) as opened:
        yield opened


def entries(run_id: str, count: int) -> list[ExecutionLogEntry]:
    """Return entries whose numbers are to be assigned."""
    return [
        ExecutionLogEntry(tenant_id=TENANT, run_id=run_id, logged_at=at(number), message=f"line {number}")
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, 100])
def test_an_append_costs_four_round_trips_whatever_the_number_of_entries(
    storage: SchedulerStorage, commands: Commands, count: int
) -> None:
    run = storage.runs.create(make_run(TENANT, f"run of {count}"))
    with commands.noted() as names:
        stored = storage.execution_logs.append(entries(run.id, count))
    assert names == ["findAndModify", "find", "insert", "commitTransaction"]
    assert [entry.sequence for entry in stored] == [*range(1, count + 1)]
    with commands.noted() as names:
        assert storage.execution_logs.append(stored) == stored
    assert names == ["findAndModify", "find", "commitTransaction"]


def test_a_run_that_another_service_wrote_in_another_form_has_a_log_all_the_same(
    storage: SchedulerStorage, client: MongoClient[dict[str, Any]], module_mongo_database: MongoDatabase
) -> None:
    run = storage.runs.create(make_run(TENANT, "foreign"))
    stored = client[module_mongo_database.name]["runs"]
    by_id = {"_id": {"$regex": "foreign$"}}
    text = {"$set": {"createdAt": run.created_at.isoformat()}}
    # The validator asks for instants, and refuses any other change of such a run.
    assert stored.update_one(by_id, text, bypass_document_validation=True).modified_count == 1
    told = storage.execution_logs.append(entries(run.id, 2))
    assert [entry.sequence for entry in told] == [1, 2]
    assert storage.execution_logs.list(TENANT, run.id) == told
    with pytest.raises(NotFoundError):
        storage.execution_logs.append(entries("nowhere", 2))


def test_a_graph_job_moves_in_one_round_trip(storage: SchedulerStorage, commands: Commands) -> None:
    job = make_graph_build_job(TENANT, "counted")
    storage.graph_jobs.insert(job)
    with commands.noted() as names:
        moved = graph_moved(job, GraphJobStatus.RUNNING)
        assert storage.graph_jobs.try_replace(moved, GraphJobStatus.QUEUED)
    assert names == ["update"]


SESSION_TENANT: Final = "tenant-of-a-causal-session"


class Finds(StartedListener):
    """Notes the read concern of each `find`."""

    def __init__(self) -> None:
        self.concerns: list[dict[str, Any]] = []

    @override
    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.concerns.append(dict(event.command.get("readConcern", {})))


@pytest.mark.parametrize(
    ("opened", "causal"),
    [
        (lambda sessions: sessions.open(SESSION_TENANT), True),
        (lambda sessions: sessions.open(SESSION_TENANT, causal_consistency=False), False),
    ],
    ids=["default", "off"],
)
def test_a_read_after_a_write_in_a_session_waits_for_it_unless_that_is_switched_off(
    opened: Callable[[SchedulerMongoSessionFactory], AbstractContextManager[SchedulerSession]],
    *,
    causal: bool,
    module_mongo_database: MongoDatabase,
) -> None:
    finds = Finds()
    with MongoClient[dict[str, Any]](module_mongo_database.url, event_listeners=[finds]) as client:
        mongo = {"Client": client, "Database": module_mongo_database.name}
        storage = twinstore.add_scheduler_mongo_storage(without_retention({"Persistence": {"Mongo": mongo}}))
        with storage, opened(storage.sessions) as session:
            run = session.runs.create(make_run(SESSION_TENANT, f"run {causal}"))
            finds.concerns.clear()
            assert session.runs.get(SESSION_TENANT, run.id) == run
    assert finds.concerns
    assert all(("afterClusterTime" in concern) is causal for concern in finds.concerns)


NAMES: Final = SCHEDULES.unique("tenant_name")
SCOPE: Final = Tenant("acme")


def test_the_holder_of_a_unique_value_shows_whether_it_is_the_row_itself(
    mongo_database: MongoDatabase,
) -> None:
    with twinstore.open_storage(mongo_database.config) as storage:
        storage.scheduler.schedules.upsert(make_schedule("acme", "first", name="taken"))
        backend = storage.scheduler._backend  # noqa: SLF001  # the driver below the rules
        assert isinstance(backend, MongoBackend)
        context = backend.unbound().context  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # of the driver
        cases = {("first", "taken"): True, ("second", "taken"): False, ("first", "free"): False}
        for (key, name), own in cases.items():
            row = Row(make_schedule("acme", key, name=name))
            assert is_own_value(context, row, SCHEDULES, SCOPE, NAMES) is own, (key, name)
