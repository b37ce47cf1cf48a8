"""The hot queries of the repositories, explained by the server as the driver really sends them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient, monitoring
from typing_extensions import override

import twinstore
from twinstore.bulk import KeyRange
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.instants import START, at
from twinstore.testing.scheduler.builders import (
    make_audit_record,
    make_impact_set,
    make_run,
    make_run_summary,
    make_schedule,
    make_selector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoServer
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

Document = dict[str, Any]
Action = Callable[["SchedulerStorage"], object]
TENANTS = 5
ROWS = 60
EXPLAINED = {"find", "aggregate", "delete"}
NOISE = {"lsid", "$db", "$clusterTime", "readConcern", "writeConcern", "maxTimeMS", "txnNumber", "cursor"}


class Listener(monitoring.CommandListener):
    """Keeps the commands that read or remove documents."""

    def __init__(self) -> None:
        self.commands: list[Document] = []

    @override
    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in EXPLAINED:
            self.commands.append(dict(event.command))

    @override
    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    @override
    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


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
        schedule = make_schedule(
            tenant, f"s{number:03}@{tenant}", name=f"n{number:03}", enabled=number % 2 == 0
        )
        storage.schedules.upsert(schedule)
        run = make_run(
            tenant, f"r{number:03}@{tenant}", schedule_id=f"s-{number % 12}", created_at=at(number // 3)
        )
        storage.runs.create(run)
        if number % 4:
            finish(storage, run)
        storage.audit.append(
            make_audit_record(
                tenant,
                f"a{number:03}@{tenant}",
                occurred_at=at(number),
                schedule_id=f"s-{number % 12}",
                run_id=f"r-{number % 12}",
            )
        )
        snapshot = make_impact_set(snapshot_id=f"i{number:03}@{tenant}", generated_at=at(number))
        storage.impact_snapshots.upsert(tenant, snapshot, run_id="r-1")
        storage.run_summaries.upsert(make_run_summary(tenant, f"s{number:03}@{tenant}", ()))


def finish(storage: SchedulerSession, run: Any) -> None:  # noqa: ANN401  # a run
    storage.runs.update(run.evolve(state="cancelled", finished_at=run.created_at + timedelta(seconds=1)))


def listing(**options: Any) -> Action:  # noqa: ANN401  # options of one kind
    return lambda storage: storage.runs.list("t1", RunQueryOptions(limit=5, **options))


def second_page(pages: Callable[[SchedulerStorage, str | None], Any]) -> Action:
    return lambda storage: pages(storage, pages(storage, None).next_page_token)


DUE = START + timedelta(days=400)

HOT: dict[str, tuple[Action, str]] = {
    "schedule by id": (lambda s: s.schedules.get("t1", "s001@t1"), "_id_"),
    "schedules": (lambda s: s.schedules.list("t1", ScheduleQueryOptions(limit=5)), "ux_tenantId_name"),
    "schedules, second page": (
        second_page(lambda s, token: s.schedules.list("t1", ScheduleQueryOptions(limit=5, page_token=token))),
        "ux_tenantId_name",
    ),
    "schedules with the deleted ones": (
        lambda s: s.schedules.list("t1", ScheduleQueryOptions(limit=5, include_deleted=True)),
        "ix_tenantId_name__id",
    ),
    "trigger of a schedule": (lambda s: s.triggers.get("t1", "s001@t1"), "ux_scheduleId"),
    "triggers": (lambda s: s.triggers.list("t1", limit=5), "ix_tenantId_nextFireAt__id"),
    "triggers, second page": (
        second_page(lambda s, token: s.triggers.list("t1", limit=5, page_token=token)),
        "ix_tenantId_nextFireAt__id",
    ),
    "triggers, page after those without an instant": (
        second_page(lambda s, token: s.triggers.list("t1", limit=ROWS // 2, page_token=token)),
        "ix_tenantId_nextFireAt__id",
    ),
    "runs": (listing(), "ix_tenantId_createdAt__id"),
    "runs in a window": (
        listing(created_after=at(3), created_before=at(15)),
        "ix_tenantId_createdAt__id",
    ),
    "runs, second page": (
        second_page(lambda s, token: s.runs.list("t1", RunQueryOptions(limit=5, page_token=token))),
        "ix_tenantId_createdAt__id",
    ),
    "runs, oldest first": (listing(ascending=True), "ix_tenantId_createdAt__id"),
    "runs, oldest first, second page": (
        second_page(
            lambda s, token: s.runs.list("t1", RunQueryOptions(limit=5, ascending=True, page_token=token))
        ),
        "ix_tenantId_createdAt__id",
    ),
    "runs of a schedule": (
        lambda s: s.runs.get_runs_by_schedule("t1", "s-1", 5),
        "ix_tenantId_scheduleId_createdAt__id",
    ),
    "runs in a state": (lambda s: s.runs.list_by_state(RunState.PLANNING, limit=5), "ix_state_createdAt__id"),
    "pending runs": (
        lambda s: s.runs.get_pending_runs("t1", limit=5),
        "ix_pending_tenantId_createdAt__id",
    ),
    "latest snapshot": (
        lambda s: s.impact_snapshots.get_latest_by_selector("t1", make_selector()),
        "ix__tenantId__selectorDigest_generatedAt__id",
    ),
    "snapshots of a run": (
        lambda s: s.impact_snapshots.list_by_run("t1", "r-1", limit=5),
        "ix__tenantId__runId_generatedAt__id",
    ),
    "snapshots": (lambda s: s.impact_snapshots.list("t1", limit=5), "ix__tenantId_generatedAt__id"),
    "audit": (lambda s: s.audit.list("t1", AuditQueryOptions(limit=5)), "ix_tenantId_occurredAt__id"),
    "audit of a schedule": (
        lambda s: s.audit.list("t1", AuditQueryOptions(limit=5, schedule_id="s-1")),
        "ix_tenantId_scheduleId_occurredAt__id",
    ),
    "audit of a run": (
        lambda s: s.audit.list("t1", AuditQueryOptions(limit=5, run_id="r-1")),
        "ix_tenantId_runId_occurredAt__id",
    ),
    "run summary": (lambda s: s.run_summaries.get("t1", "s001@t1"), "ux_tenantId_scheduleId"),
    "run summaries": (lambda s: s.run_summaries.list("t1", limit=5), "ux_tenantId_scheduleId"),
}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_query_reads_its_index_in_order_and_stops_early(explained: Explained, name: str) -> None:
    action, index = HOT[name]
    *_, plan = explained.plans(action)
    kinds = {stage["stage"] for stage in stages(plan)}
    assert indexes(plan) == {index}
    assert not kinds & {"COLLSCAN", "SORT"}
    assert plan["executionStats"]["totalDocsExamined"] <= 60


def test_due_schedules_come_from_the_index_of_enabled_triggers(explained: Explained) -> None:
    first, second = explained.plans(lambda storage: storage.schedules.get_due_schedules(DUE, limit=5))
    assert indexes(first) == {"ix_nextFireAt_tenantId__id"}
    assert indexes(second) == {"_id_"}
    assert not {stage["stage"] for plan in (first, second) for stage in stages(plan)} & {"COLLSCAN", "SORT"}
    assert first["executionStats"]["totalDocsExamined"] <= 6


def test_a_purge_reads_the_index_of_its_age_from_the_oldest(explained: Explained) -> None:
    plans = explained.plans(lambda storage: storage.runs.purge_finished(START - timedelta(days=9)))
    assert [indexes(plan) for plan in plans] == [{"ttl_finishedAt"}]
    assert not {stage["stage"] for plan in plans for stage in stages(plan)} & {"COLLSCAN", "SORT"}


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
    explained: Explained,
    reading: str,
    entity: Entity,
    within: KeyRange,
    index: str,
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
