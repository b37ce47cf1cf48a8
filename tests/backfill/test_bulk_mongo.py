from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, monitoring

import twinstore
from twinstore.bulk import (
    BulkPort,
    Conflict,
    ImportOutcome,
    JobState,
    KeyRange,
    Lease,
    RangeState,
    RangeTally,
    Record,
)
from twinstore.errors import ConfigurationError, LeaseLostError, NotFoundError, ValidationError
from twinstore.jsontext import dumps_sorted
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULER, SCHEDULES
from twinstore.testing.builders import (
    START,
    at,
    make_image,
    make_impact_set,
    make_run,
    make_schedule,
    rich_audit_record,
    rich_impact_set,
    rich_run_summary,
    rich_schedule,
)
from twinstore_mongo.bulk_import import PART_BYTES

if TYPE_CHECKING:
    from pymongo.database import Database

    from tests.databases import MongoDatabase, MongoServer
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerStorage

Document = dict[str, Any]
T = "tenant-1"
HOUR = timedelta(hours=1)
ALL = KeyRange()
JOB = "job"


@dataclass(frozen=True)
class Bench:
    """A migrated database with a client past the driver."""

    storage: SchedulerStorage
    database: Database[Document]
    name: MongoDatabase

    @property
    def bulk(self) -> BulkPort:
        return self.storage.bulk

    def oplog(self) -> int:
        """Return the number of writes to the data of this database."""
        log = self.database.client["local"]["oplog.rs"]
        spaces = {"$in": [f"{self.database.name}.{entity.name}" for entity in SCHEDULER.entities]}
        return log.count_documents({"$or": [{"ns": spaces}, {"o.applyOps.ns": spaces}]})

    def force(self, collection: str, *documents: Document | RawBSONDocument) -> None:
        """Insert documents past the validator."""
        self.database.get_collection(collection).insert_many(documents, bypass_document_validation=True)


def bench_of(server: MongoServer, database: MongoDatabase) -> Iterator[Bench]:
    config = {**database.config, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}
    with twinstore.add_scheduler_storage(config) as storage:
        storage.initializer.ensure_migrations()
        client: Any = server.client
        yield Bench(storage, client[database.name], database)


@pytest.fixture
def bench(mongo_server: MongoServer, mongo_database: MongoDatabase) -> Iterator[Bench]:
    yield from bench_of(mongo_server, mongo_database)


@pytest.fixture
def source(mongo_server: MongoServer) -> Iterator[Bench]:
    with mongo_server.database() as database:
        yield from bench_of(mongo_server, database)


def fill(bench: Bench) -> None:
    storage = bench.storage
    for number in range(7):
        storage.schedules.upsert(rich_schedule(T, f"s-{number}").evolve(name=f"n-{number}"))
        storage.runs.create(make_run(T, f"r-{number}"))
        storage.audit.append(rich_audit_record(T, f"a-{number}"))
        storage.run_summaries.upsert(rich_run_summary(T, f"s-{number}"))
        own = f"i-{number}" if number % 2 else None
        snapshot = rich_impact_set(T).evolve(snapshot_id=own, generated_at=at(number))
        storage.impact_snapshots.upsert(T, snapshot, run_id=f"r-{number}" if number % 3 else None)
    storage.schedules.soft_delete(T, "s-0", "me", datetime(2026, 1, 1, tzinfo=UTC))


def records(bench: Bench, entity: Entity, within: KeyRange = ALL, **options: Any) -> list[Record]:  # noqa: ANN401  # options of export
    return [record for batch in bench.bulk.export(entity, within, **options) for record in batch]


def contents(bench: Bench, entity: Entity) -> dict[object, bytes]:
    return {row.key: row.content for batch in bench.bulk.scan(entity, ALL) for row in batch}


def tally(outcome: ImportOutcome) -> RangeTally:
    return RangeTally(read={}, written=outcome.written, unchanged=outcome.unchanged)


