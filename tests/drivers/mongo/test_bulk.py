from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import ANY

import bson
import pytest
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, monitoring
from typing_extensions import override

import twinstore
from tests.support.copies import invoke, write_config
from tests.support.databases import StartedListener
from twinstore.access.retry import retry
from twinstore.bulk.port import BulkPort, Conflict, ImportOutcome, Record
from twinstore.bulk.rows import Counted, ScanRow, has_marks, marked
from twinstore.catalog.keys import LONGEST_TEXT, Key, KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DuplicateError,
    LeaseLostError,
    TransactionAbortedError,
    UnsupportedCapabilityError,
    ValidationError,
)
from twinstore.fast.records import PackedBatch
from twinstore.ledger import Claim, Ledger, RangeState, RangeTally
from twinstore.ledger.catalog import JOBS
from twinstore.scheduler.catalog import (
    AUDIT,
    GRAPH_JOBS,
    IMPACT_SNAPSHOTS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULER,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import START, at
from twinstore.testing.scheduler.builders import (
    make_image,
    make_impact_set,
    make_run,
    make_schedule,
    rich_audit_record,
    rich_impact_set,
    rich_run_summary,
    rich_schedule,
)
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES, make_log_entry
from twinstore.testing.scheduler.graph_jobs import graph_job_event
from twinstore_mongo.bulk.writer import PART_BYTES
from twinstore_mongo.client.bson import documents_of
from twinstore_mongo.client.positions import PointInTime, time_not_sent_message
from twinstore_mongo.mapping.key_order import key_after
from twinstore_mongo.mapping.layout import index_specs

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer
    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler.graph_jobs import GraphJob
    from twinstore.scheduler.storage import SchedulerStorage

Document = dict[str, Any]
T = "tenant-1"
HOUR = timedelta(hours=1)
ALL = KeyRange()
JOB = "job"


@dataclass(frozen=True)
class BulkWorkspace:
    """A migrated database with a client past the driver."""

    storage: SchedulerStorage
    database: Database[Document]
    name: MongoDatabase

    @property
    def bulk(self) -> BulkPort:
        return self.storage.bulk

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.bulk.access())

    def oplog(self) -> int:
        """Return the number of writes to the data of this database."""
        log = self.database.client["local"]["oplog.rs"]
        spaces = {"$in": [f"{self.database.name}.{entity.name}" for entity in SCHEDULER.entities]}
        return log.count_documents({"$or": [{"ns": spaces}, {"o.applyOps.ns": spaces}]})

    def force(self, collection: str, *documents: Document | RawBSONDocument) -> None:
        """Insert documents past the validator."""
        self.database.get_collection(collection).insert_many(documents, bypass_document_validation=True)


@contextmanager
def workspace_of(server: MongoServer, database: MongoDatabase) -> Iterator[BulkWorkspace]:
    config = {**database.config, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}
    with twinstore.add_scheduler_storage(config) as storage:
        client: Any = server.client
        yield BulkWorkspace(storage, client[database.name], database)


@pytest.fixture
def workspace(mongo_server: MongoServer, mongo_database: MongoDatabase) -> Iterator[BulkWorkspace]:
    with workspace_of(mongo_server, mongo_database) as workspace:
        yield workspace


@pytest.fixture(scope="module")
def source(mongo_server: MongoServer) -> Iterator[BulkWorkspace]:
    """Fill a database once, from which the tests of this file only read."""
    with mongo_server.migrated_database() as database, workspace_of(mongo_server, database) as workspace:
        fill(workspace)
        yield workspace


@pytest.fixture
def own_source(mongo_server: MongoServer) -> Iterator[BulkWorkspace]:
    with mongo_server.migrated_database() as database, workspace_of(mongo_server, database) as workspace:
        yield workspace


def fill_runs(workspace: BulkWorkspace) -> None:
    for number in range(7):
        workspace.storage.runs.create(make_run(T, f"r-{number}"))
        workspace.storage.run_summaries.upsert(rich_run_summary(T, f"s-{number}"))


