"""The reads of copies and of lists with two indexes, explained by the server as the driver really sends them.

All others are in test_statement_plans.py, where copies may read what they like and any index will do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient, monitoring
from typing_extensions import override

import twinstore
from tests.support.databases import StartedListener
from twinstore.catalog.keys import KeyRange
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run, make_run_summary, make_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoServer
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

Document = dict[str, Any]
Action = Callable[["SchedulerStorage"], object]
TENANTS = 5
ROWS = 60
EXPLAINED = {"find", "aggregate"}
NOISE = {"lsid", "$db", "$clusterTime", "readConcern", "writeConcern", "maxTimeMS", "txnNumber", "cursor"}


class Listener(StartedListener):
    """Keeps the commands that read documents."""

    def __init__(self) -> None:
        self.commands: list[Document] = []

    @override
    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in EXPLAINED:
            self.commands.append(dict(event.command))


class Explained:
    """A storage whose reads can be explained."""

    def __init__(self, storage: SchedulerStorage, client: MongoClient[Document], name: str) -> None:
        self.storage = storage
        self.listener = Listener()
        self._database = client[name]

    def plans(self, action: Action) -> list[Document]:
        """Return the plan of every query that an action sends."""
        self.listener.commands.clear()
        action(self.storage)
        sent = [
            {name: part for name, part in command.items() if name not in NOISE}
            for command in self.listener.commands
        ]
        return [self._explain(command) for command in sent]

    def _explain(self, command: Document) -> Document:
        kept = {**command, "cursor": {}} if "aggregate" in command else command
        return self._database.command("explain", kept, verbosity="executionStats")


def stages(plan: Any) -> Iterator[Document]:  # noqa: ANN401  # any part of a plan
    """Yield every stage of the winning plan."""
    if isinstance(plan, dict):
        if "stage" in plan:
            yield plan
        for name, part in plan.items():
            if name not in {"rejectedPlans", "executionStats", "slotBasedPlan"}:
                yield from stages(part)
    elif isinstance(plan, list):
        for part in plan:
            yield from stages(part)


def indexes(plan: Document) -> set[str]:
    return {stage["indexName"] for stage in stages(plan) if "indexName" in stage}


@pytest.fixture(scope="module")
def explained(mongo_server: MongoServer) -> Iterator[Explained]:
    with mongo_server.database() as database:
        config = {**database.config, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}
        with twinstore.add_scheduler_storage(config) as storage:
            storage.initializer.ensure_migrations()
            for tenant in (f"t{number}" for number in range(TENANTS)):
                # In one unit, because every commit waits for the journal.
                storage.transact(partial(fill, tenant), tenant_id=tenant)
        listener = Listener()
        client: MongoClient[Document] = MongoClient(database.url, event_listeners=[listener])
        mongo = {"Client": client, "Database": database.name}
        with client, twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}}) as storage:
            workspace = Explained(storage, client, database.name)
            workspace.listener = listener
            yield workspace


def fill(tenant: str, storage: SchedulerSession) -> None:
    for number in range(ROWS):
        storage.runs.create(make_run(tenant, f"r{number:03}@{tenant}", created_at=at(number // 3)))
        schedule = make_schedule(tenant, f"s{number:03}@{tenant}", name=f"n{number:03}")
        storage.schedules.upsert(schedule)
        storage.run_summaries.upsert(make_run_summary(tenant, f"s{number:03}@{tenant}", ()))


@pytest.mark.parametrize("reading", ["records", "rows"])
@pytest.mark.parametrize(
    ("entity", "within", "index"),
    [
        (RUNS, KeyRange(("r010@t1",), ("r012@t1",)), "_id_"),
        (RUN_SUMMARIES, KeyRange(("t1", "s010@t1"), ("t1", "s015@t1")), "ux_tenantId_scheduleId"),
    ],
    ids=["by id", "by tenant and schedule"],
)
def test_a_range_is_read_along_its_key(
    explained: Explained, reading: str, entity: Entity, within: KeyRange, index: str
) -> None:
    def read(storage: SchedulerStorage) -> None:
        with storage.bulk.view() as view:
            list(getattr(view, reading)(entity, within))

    (plan,) = explained.plans(read)
    found = list(stages(plan))
    assert indexes(plan) == {index}
    assert not {stage["stage"] for stage in found} & {"COLLSCAN", "SORT"}
    assert examined(plan) <= 60


def examined(plan: Document) -> int:
    """Return how many documents were read, also below an aggregation."""
    if "executionStats" in plan:
        return int(plan["executionStats"]["totalDocsExamined"])
    return int(plan["stages"][0]["$cursor"]["executionStats"]["totalDocsExamined"])


def test_cutting_ranges_reads_keys_and_no_documents(explained: Explained) -> None:
    plans = explained.plans(lambda storage: list(storage.bulk.cut(RUNS, 50)))
    assert {frozenset(indexes(plan)) for plan in plans} == {frozenset({"_id_"})}
    assert {examined(plan) for plan in plans} == {0}