@dataclass
class Copier:
    """Copies entities into a bench under one lease."""

    target: Bench
    lease: Lease

    @classmethod
    def of(cls, target: Bench) -> Copier:
        ledger = target.bulk.ledger()
        ledger.start(JOB, {"from": "here"}, START)
        return cls(target, ledger.acquire(JOB, "me", HOUR))

    def copy(
        self,
        entity: Entity,
        rows: Sequence[Record] | Iterator[list[Record]],
        *,
        overwrite: bool = False,
    ) -> ImportOutcome:
        """Import everything as one range."""
        ledger = self.target.bulk.ledger()
        ledger.plan(self.lease, entity.name, [ALL])
        (progress,) = ledger.ranges(JOB, entity.name)
        claim = ledger.claim(self.lease, progress.number)
        batches = iter([list(rows)]) if isinstance(rows, Sequence) else rows
        with self.target.bulk.importing() as importer:
            return importer.import_range(
                entity,
                batches,
                on_conflict="overwrite" if overwrite else "fail",
                claim=claim,
                tally=tally,
            )


# ------------------------------------------------------------------------------------ reading


def test_keys_that_are_no_text_are_seen_by_export_and_scan(bench: Bench) -> None:
    fill(bench)
    odd: list[Document] = [{"_id": key} for key in (5, bson.ObjectId(), {"a": 1}, True, None)]
    bench.force("runs", *odd)
    exported = records(bench, RUNS, batch_size=3)
    scanned = [row for batch in bench.bulk.scan(RUNS, ALL, batch_size=4) for row in batch]
    assert [record.key for record in exported] == [row.key for row in scanned]
    assert sum(record.key is None for record in exported) == len(odd)
    broken = [record for record in exported if record.error is not None]
    assert len(broken) == len(odd)
    assert all(record.model is None and record.raw for record in broken)


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("entity", [RUNS, RUN_SUMMARIES], ids=lambda entity: entity.name)
def test_the_ranges_cover_every_row_once(bench: Bench, entity: Entity, rows: int) -> None:
    fill(bench)
    bench.force(
        entity.name, {"_id": 5, "tenantId": 7}, {"_id": bson.ObjectId(), "tenantId": T, "scheduleId": 9}
    )
    ranges = list(bench.bulk.cut(entity, rows))
    assert (ranges[0].lower, ranges[-1].upper) == (None, None)
    assert [item.upper for item in ranges[:-1]] == [item.lower for item in ranges[1:]]
    whole = records(bench, entity)
    assert [row.key for item in ranges for row in records(bench, entity, item)] == [row.key for row in whole]
    scanned = [row for item in ranges for batch in bench.bulk.scan(entity, item) for row in batch]
    assert [row.key for row in scanned] == [row.key for row in whole]
    assert len(whole) == 9


def test_an_empty_entity_is_one_empty_range(bench: Bench) -> None:
    assert list(bench.bulk.cut(RUNS, 5)) == [ALL]
    assert list(bench.bulk.export(RUNS, ALL)) == []
    assert list(bench.bulk.scan(RUNS, ALL)) == []
    assert bench.bulk.counts(RUNS) == {}


def test_one_tenant_can_be_read_alone(bench: Bench) -> None:
    fill(bench)
    bench.storage.runs.create(make_run("other", "r-3a"))
    assert bench.bulk.counts(RUNS) == {"other": 1, T: 7}
    assert bench.bulk.counts(RUNS, tenant_id="other") == {"other": 1}
    assert [record.key for record in records(bench, RUNS, tenant_id="other")] == [("r-3a",)]
    assert len(list(bench.bulk.cut(RUNS, 3, tenant_id="other"))) == 1


def test_rows_without_a_tenant_are_counted_under_the_empty_text(bench: Bench) -> None:
    bench.force("runs", {"_id": "x"}, {"_id": "y", "tenantId": 5}, {"_id": "z", "tenantId": T})
    assert bench.bulk.counts(RUNS) == {"": 2, T: 1}


@pytest.mark.parametrize("entity", SCHEDULER.entities, ids=lambda entity: entity.name)
def test_the_scan_writes_what_the_models_mean(bench: Bench, entity: Entity) -> None:
    fill(bench)
    expected = {
        record.key: dumps_sorted({"doc": record.model.wire(), "storage": dict(record.storage)})
        for record in records(bench, entity)
        if record.model is not None
    }
    assert contents(bench, entity) == expected
    assert len(expected) == 7