def fill(workspace: BulkWorkspace) -> None:
    storage = workspace.storage
    fill_runs(workspace)
    for number in range(7):
        storage.schedules.upsert(rich_schedule(T, f"s-{number}").evolve(name=f"n-{number}"))
        storage.audit.append(rich_audit_record(T, f"a-{number}"))
        own = f"i-{number}" if number % 2 else None
        snapshot = rich_impact_set(T).evolve(snapshot_id=own, generated_at=at(number))
        storage.impact_snapshots.upsert(T, snapshot, run_id=f"r-{number}" if number % 3 else None)
    storage.execution_logs.append([make_log_entry(T, f"r-{number}") for number in range(7)])
    for item in SCHEDULER_EXAMPLES.examples:
        # A row that has a parent would bring one more of it.
        if item.entity.parent is None and not workspace.bulk.counts(item.entity):
            for model in item.numbered(T, range(7)).values():
                item.store(storage.unbound, T, model)
    for number, job in enumerate(SCHEDULER_EXAMPLES.of(GRAPH_JOBS).numbered(T, range(7)).values()):
        storage.graph_jobs.append_event(graph_job_event(cast("GraphJob", job), f"e-{number}", number))
    storage.schedules.soft_delete(T, "s-0", "me", datetime(2026, 1, 1, tzinfo=UTC))


def records(
    workspace: BulkWorkspace,
    entity: Entity,
    within: KeyRange = ALL,
    *,
    as_of: str | None = None,
    **options: Any,  # noqa: ANN401  # options of the reading
) -> list[Record]:
    with workspace.bulk.view(as_of=as_of) as view:
        return [record for batch in view.records(entity, within, **options) for record in batch]


def scanned(
    workspace: BulkWorkspace,
    entity: Entity,
    within: KeyRange = ALL,
    *,
    as_of: str | None = None,
    **options: Any,  # noqa: ANN401  # options of the reading
) -> list[ScanRow]:
    with workspace.bulk.view(as_of=as_of) as view:
        return [row for batch in view.rows(entity, within, **options) for row in batch]


def contents(workspace: BulkWorkspace, entity: Entity) -> dict[object, bytes]:
    return {row.key: row.content for row in scanned(workspace, entity)}


def tally(outcome: ImportOutcome) -> RangeTally:
    return RangeTally(read={}, written=outcome.written, unchanged=outcome.unchanged)


def copy(
    target: BulkWorkspace,
    entity: Entity,
    rows: Sequence[Record] | Iterator[list[Record]],
    *,
    overwrite: bool = False,
) -> ImportOutcome:
    """Write everything as the one range of a job, with its entry in the ledger."""
    ledger, conflict = target.ledger, "overwrite" if overwrite else "fail"
    ledger.start(JOB, {"from": "here"}, START)
    lease = ledger.acquire(JOB, "me", HOUR)
    ledger.plan(lease, entity.name, [ALL])
    (progress,) = ledger.ranges(JOB, entity.name)
    if progress.state is RangeState.LIVE:
        ledger.reopen(lease, [progress.number])
    ledger.heartbeat(JOB, "worker", HOUR)
    claim = ledger.claim(JOB, "worker", progress.number)
    check = partial(ledger.hold, claim=claim)
    with target.bulk.writer(entity, on_conflict=conflict, check=check) as writer:  # type: ignore[arg-type]  # one of the two
        for batch in [list(rows)] if isinstance(rows, Sequence) else rows:
            writer.write(batch)
        outcome = writer.flush()
        ledger.finish(writer.access, claim, tally(outcome))
        writer.commit()
    return outcome


# ------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("entity", [RUNS, RUN_SUMMARIES], ids=lambda entity: entity.name)
def test_the_ranges_cover_every_row_once(workspace: BulkWorkspace, entity: Entity) -> None:
    assert list(workspace.bulk.cut(entity, 5)) == [ALL]
    assert records(workspace, entity) == []
    fill_runs(workspace)
    workspace.force(
        entity.name, {"_id": 5, "tenantId": 7}, {"_id": bson.ObjectId(), "tenantId": T, "scheduleId": 9}
    )
    whole = [record.key for record in records(workspace, entity)]
    assert len(whole) == 9
    for rows in (1, 3, 100):
        ranges = list(workspace.bulk.cut(entity, rows))
        assert (ranges[0].lower, ranges[-1].upper) == (None, None)
        assert [item.upper for item in ranges[:-1]] == [item.lower for item in ranges[1:]]
        for read in (records, scanned):
            found: list[Record | ScanRow] = [row for item in ranges for row in read(workspace, entity, item)]
            assert [row.key for row in found] == whole


@pytest.mark.parametrize("entity", [RUNS, RUN_SUMMARIES], ids=lambda entity: entity.name)
def test_keys_from_one_part_of_an_index_are_those_of_a_query_each(
    workspace: BulkWorkspace, monkeypatch: pytest.MonkeyPatch, entity: Entity
) -> None:
    fill_runs(workspace)
    # No range can end at these.
    long = [f"r-{number}{'x' * LONGEST_TEXT}" for number in range(9)]
    workspace.force(
        entity.name,
        *({"_id": key, "tenantId": T, "scheduleId": key} for key in long),
        {"_id": 5, "tenantId": 7},
        {"_id": bson.ObjectId(), "tenantId": T, "scheduleId": 9},
    )
    asked: list[object] = []
    honest: Callable[..., Key | None] = key_after

    def ask(*arguments: object) -> Key | None:
        asked.append(arguments)
        return honest(*arguments)

    monkeypatch.setattr("twinstore_mongo.mapping.key_order.key_after", ask)
    found: dict[tuple[int, int], list[KeyRange]] = {}
    queries: dict[tuple[int, int], int] = {}
    for most, at_once in ((0, 10_000), (500, 10_000), (500, 6), (500, 3)):
        monkeypatch.setattr("twinstore_mongo.mapping.key_order.MOST_ROWS", most)
        monkeypatch.setattr("twinstore_mongo.mapping.key_order.KEYS_AT_ONCE", at_once)
        asked.clear()
        found[most, at_once] = [item for rows in (1, 2, 5) for item in workspace.bulk.cut(entity, rows)]
        queries[most, at_once] = len(asked)
    assert len({tuple(ranges) for ranges in found.values()}) == 1
    assert len(found[0, 10_000]) > 10
    # Behind the last key only.
    assert queries[500, 10_000] == 3 < queries[0, 10_000]


def test_rows_without_a_tenant_are_counted_under_the_empty_text(workspace: BulkWorkspace) -> None:
    workspace.force("runs", {"_id": "x"}, {"_id": "y", "tenantId": 5}, {"_id": "z", "tenantId": T})
    assert workspace.bulk.counts(RUNS) == {"": 2, T: 1}


def test_a_count_returns_the_bytes_of_the_largest_document(workspace: BulkWorkspace) -> None:
    assert workspace.bulk.counted(RUNS) == Counted({}, 0)
    fill_runs(workspace)
    workspace.storage.runs.create(make_run("other", "r-0a"))
    found = list(cast("Any", workspace.database["runs"].find_raw_batches()))
    sizes = [len(document) for batch in found for document in documents_of(batch)]
    assert workspace.bulk.counted(RUNS) == Counted(workspace.bulk.counts(RUNS), max(sizes))
    assert workspace.bulk.counted(RUNS, tenant_id="other").rows == {"other": 1}
    assert max(sizes) > min(sizes) > 100


def test_instants_stored_as_text_are_marked_and_reported(workspace: BulkWorkspace) -> None:
    run = workspace.storage.runs.create(make_run(T, "r-1"))
    assert not has_marks(next(iter(contents(workspace, RUNS).values())))
    change = {"$set": {"createdAt": "2025-10-26T15:05:00+01:00"}}
    workspace.database.command(
        "update", "runs", updates=[{"q": {}, "u": change}], bypassDocumentValidation=True
    )
    (row,) = scanned(workspace, RUNS)
    (record,) = records(workspace, RUNS)
    assert marked("text", "2025-10-26T15:05:00+01:00") == json.loads(row.content)["doc"]["createdAt"]
    assert (record.model, record.text_timestamp) == (run, True)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"stats.queued": 0.0}, marked("double", "0.0")),
        ({"stats.queued": Int64(0)}, marked("int64", 0)),
        ({"error": datetime(2025, 1, 1, tzinfo=UTC)}, marked("bson", {"$date": ANY})),
        ({"reason": None}, None),
        ({"deltas": []}, []),
        ({"_note": "x"}, "x"),
        ({"id": "r-1"}, "r-1"),
        ({"id": "other"}, ANY),
        ({"stats.queued": 1}, 1),
        ({"stats.queued": 0.5}, ANY),
        ({"createdAt": at(0.001)}, ANY),
        ({"scheduleId": "s-1 "}, "s-1 "),
        ({"extra": bson.Decimal128("1")}, ANY),
        ({"extra": bson.ObjectId()}, ANY),
        ({"extra": float("nan")}, ANY),
        ({"extra": bson.Binary(b"x")}, ANY),
        ({"tenantId": 5}, ANY),
    ],
)
def test_the_scan_shows_every_change_as_it_is(
    workspace: BulkWorkspace, change: Document, shown: object
) -> None:
    workspace.storage.runs.create(make_run(T, "r-1", schedule_id="s-1"))
    (before,) = contents(workspace, RUNS).values()
    update = {"q": {}, "u": {"$set": change}}
    workspace.database.command("update", "runs", updates=[update], bypassDocumentValidation=True)
    (after,) = contents(workspace, RUNS).values()
    assert after != before
    value: Any = json.loads(after)["doc"]
    for name in next(iter(change)).split("."):
        value = value[name]
    assert value == shown
    assert list(contents(workspace, RUNS).values()) == [after]