def test_markers_come_with_the_records(bench: Bench) -> None:
    fill(bench)
    deleted, *others = records(bench, SCHEDULES)
    assert deleted.storage == {"deletedAt": datetime(2026, 1, 1, tzinfo=UTC), "deletedBy": "me"}
    assert {len(record.storage) for record in others} == {0}
    for record in records(bench, IMPACT_SNAPSHOTS):
        assert record.key == (record.storage["snapshotId"],)
        assert record.storage["tenantId"] == record.tenant_id == T


def test_single_rows_are_fetched_as_the_scan_has_them(bench: Bench) -> None:
    fill(bench)
    for entity in (RUNS, RUN_SUMMARIES, IMPACT_SNAPSHOTS):
        wanted = contents(bench, entity)
        keys = [key for key in wanted if isinstance(key, tuple)]
        absent = tuple("absent" for _ in entity.key)
        assert {row.key: row.content for row in bench.bulk.fetch(entity, [*keys, absent])} == wanted


def test_instants_stored_as_text_count_as_equal_and_are_reported(bench: Bench) -> None:
    run = bench.storage.runs.create(make_run(T, "r-1"))
    (before,) = contents(bench, RUNS).values()
    change = {"$set": {"createdAt": "2025-10-26T15:05:00+01:00"}}
    bench.database.command("update", "runs", updates=[{"q": {}, "u": change}], bypassDocumentValidation=True)
    ((row,),) = bench.bulk.scan(RUNS, ALL)
    (record,) = records(bench, RUNS)
    assert (row.content, row.text_timestamp) == (before, True)
    assert (record.model, record.text_timestamp) == (run, True)


def test_whole_doubles_and_nulls_change_no_content(bench: Bench) -> None:
    bench.storage.runs.create(make_run(T, "r-1"))
    (before,) = contents(bench, RUNS).values()
    change: Document = {"$set": {"stats.queued": 0.0, "reason": None, "deltas": []}}
    bench.database.command("update", "runs", updates=[{"q": {}, "u": change}], bypassDocumentValidation=True)
    assert list(contents(bench, RUNS).values()) == [before]