def test_an_id_that_is_not_utf_8_is_a_row_without_a_key(workspace: BulkWorkspace) -> None:
    fill_runs(workspace)
    sound = len(records(workspace, RUNS))
    good = RawBSONDocument(bson.encode({"_id": "XXXX", "tenantId": T}))
    workspace.force("runs", RawBSONDocument(bytes(good.raw).replace(b"XXXX", b"r\xff-1")))
    rows = scanned(workspace, RUNS)
    assert len(rows) == sound + 1
    assert [row.owner for row in rows if row.key is None] == [Tenant(T)]


def test_text_that_is_not_utf_8_spoils_one_row_only(workspace: BulkWorkspace) -> None:
    fill_runs(workspace)
    good = RawBSONDocument(bson.encode({"_id": "r-3a", "tenantId": T, "error": "XXXX"}))
    workspace.force("runs", RawBSONDocument(bytes(good.raw).replace(b"XXXX", b"\xff\xfe\xff\xfe")))
    exported = records(workspace, RUNS)
    (broken,) = [record for record in exported if record.error is not None]
    assert (broken.key, broken.owner) == (("r-3a",), Tenant(T))
    assert "UTF-8" in str(broken.error)
    assert list(contents(workspace, RUNS)) == [record.key for record in exported]


def make_document(key: str) -> Document:
    wire = make_run(T, key).wire()
    return {"_id": wire.pop("id"), **wire}


def test_the_raw_form_keeps_types(workspace: BulkWorkspace) -> None:
    workspace.force("runs", {"_id": "x", "tenantId": T, "a": bson.Int64(5), "b": 5})
    (record,) = records(workspace, RUNS)
    assert '"a": {"$numberLong": "5"}' in str(record.raw)
    assert '"b": {"$numberInt": "5"}' in str(record.raw)


# ------------------------------------------------------------------------------ points in time


@pytest.mark.parametrize("reading", ["records", "rows"])
def test_a_position_shows_the_past_across_batches(workspace: BulkWorkspace, reading: str) -> None:
    fill_runs(workspace)
    position = workspace.bulk.position()
    with workspace.bulk.view(as_of=position) as view:
        assert view.position == position
        read: Callable[..., Iterator[list[Any]]] = getattr(view, reading)
        rows = read(RUNS, ALL, batch_size=2)
        first = next(rows)
        workspace.database["runs"].delete_many({})
        workspace.storage.runs.create(make_run(T, "r-0new"))
        keys = [row.key for batch in [first, *rows] for row in batch]
        assert keys == [(f"r-{number}",) for number in range(7)]
        again = [row.key for batch in read(RUNS, ALL, batch_size=2) for row in batch]
        assert again == keys
    with workspace.bulk.view() as view:
        assert [row.key for batch in getattr(view, reading)(RUNS, ALL) for row in batch] == [("r-0new",)]


def test_a_view_of_the_past_is_refused_where_pymongo_does_not_send_its_time(
    workspace: BulkWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = workspace.bulk.position()
    workspace.storage.runs.create(make_run(T, "later"))
    # As in a release that asks a read concern for something else.
    monkeypatch.delattr(PointInTime, "document")
    for entity in (RUNS, SCHEDULES):
        with pytest.raises(UnsupportedCapabilityError, match="does not send the time of a view"):
            records(workspace, entity, as_of=position)


def test_the_doctor_names_a_release_of_pymongo_that_does_not_send_it(
    workspace: BulkWorkspace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = write_config(tmp_path / "settings.json", workspace.name.config)
    assert invoke(capsys, "--config", config, "doctor", "--format", "json").json["databases"] == []
    monkeypatch.delattr(PointInTime, "document")
    (state,) = invoke(capsys, "--config", config, "doctor", "--format", "json").json["databases"]
    assert state["defaults"]["client"] == [time_not_sent_message()]


class Listener(StartedListener):
    """Keeps the commands that were sent."""

    def __init__(self) -> None:
        self.commands: list[Document] = []

    @override
    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.commands.append(dict(event.command))


def test_the_server_gets_the_cluster_time(workspace: BulkWorkspace) -> None:
    listener = Listener()
    with MongoClient[Document](workspace.name.url, event_listeners=[listener]) as client:
        mongo = {"Client": client, "Database": workspace.name.name}
        with (
            twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}}) as storage,
            storage.bulk.view(as_of=storage.bulk.position()) as view,
        ):
            for read in (view.records, view.rows):
                list(read(RUNS, ALL))
            for read_of in (view.records_of, view.rows_of):
                list(read_of(RUNS, [("r-1",)]))
    reads = [command for command in listener.commands if {"find", "aggregate"} & set(command)]
    assert len(reads) == 4
    assert {command["readConcern"]["level"] for command in reads} == {"snapshot"}
    assert all("atClusterTime" in command["readConcern"] for command in reads)
    assert all("maxTimeMS" in command for command in reads)


def test_a_position_of_another_store_is_refused(workspace: BulkWorkspace) -> None:
    with pytest.raises(ValidationError, match="position"):
        records(workspace, RUNS, as_of="0/16B3748")


def test_the_identity_names_server_and_database_without_secrets(workspace: BulkWorkspace) -> None:
    config = workspace.database.client.admin.command("replSetGetConfig")["config"]
    assert workspace.bulk.identity == f"Mongo {config['settings']['replicaSetId']}/{workspace.database.name}"
    assert workspace.bulk.place.startswith("Mongo 127.0.0.1:")
    assert workspace.bulk.place.endswith(f"/{workspace.database.name}")
    assert "replicaSet" not in workspace.bulk.place


def test_a_view_reads_one_list_at_a_time_and_none_after_its_end(source: BulkWorkspace) -> None:
    with source.bulk.view() as view:
        first = view.records(RUNS, ALL, batch_size=1)
        next(first)
        with pytest.raises(ValidationError, match="reading a list already"):
            next(view.rows(RUNS, ALL))
        assert sum(map(len, first)) == 6
        half = view.rows(RUNS, ALL, batch_size=1)
        next(half)
    for stream in (half, view.records(RUNS, ALL)):
        with pytest.raises((StopIteration, TransactionAbortedError)):
            next(stream)


# ------------------------------------------------------------------------------------- import