@pytest.mark.parametrize(
    "change",
    [
        {"stats.queued": 1},
        {"stats.queued": 0.5},
        {"createdAt": at(0.001)},
        {"scheduleId": "s-1 "},
        {"extra": bson.Decimal128("1")},
        {"extra": bson.ObjectId()},
        {"extra": float("nan")},
        {"extra": bson.Binary(b"x")},
        {"id": "other"},
        {"tenantId": 5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_scan_sees_every_change(bench: Bench, change: Document) -> None:
    bench.storage.runs.create(make_run(T, "r-1", schedule_id="s-1"))
    (before,) = contents(bench, RUNS).values()
    update = {"q": {}, "u": {"$set": change}}
    bench.database.command("update", "runs", updates=[update], bypassDocumentValidation=True)
    (after,) = contents(bench, RUNS).values()
    assert after != before
    assert list(contents(bench, RUNS).values()) == [after]


def test_an_id_that_is_not_utf_8_is_a_row_without_a_key(bench: Bench) -> None:
    fill(bench)
    sound = len(records(bench, RUNS))
    good = RawBSONDocument(bson.encode({"_id": "XXXX", "tenantId": T}))
    bench.force("runs", RawBSONDocument(bytes(good.raw).replace(b"XXXX", b"r\xff-1")))
    rows = [row for batch in bench.bulk.scan(RUNS, KeyRange()) for row in batch]
    assert len(rows) == sound + 1
    assert [row.tenant_id for row in rows if row.key is None] == [T]


def test_text_that_is_not_utf_8_spoils_one_row_only(bench: Bench) -> None:
    fill(bench)
    good = RawBSONDocument(bson.encode({"_id": "r-3a", "tenantId": T, "error": "XXXX"}))
    bench.force("runs", RawBSONDocument(bytes(good.raw).replace(b"XXXX", b"\xff\xfe\xff\xfe")))
    exported = records(bench, RUNS)
    (broken,) = [record for record in exported if record.error is not None]
    assert (broken.key, broken.tenant_id) == (("r-3a",), T)
    assert "UTF-8" in str(broken.error)
    scanned = contents(bench, RUNS)
    assert list(scanned) == [record.key for record in exported]


def test_an_instant_beyond_the_calendar_spoils_one_row_only(bench: Bench) -> None:
    fill(bench)
    far = DatetimeMS(2**60)
    bench.force("runs", {**make_document("r-9"), "createdAt": far})
    (broken,) = [record for record in records(bench, RUNS) if record.error is not None]
    assert broken.key == ("r-9",)
    assert str(2**60) in str(broken.raw)
    assert len(contents(bench, RUNS)) == 8


def make_document(key: str) -> Document:
    wire = make_run(T, key).wire()
    return {"_id": wire.pop("id"), **wire}


def test_the_raw_form_keeps_types(bench: Bench) -> None:
    bench.force("runs", {"_id": "x", "tenantId": T, "a": bson.Int64(5), "b": 5})
    (record,) = records(bench, RUNS)
    assert '"a": {"$numberLong": "5"}' in str(record.raw)
    assert '"b": {"$numberInt": "5"}' in str(record.raw)


def test_the_retention_instant_comes_with_the_row(bench: Bench) -> None:
    run = bench.storage.runs.create(make_run(T, "r-1"))
    bench.storage.runs.update(run.evolve(state="cancelled", finished_at=at(9)))
    ((row,),) = bench.bulk.scan(RUNS, ALL)
    assert row.expires == at(9)


# ------------------------------------------------------------------------------ points in time


@pytest.mark.parametrize("reading", ["export", "scan"])
def test_a_position_shows_the_past_across_batches(bench: Bench, reading: str) -> None:
    fill(bench)
    position = bench.bulk.position()
    read: Callable[..., Iterator[list[Any]]] = getattr(bench.bulk, reading)
    rows = read(RUNS, ALL, batch_size=2, as_of=position)
    first = next(rows)
    bench.database["runs"].delete_many({})
    bench.storage.runs.create(make_run(T, "r-0new"))
    keys = [row.key for batch in [first, *rows] for row in batch]
    assert keys == [(f"r-{number}",) for number in range(7)]
    again = [row.key for batch in read(RUNS, ALL, batch_size=2, as_of=position) for row in batch]
    assert again == keys
    assert [row.key for batch in read(RUNS, ALL) for row in batch] == [("r-0new",)]


def test_positions_follow_the_writes(bench: Bench) -> None:
    before = bench.bulk.position()
    bench.storage.runs.create(make_run(T, "r-1"))
    after = bench.bulk.position()
    assert before is not None
    assert after is not None
    assert tuple(map(int, before.split("."))) < tuple(map(int, after.split(".")))
    assert records(bench, RUNS, as_of=before) == []
    assert len(records(bench, RUNS, as_of=after)) == 1


class Listener(monitoring.CommandListener):
    """Keeps the commands that were sent."""

    def __init__(self) -> None:
        self.commands: list[Document] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.commands.append(dict(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def test_the_server_gets_the_cluster_time(bench: Bench) -> None:
    listener = Listener()
    with MongoClient[Document](bench.name.url, event_listeners=[listener]) as client:
        mongo = {"Client": client, "Database": bench.name.name}
        with twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}}) as storage:
            for name in ("export", "scan"):
                list(getattr(storage.bulk, name)(RUNS, ALL, as_of=storage.bulk.position()))
    reads = [command for command in listener.commands if {"find", "aggregate"} & set(command)]
    assert {command["readConcern"]["level"] for command in reads} == {"snapshot"}
    assert all("atClusterTime" in command["readConcern"] for command in reads)
    assert all("maxTimeMS" in command for command in reads)


def test_a_position_of_another_store_is_refused(bench: Bench) -> None:
    with pytest.raises(ValidationError, match="position"):
        records(bench, RUNS, as_of="0/16B3748")


def test_the_identity_names_server_and_database_without_secrets(bench: Bench) -> None:
    assert bench.bulk.identity.startswith("Mongo 127.0.0.1:")
    assert bench.bulk.identity.endswith(f"/{bench.database.name}")
    assert "replicaSet" not in bench.bulk.identity


# ------------------------------------------------------------------------------------- import


@pytest.mark.parametrize("entity", SCHEDULER.entities, ids=lambda entity: entity.name)
def test_a_copy_is_equal_and_the_second_one_writes_nothing(
    source: Bench, bench: Bench, entity: Entity
) -> None:
    fill(source)
    copier = Copier.of(bench)
    rows = records(source, entity)
    assert copier.copy(entity, rows).written == {T: 7}
    assert contents(bench, entity) == contents(source, entity)
    written = bench.oplog()
    again = copier.copy(entity, rows)
    assert (again.written, again.unchanged) == ({}, {T: 7})
    assert bench.oplog() == written


def test_copied_documents_equal_those_of_the_repositories(source: Bench, bench: Bench) -> None:
    fill(source)
    copier = Copier.of(bench)
    for entity in SCHEDULER.entities:
        copier.copy(entity, records(source, entity))
        there = [bson.encode(item) for item in source.database[entity.name].find().sort("_id")]
        here = [bson.encode(item) for item in bench.database[entity.name].find().sort("_id")]
        assert here == there


def test_another_version_field_order_or_number_type_is_no_difference(source: Bench, bench: Bench) -> None:
    fill(source)
    copier = Copier.of(bench)
    rows = records(source, RUNS)
    copier.copy(RUNS, rows)
    document = bench.database["runs"].find_one({"_id": "r-1"})
    assert document is not None
    stats = {name: float(value) for name, value in document["stats"].items()}
    turned = {"_id": "r-1", "_version": 9, **dict(reversed(document.items())), "stats": stats}
    bench.database["runs"].replace_one({"_id": "r-1"}, turned)
    assert copier.copy(RUNS, rows).unchanged == {T: 7}


def test_a_row_with_other_content_is_left_or_overwritten_as_asked(source: Bench, bench: Bench) -> None:
    fill(source)
    copier = Copier.of(bench)
    rows = records(source, RUNS)
    copier.copy(RUNS, rows)
    run = bench.storage.runs.get_required(T, "r-1")
    bench.storage.runs.update(run.evolve(state="queued"))
    left = copier.copy(RUNS, rows)
    assert (left.written, left.conflicts) == ({}, (Conflict(("r-1",), T),))
    assert bench.storage.runs.get_required(T, "r-1").state == "queued"
    forced = copier.copy(RUNS, rows, overwrite=True)
    assert (forced.written, forced.conflicts) == ({T: 1}, (Conflict(("r-1",), T, overwritten=True),))
    assert contents(bench, RUNS) == contents(source, RUNS)
    document = bench.database["runs"].find_one({"_id": "r-1"})
    assert document is not None
    assert document["_version"] == 3


def test_an_append_only_row_is_never_overwritten(source: Bench, bench: Bench) -> None:
    fill(source)
    copier = Copier.of(bench)
    rows = records(source, AUDIT)
    copier.copy(AUDIT, rows)
    bench.database["audit"].update_one({"_id": "a-1"}, {"$set": {"message": "changed"}})
    outcome = copier.copy(AUDIT, rows, overwrite=True)
    assert (outcome.written, outcome.conflicts) == ({}, (Conflict(("a-1",), T),))


def test_an_undecodable_row_in_the_target_is_a_conflict(source: Bench, bench: Bench) -> None:
    fill(source)
    bench.force("runs", {"_id": "r-1", "tenantId": T})
    outcome = Copier.of(bench).copy(RUNS, records(source, RUNS))
    assert (outcome.written, outcome.conflicts) == ({T: 6}, (Conflict(("r-1",), T),))


def test_refused_records_are_set_aside_and_the_others_written(source: Bench, bench: Bench) -> None:
    fill(source)
    bench.storage.schedules.upsert(make_schedule(T, "mine", name="n-3"))
    bench.database.command(
        "collMod", "schedules", validator={"$or": [{"name": {"$nin": ["n-1", "n-5"]}}, {"never": True}]}
    )
    outcome = Copier.of(bench).copy(SCHEDULES, records(source, SCHEDULES))
    reasons = {item.record.key: item.reason for item in outcome.rejected}
    assert reasons == {
        ("s-1",): "the validator of the target refuses it",
        ("s-3",): "a unique value of index ux_tenantId_name is taken in the target",
        ("s-5",): "the validator of the target refuses it",
    }
    assert outcome.written == {T: 4}
    assert set(contents(bench, SCHEDULES)) == {("mine",), ("s-0",), ("s-2",), ("s-4",), ("s-6",)}
    (progress,) = bench.bulk.ledger().ranges(JOB)
    assert progress.state is RangeState.LIVE
    assert progress.tally == RangeTally(read={}, written={T: 4})


def test_refused_replacements_are_set_aside_too(source: Bench, bench: Bench) -> None:
    fill(source)
    copier = Copier.of(bench)
    rows = records(source, SCHEDULES)
    copier.copy(SCHEDULES, rows)
    bench.database["schedules"].update_many({}, {"$set": {"updatedBy": "else"}})
    bench.database.command("collMod", "schedules", validator={"name": {"$ne": "n-3"}})
    outcome = copier.copy(SCHEDULES, rows, overwrite=True)
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


def test_a_document_that_does_not_fit_is_set_aside(source: Bench, bench: Bench) -> None:
    fill(source)
    images = [make_image(number, labels={"x": "y" * 1_000_000}) for number in range(17)]
    huge = make_impact_set(snapshot_id="huge", images=tuple(images))
    storage = {"snapshotId": "huge", "tenantId": T, "selectorDigest": "sha256:0"}
    rows = [*records(source, IMPACT_SNAPSHOTS), Record(("huge",), T, huge, storage)]
    outcome = Copier.of(bench).copy(IMPACT_SNAPSHOTS, rows)
    assert [item.record.key for item in outcome.rejected] == [("huge",)]
    assert outcome.written == {T: 7}


def test_a_snapshot_under_a_key_that_a_read_would_not_give_back_is_set_aside(bench: Bench) -> None:
    storage = {"snapshotId": "strange", "tenantId": T, "selectorDigest": "sha256:0"}
    outcome = Copier.of(bench).copy(IMPACT_SNAPSHOTS, [Record(("strange",), T, make_impact_set(), storage)])
    (rejected,) = outcome.rejected
    assert "neither its own" in rejected.reason


def test_a_record_that_was_never_decoded_is_set_aside(source: Bench, bench: Bench) -> None:
    source.force("runs", {"_id": "x", "tenantId": T})
    outcome = Copier.of(bench).copy(RUNS, records(source, RUNS))
    (rejected,) = outcome.rejected
    assert rejected.record.key == ("x",)
    assert "state" in rejected.reason


def heavy(number: int) -> Record:
    image = make_image(1, labels={"x": "y" * 1_000_000})
    snapshot = make_impact_set(snapshot_id=f"i-{number:02}", images=(image,))
    storage = {"snapshotId": f"i-{number:02}", "tenantId": T, "selectorDigest": "sha256:0"}
    return Record((f"i-{number:02}",), T, snapshot, storage)


def test_a_heavy_range_is_written_in_parts_and_finished_once(bench: Bench) -> None:
    count = 3 * PART_BYTES // 1_000_000
    copier = Copier.of(bench)
    outcome = copier.copy(IMPACT_SNAPSHOTS, iter([[heavy(number)] for number in range(count)]))
    assert outcome.written == {T: count}
    row = bench.database["backfill_ranges"].find_one({})
    assert row is not None
    assert row["parts"] == 2
    again = copier.copy(IMPACT_SNAPSHOTS, iter([[heavy(number)] for number in range(count)]))
    assert again.unchanged == {T: count}


def test_nothing_is_written_after_the_lease_was_taken(source: Bench, bench: Bench) -> None:
    fill(source)
    ledger = bench.bulk.ledger()
    zombie = Copier.of(bench)

    def rows() -> Iterator[list[Record]]:
        yield records(source, RUNS)
        ledger.acquire(JOB, "heir", HOUR, dead="me")

    with pytest.raises(LeaseLostError, match="fence 1"):
        zombie.copy(RUNS, rows())
    assert contents(bench, RUNS) == {}
    (progress,) = ledger.ranges(JOB)
    assert progress.state is RangeState.COPYING


def test_nothing_is_written_after_the_lease_expired(source: Bench, bench: Bench) -> None:
    fill(source)
    copier = Copier.of(bench)

    def rows() -> Iterator[list[Record]]:
        yield records(source, RUNS)
        bench.database["backfill_jobs"].update_one(
            {}, {"$set": {"expiresAt": datetime(2020, 1, 1, tzinfo=UTC)}}
        )

    with pytest.raises(LeaseLostError):
        copier.copy(RUNS, rows())
    assert contents(bench, RUNS) == {}


def test_a_failure_of_the_source_leaves_no_rows(source: Bench, bench: Bench) -> None:
    fill(source)

    def rows() -> Iterator[list[Record]]:
        yield records(source, RUNS)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        Copier.of(bench).copy(RUNS, rows())
    assert contents(bench, RUNS) == {}


def test_workers_with_one_lease_import_side_by_side(source: Bench, bench: Bench) -> None:
    for number in range(60):
        source.storage.runs.create(make_run(T, f"r-{number:02}"))
    ledger = bench.bulk.ledger()
    ledger.start(JOB, {}, START)
    lease = ledger.acquire(JOB, "me", HOUR)
    ledger.plan(lease, RUNS.name, list(source.bulk.cut(RUNS, 5)))

    def work(number: int) -> int:
        claim = ledger.claim(lease, number)
        batches = source.bulk.export(RUNS, claim.within)
        with bench.bulk.importing() as importer:
            outcome = importer.import_range(RUNS, batches, on_conflict="fail", claim=claim, tally=tally)
        return sum(outcome.written.values())

    numbers = [progress.number for progress in ledger.ranges(JOB)]
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, numbers)) == 60
    assert {progress.state for progress in ledger.ranges(JOB)} == {RangeState.LIVE}
    assert contents(bench, RUNS) == contents(source, RUNS)


# ------------------------------------------------------------------------------------- ledger


def test_a_running_job_is_returned_and_a_complete_one_begins_again(bench: Bench) -> None:
    ledger = bench.bulk.ledger()
    assert ledger.find(JOB) is None
    job = ledger.start(JOB, {"a.b": "$c"}, START)
    assert (job.generation, job.state, job.settings, job.as_of) == (1, JobState.RUNNING, {"a.b": "$c"}, START)
    assert ledger.start(JOB, {"a.b": "other"}, at(5)) == job == ledger.find(JOB)
    lease = ledger.acquire(JOB, "me", HOUR)
    ledger.plan(lease, RUNS.name, [ALL])
    ledger.complete(lease)
    again = ledger.start(JOB, {}, at(5))
    assert (again.generation, again.as_of, list(ledger.ranges(JOB))) == (2, at(5), [])


def test_jobs_are_listed_with_the_latest_start_first(bench: Bench) -> None:
    ledger = bench.bulk.ledger()
    for name in ("a", "b"):
        ledger.start(name, {}, START)
        bench.database["backfill_jobs"].update_one({"_id": "a"}, {"$set": {"startedAt": START}})
    assert [job.id for job in ledger.jobs()] == ["b", "a"]


def test_one_holder_at_a_time_and_the_fence_grows(bench: Bench) -> None:
    ledger = bench.bulk.ledger()
    ledger.start(JOB, {}, START)
    assert ledger.lease(JOB) is None
    first = ledger.acquire(JOB, "me", HOUR)
    assert ledger.lease(JOB) == first
    with pytest.raises(LeaseLostError, match="me works on") as caught:
        ledger.acquire(JOB, "rival", HOUR)
    assert caught.value.key == "me"
    assert ledger.acquire(JOB, "rival", HOUR, dead="me").fence == first.fence + 1
    with pytest.raises(LeaseLostError):
        ledger.renew(first, HOUR)
    with pytest.raises(LeaseLostError):
        ledger.complete(first)
    ledger.release(first)
    held = ledger.lease(JOB)
    assert held is not None
    assert held.holder == "rival"
    ledger.release(held)
    assert ledger.lease(JOB) is None
    assert ledger.acquire(JOB, "me", HOUR).fence == 3