def test_copied_documents_equal_those_of_the_repositories_and_a_second_copy_writes_none(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    for entity in SCHEDULER.entities:
        rows = records(source, entity)
        assert copy(workspace, entity, rows).written == {T: 7}
        # A run that was given a log has been written more often than its copy.
        free = {"_version": 1} if entity.versioned else {}
        there, here = (
            [bson.encode({**item, **free}) for item in side.database[entity.name].find().sort("_id")]
            for side in (source, workspace)
        )
        assert here == there
        written = workspace.oplog()
        again = copy(workspace, entity, rows)
        assert (again.written, again.unchanged) == ({}, {T: 7})
        assert workspace.oplog() == written


@pytest.mark.parametrize(("number", "conflicts"), [(int, []), (float, [("r-1",)]), (Int64, [("r-1",)])])
def test_another_version_or_field_order_is_no_difference_but_another_number_type_is(
    source: BulkWorkspace, workspace: BulkWorkspace, number: Callable[[int], object], conflicts: list[object]
) -> None:
    rows = records(source, RUNS)
    copy(workspace, RUNS, rows)
    document = workspace.database["runs"].find_one({"_id": "r-1"})
    assert document is not None
    stats = {name: number(value) for name, value in document["stats"].items()}
    turned = {"_id": "r-1", **dict(reversed(document.items())), "_version": Int64(9), "stats": stats}
    workspace.database["runs"].replace_one({"_id": "r-1"}, turned)
    outcome = copy(workspace, RUNS, rows)
    assert [conflict.key for conflict in outcome.conflicts] == conflicts
    assert sum(outcome.unchanged.values()) == 7 - len(conflicts)


def test_a_row_with_other_content_is_left_or_overwritten_as_asked(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    rows = records(source, RUNS)
    copy(workspace, RUNS, rows)
    run = workspace.storage.runs.get_required(T, "r-1")
    workspace.storage.runs.update(run.evolve(state=RunState.QUEUED))
    with workspace.bulk.writer(RUNS) as writer:
        writer.write(rows)
        # A copy looks at these rows before it opens the transaction of the range, which the server bounds.
        assert writer.conflicts() == (Conflict(("r-1",), Tenant(T)),)
        left = writer.flush()
    assert (left.written, left.conflicts) == ({}, (Conflict(("r-1",), Tenant(T)),))
    assert workspace.storage.runs.get_required(T, "r-1").state == "queued"
    forced = copy(workspace, RUNS, rows, overwrite=True)
    assert (forced.written, forced.conflicts) == ({T: 1}, (Conflict(("r-1",), Tenant(T), overwritten=True),))
    assert contents(workspace, RUNS) == contents(source, RUNS)
    document = workspace.database["runs"].find_one({"_id": "r-1"})
    assert document is not None
    assert document["_version"] == 3


def test_an_append_only_row_is_never_overwritten(source: BulkWorkspace, workspace: BulkWorkspace) -> None:
    rows = records(source, AUDIT)
    copy(workspace, AUDIT, rows)
    workspace.database["audit"].update_one({"_id": "a-1"}, {"$set": {"message": "changed"}})
    outcome = copy(workspace, AUDIT, rows, overwrite=True)
    assert (outcome.written, outcome.conflicts) == ({}, (Conflict(("a-1",), Tenant(T)),))


def test_an_undecodable_row_in_the_target_is_a_conflict(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    workspace.force("runs", {"_id": "r-1", "tenantId": T})
    outcome = copy(workspace, RUNS, records(source, RUNS))
    assert (outcome.written, outcome.conflicts) == ({T: 6}, (Conflict(("r-1",), Tenant(T)),))


def test_refused_records_are_set_aside_and_the_others_written(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    workspace.storage.schedules.upsert(make_schedule(T, "mine", name="n-3"))
    workspace.database.command(
        "collMod", "schedules", validator={"$or": [{"name": {"$nin": ["n-1", "n-5"]}}, {"never": True}]}
    )
    outcome = copy(workspace, SCHEDULES, records(source, SCHEDULES))
    reasons = {item.record.key: item.reason for item in outcome.rejected}
    assert reasons == {
        ("s-1",): "the validator of the target refuses it",
        ("s-3",): "a unique value of index tenant_name is taken in the target",
        ("s-5",): "the validator of the target refuses it",
    }
    assert outcome.written == {T: 4}
    assert set(contents(workspace, SCHEDULES)) == {("mine",), ("s-0",), ("s-2",), ("s-4",), ("s-6",)}
    (progress,) = workspace.ledger.ranges(JOB)
    assert progress.state is RangeState.LIVE
    assert progress.tally == RangeTally(read={}, written={T: 4})


def test_refused_replacements_are_set_aside_too(source: BulkWorkspace, workspace: BulkWorkspace) -> None:
    rows = records(source, SCHEDULES)
    copy(workspace, SCHEDULES, rows)
    workspace.database["schedules"].update_many({}, {"$set": {"updatedBy": "else"}})
    workspace.database.command("collMod", "schedules", validator={"name": {"$ne": "n-3"}})
    outcome = copy(workspace, SCHEDULES, rows, overwrite=True)
    assert outcome.written == {T: 6}
    assert [item.record.key for item in outcome.rejected] == [("s-3",)]
    assert [item.key for item in outcome.conflicts] == [
        ("s-0",),
        ("s-1",),
        ("s-2",),
        ("s-4",),
        ("s-5",),
        ("s-6",),
    ]


def test_a_document_that_does_not_fit_is_set_aside(source: BulkWorkspace, workspace: BulkWorkspace) -> None:
    images = [make_image(number, labels={"x": "y" * 1_000_000}) for number in range(17)]
    huge = make_impact_set(snapshot_id="huge", images=tuple(images))
    storage = {"snapshotId": "huge", "tenantId": T, "selectorDigest": "sha256:0"}
    rows = [*records(source, IMPACT_SNAPSHOTS), Record(("huge",), Tenant(T), huge, storage)]
    outcome = copy(workspace, IMPACT_SNAPSHOTS, rows)
    assert [item.record.key for item in outcome.rejected] == [("huge",)]
    assert outcome.written == {T: 7}


def test_a_snapshot_under_a_key_that_a_read_would_not_give_back_is_set_aside(
    workspace: BulkWorkspace,
) -> None:
    storage = {"snapshotId": "strange", "tenantId": T, "selectorDigest": "sha256:0"}
    outcome = copy(workspace, IMPACT_SNAPSHOTS, [Record(("strange",), Tenant(T), make_impact_set(), storage)])
    (rejected,) = outcome.rejected
    assert "neither its own" in rejected.reason


def heavy(number: int) -> Record:
    image = make_image(1, labels={"x": "y" * 1_000_000})
    snapshot = make_impact_set(snapshot_id=f"i-{number:02}", images=(image,))
    storage = {"snapshotId": f"i-{number:02}", "tenantId": T, "selectorDigest": "sha256:0"}
    return Record((f"i-{number:02}",), Tenant(T), snapshot, storage)


def test_a_heavy_range_is_written_in_parts_and_finished_once(workspace: BulkWorkspace) -> None:
    count = 3 * PART_BYTES // 1_000_000
    checks: list[int] = []
    ledger = workspace.ledger
    claim = claimed(workspace, IMPACT_SNAPSHOTS)

    def check(access: Access) -> None:
        ledger.hold(access, claim)
        checks.append(workspace.bulk.counts(IMPACT_SNAPSHOTS).get(T, 0))

    with workspace.bulk.writer(IMPACT_SNAPSHOTS, check=check) as writer:
        for number in range(count):
            writer.write([heavy(number)])
        outcome = writer.flush()
        ledger.finish(writer.access, claim, tally(outcome))
        assert [item.state for item in ledger.ranges(JOB)] == [RangeState.COPYING]
        writer.commit()
    assert outcome.written == {T: count}
    assert len(checks) == 2
    assert checks[0] == 0 < checks[1] < count
    assert [item.state for item in ledger.ranges(JOB)] == [RangeState.LIVE]
    again = copy(workspace, IMPACT_SNAPSHOTS, iter([[heavy(number)] for number in range(count)]))
    assert again.unchanged == {T: count}


@pytest.mark.parametrize("reading", ["records", "packed"])
def test_a_range_of_many_small_documents_is_cut_by_the_entries_of_its_indexes(
    own_source: BulkWorkspace, workspace: BulkWorkspace, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    """One by one or packed, with some refused and some there already next to the cuts."""
    part, count = 7, 45
    monkeypatch.setattr(
        "twinstore_mongo.bulk.writer.PART_ENTRIES", part * (1 + len(index_specs(SCHEDULES))) + 1
    )
    for number in range(count):
        own_source.storage.schedules.upsert(make_schedule(T, f"s-{number:02}", name=f"n-{number:02}"))
    for number in (6, 7, 20):
        taken = make_schedule(T, f"mine-{number}", name=f"n-{number:02}")
        workspace.storage.schedules.upsert(taken)
    with own_source.bulk.view() as view:
        read = view.packed if reading == "packed" else view.records
        batches = list(read(SCHEDULES, ALL, batch_size=part + 3))
    assert all(isinstance(batch, PackedBatch) == (reading == "packed") for batch in batches)
    copy(workspace, SCHEDULES, batches[2][:2])
    before: list[int] = []

    def check(_: Access) -> None:
        before.append(workspace.bulk.counts(SCHEDULES)[T])

    with workspace.bulk.writer(SCHEDULES, check=check) as writer:
        for batch in batches:
            writer.write(batch)
        assert len(before) >= count // part
        outcome = writer.flush()
        before.append(workspace.bulk.counts(SCHEDULES)[T])
        writer.commit()
    before.append(workspace.bulk.counts(SCHEDULES)[T])
    assert max(after - earlier for earlier, after in pairwise(before)) == part
    rejected = [item.record.key for item in outcome.rejected]
    assert rejected == [("s-06",), ("s-07",), ("s-20",)]
    assert (outcome.unchanged, outcome.written) == ({T: 1}, {T: count - 4})
    stored = contents(workspace, SCHEDULES)
    wanted = {key: content for key, content in contents(own_source, SCHEDULES).items() if key not in rejected}
    assert {key: content for key, content in stored.items() if key in wanted} == wanted
    assert len(stored) == len(wanted) + 3


def test_no_part_is_written_after_the_range_was_taken_over(workspace: BulkWorkspace) -> None:
    claim = claimed(workspace, IMPACT_SNAPSHOTS)
    ledger = workspace.ledger
    with workspace.bulk.writer(IMPACT_SNAPSHOTS, check=partial(ledger.hold, claim=claim)) as writer:
        writer.write([heavy(0)])
        take_over(ledger, claim)
        with pytest.raises(LeaseLostError):
            writer.write([heavy(number) for number in range(1, 9)])
    assert workspace.bulk.counts(IMPACT_SNAPSHOTS) == {}


def claimed(workspace: BulkWorkspace, entity: Entity) -> Claim:
    ledger = workspace.ledger
    ledger.start(JOB, {}, START)
    lease = ledger.acquire(JOB, "me", HOUR)
    ledger.plan(lease, entity.name, [ALL])
    claim = ledger.take(JOB, "worker", entity.name, HOUR)
    assert claim is not None
    return claim


def take_over(ledger: Ledger, claim: Claim) -> None:
    ledger.leave(JOB, claim.worker)
    assert ledger.take(JOB, "heir", claim.entity, HOUR) is not None


@pytest.fixture
def three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the writer give up soon if the other one never does; it would go on for ten seconds."""
    monkeypatch.setattr("twinstore_mongo.bulk.writer.retry", partial(retry, attempts=3))


@pytest.mark.usefixtures("three_attempts")
def test_a_row_in_a_concurrent_transaction_makes_the_range_fail_as_a_whole(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    client = workspace.database.client
    with client.start_session() as session, session.start_transaction():
        workspace.database["runs"].insert_one({**make_document("r-3")}, session=session)
        with workspace.bulk.writer(RUNS) as writer:
            writer.write(records(source, RUNS))
            with pytest.raises(ConcurrencyError):
                writer.flush()
    outcome = copy(workspace, RUNS, records(source, RUNS))
    # The concurrent writer stored 32-bit integers and no version, which no copy does.
    assert (outcome.written, [conflict.key for conflict in outcome.conflicts]) == ({T: 6}, [("r-3",)])


@pytest.mark.usefixtures("three_attempts")
def test_a_row_removed_before_it_is_overwritten_makes_the_range_fail_as_a_whole(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    copy(workspace, RUNS, records(source, RUNS))
    workspace.database["runs"].update_many({}, {"$set": {"error": "else"}})
    with workspace.bulk.writer(RUNS, on_conflict="overwrite") as writer:
        writer.write(records(source, RUNS))
        workspace.database["runs"].delete_one({"_id": "r-3"})
        with pytest.raises(ConcurrencyError, match="removed meanwhile"):
            writer.flush()
    assert sum(workspace.bulk.counts(RUNS).values()) == 6
    outcome = copy(workspace, RUNS, records(source, RUNS), overwrite=True)
    assert (outcome.written, len(outcome.conflicts)) == ({T: 7}, 6)


def test_rows_are_removed_and_written_in_the_order_of_the_calls(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    rows = records(source, SCHEDULES)
    keys = [record.key for record in rows if record.key is not None]
    with workspace.bulk.writer(SCHEDULES) as writer:
        writer.write(rows)
        writer.remove([keys[1], ("absent",)])
        writer.remove([keys[2]])
        writer.write([rows[2]])
        outcome = writer.flush()
        writer.commit()
    assert (outcome.written, outcome.removed) == ({T: 8}, 2)
    assert list(contents(workspace, SCHEDULES)) == [keys[0], *keys[2:]]


def test_children_are_removed_with_their_parents_however_many(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    for entity in (SCHEDULES, TRIGGERS):
        copy(workspace, entity, records(source, entity))
    keys = [(f"s-{number}",) for number in range(1, 7)]
    with workspace.bulk.writer(SCHEDULES) as writer:
        writer.remove([*keys, *((f"absent-{number}",) for number in range(1200))])
        assert writer.flush().removed == 6
        assert workspace.bulk.counts(TRIGGERS) == {T: 7}
        writer.commit()
    assert (workspace.bulk.counts(SCHEDULES), workspace.bulk.counts(TRIGGERS)) == ({T: 1}, {T: 1})


def test_a_flushed_writer_takes_no_more_rows_and_a_fresh_one_has_no_transaction(
    workspace: BulkWorkspace,
) -> None:
    with workspace.bulk.writer(RUNS) as writer:
        with pytest.raises(ValidationError, match="before flush"):
            _ = writer.access
        writer.flush()
        with pytest.raises(ValidationError, match="was flushed"):
            writer.write([])
        with pytest.raises(ValidationError, match="was flushed"):
            writer.remove([])
        writer.commit()
        with pytest.raises(TransactionAbortedError):
            writer.access.find(RUNS, ALL_TENANTS, [("r-1",)])


def test_a_caught_error_of_the_store_undoes_the_range(
    source: BulkWorkspace, workspace: BulkWorkspace
) -> None:
    with workspace.bulk.writer(RUNS) as writer:
        writer.write(records(source, RUNS))
        writer.flush()
        run = make_run(T, "r-1")
        with pytest.raises(DuplicateError):
            writer.access.insert(RUNS, ALL_TENANTS, Row(run))
        with pytest.raises(TransactionAbortedError):
            writer.commit()
    assert contents(workspace, RUNS) == {}


# ------------------------------------------------------------------------------------- ledger


def test_jobs_are_listed_with_the_latest_start_first(workspace: BulkWorkspace) -> None:
    ledger = workspace.ledger
    for name in ("a", "b"):
        ledger.start(name, {}, START)
    workspace.database[JOBS.collection].update_one({"_id": "a"}, {"$set": {"startedAt": START}})
    assert [job.id for job in ledger.jobs()] == ["b", "a"]


def test_a_wrong_handle_is_refused(workspace: BulkWorkspace) -> None:
    with pytest.raises(ConfigurationError, match="ClientSession"):
        workspace.storage.bind(object(), T)