def test_an_expired_lease_is_free(bench: Bench) -> None:
    ledger = bench.bulk.ledger()
    ledger.start(JOB, {}, START)
    ledger.acquire(JOB, "me", timedelta(seconds=-1))
    assert ledger.lease(JOB) is None
    assert ledger.acquire(JOB, "rival", HOUR).holder == "rival"


def test_a_renewed_lease_lasts_longer(bench: Bench) -> None:
    ledger = bench.bulk.ledger()
    ledger.start(JOB, {}, START)
    lease = ledger.acquire(JOB, "me", timedelta(minutes=1))
    renewed = ledger.renew(lease, HOUR)
    assert renewed.expires_at > lease.expires_at
    assert ledger.lease(JOB) == renewed


def test_ranges_are_planned_once_and_numbered_through(bench: Bench) -> None:
    ledger = bench.bulk.ledger()
    ledger.start(JOB, {}, START)
    lease = ledger.acquire(JOB, "me", HOUR)
    halves = [KeyRange(None, ("m",)), KeyRange(("m",), None)]
    ledger.plan(lease, RUNS.name, halves)
    ledger.plan(lease, RUN_SUMMARIES.name, [KeyRange(("t", "s"), None)])
    ledger.plan(lease, RUNS.name, [ALL])
    found = [(item.number, item.entity, item.within, item.state) for item in ledger.ranges(JOB)]
    assert found == [
        (0, "runs", halves[0], RangeState.PENDING),
        (1, "runs", halves[1], RangeState.PENDING),
        (2, "run_summaries", KeyRange(("t", "s"), None), RangeState.PENDING),
    ]
    assert [item.number for item in ledger.ranges(JOB, "run_summaries")] == [2]
    assert list(ledger.ranges("absent")) == []


def test_planning_and_claiming_need_the_lease(bench: Bench) -> None:
    ledger = bench.bulk.ledger()
    ledger.start(JOB, {}, START)
    lease = ledger.acquire(JOB, "me", HOUR)
    stale = replace(lease, fence=lease.fence - 1)
    with pytest.raises(LeaseLostError):
        ledger.plan(stale, RUNS.name, [ALL])
    ledger.plan(lease, RUNS.name, [ALL])
    with pytest.raises(LeaseLostError):
        ledger.claim(stale, 0)
    with pytest.raises(NotFoundError):
        ledger.claim(lease, 7)
    claim = ledger.claim(lease, 0)
    assert (claim.entity, claim.within) == (RUNS.name, ALL)


def test_an_unknown_job_cannot_be_leased(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="start it first"):
        bench.bulk.ledger().acquire("absent", "me", HOUR)


def test_a_live_range_is_opened_again_by_a_claim(source: Bench, bench: Bench) -> None:
    fill(source)
    copier = Copier.of(bench)
    copier.copy(RUNS, records(source, RUNS))
    (live,) = bench.bulk.ledger().ranges(JOB)
    assert live.state is RangeState.LIVE
    assert live.finished_at is not None
    assert live.tally == RangeTally(read={}, written={T: 7})
    bench.bulk.ledger().claim(copier.lease, live.number)
    assert next(bench.bulk.ledger().ranges(JOB)).state is RangeState.COPYING


def test_rivals_for_a_lease_are_served_one_by_one(bench: Bench) -> None:
    bench.bulk.ledger().start(JOB, {}, START)

    def attempt(number: int) -> int | None:
        try:
            return bench.bulk.ledger().acquire(JOB, f"holder-{number}", HOUR).fence
        except LeaseLostError:
            return None

    with ThreadPoolExecutor(8) as pool:
        fences = [fence for fence in pool.map(attempt, range(8)) if fence is not None]
    assert fences == [1]


def test_a_wrong_handle_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="ClientSession"):
        bench.storage.bind(object(), T)
