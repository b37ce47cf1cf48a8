"""A copy under the rules of a job: from what other programs left in MongoDB to rows of PostgreSQL."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import bson
import pytest
from bson import DBRef, Decimal128, ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.support.copies import Pair, fill, memory_pair, server_settings
from twinstore.catalog.keys import KeyRange
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill import survey
from twinstore_backfill.cli.copying import copy_texts
from twinstore_backfill.copy import engine, worker
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.report import copy_report
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.plan import plan_copy
from twinstore_backfill.rules.model import (
    ANY,
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    IdRule,
    JobRules,
    KeyRule,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    TrimRule,
)
from twinstore_memory.rows import store_unchecked, stored_rows
from twinstore_mongo.bulk import port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.copy.report import CopyResult

Document = dict[str, Any]
NOON: Final = datetime(2021, 7, 1, 12, tzinfo=UTC)
ONE: Final = datetime(2021, 7, 1, 13, tzinfo=UTC)
OID: Final = ObjectId("5f43a1b2c3d4e5f60718293a")
OTHER_OID: Final = ObjectId("5f43a1b2c3d4e5f60718293b")


def job(*rules: tuple[type[Rule], str, Document]) -> JobRules:
    """Return rules from their kind, their path with the entity in front, and the rest."""
    found: list[Any] = []
    for number, (kind, text, more) in enumerate(rules, 1):
        entity, *path = text.split(".")
        place: Document = {"number": number, "line": number, "entity": entity, "path": tuple(path)}
        found.append(kind(**place, reason=f"reason {number}", **more))
    return JobRules(tuple(found), "job.toml")


SWISS: Final = ("%d.%m.%Y %H:%M", "%m-%d-%Y %H:%M", "%d-%m-%Y %H:%M", "epoch-milliseconds")
RULES: Final = job(
    (ReplaceRule, "audit.message", {"what": "invalid-utf-8", "by": "?"}),
    (ReplaceRule, "audit.message", {"what": "nul", "by": ""}),
    (TrimRule, "runs.scheduleId", {"empty": True}),
    (MapRule, "runs.state", {"values": {"done": "completed", "3": "cancelled"}, "absent": ("n/a",)}),
    (MapRule, "runs.firma", {"values": {"Acme AG": "acme"}}),
    (DateRule, "runs.createdAt", {"formats": SWISS, "zone": "Europe/Zurich"}),
    (NumberRule, "runs.stats.queued", {"source": "text"}),
    (NumberRule, "runs.stats.deltas", {"source": "decimal"}),
    (IdRule, "runs.scheduleId", {"to": "text"}),
    (IdRule, "schedules._id", {"to": "text"}),
    (DeriveRule, "runs.finishedAt", {"how": "max", "of": ("events", "at")}),
    (RenameRule, "runs.firma", {"to": ("tenantId",)}),
    (DropRule, "runs.events", {}),
    (DropRule, "runs.stats.legacy", {}),
    (DropRule, f"{ANY}.__v", {}),
    (KeyRule, "audit.no", {}),
    (DefaultRule, "runs.state", {"value": "queued"}),
    (DefaultRule, "runs.trigger", {"value": "manual"}),
)
RUN: Final[Document] = {
    "schemaVersion": "scheduler.run@1",
    "tenantId": "acme",
    "trigger": "cron",
    "state": "queued",
    "createdAt": NOON,
    "stats": {"queued": 1, "deltas": 2},
}
# What is stored instead, and what the row has afterwards, or why there is none.
RUN_CASES: Final[tuple[tuple[Document, Document | str], ...]] = (
    ({}, {"state": "queued", "tenantId": "acme", "createdAt": NOON, "trigger": "cron"}),
    ({"state": "n/a"}, {"state": "queued"}),
    ({"state": None}, {"state": "queued"}),
    ({"state": "Done"}, "Run state: "),
    ({"state": "done", "events": [{"at": NOON}, {"at": ONE}]}, {"state": "completed", "finishedAt": ONE}),
    ({"state": 3, "events": [{"at": ONE}, {}]}, {"state": "cancelled", "finishedAt": ONE}),
    (
        {"state": "done", "events": [{"at": NOON}, {"at": "x"}]},
        "runs.finishedAt: [[derive]] finds values that",
    ),
    ({"state": "done", "events": []}, "finishedAt"),
    ({"tenantId": None, "firma": "Acme AG"}, {"tenantId": "acme"}),
    ({"tenantId": None, "firma": "umbrella"}, {"tenantId": "umbrella"}),
    ({"firma": "Acme AG"}, {"tenantId": "acme"}),
    ({"firma": "umbrella"}, "runs.firma: [[rename]] finds another value at the new place"),
    ({"createdAt": "01.07.2021 14:00"}, {"createdAt": NOON}),
    ({"createdAt": 1625140800000}, {"createdAt": NOON}),
    ({"createdAt": "1625140800000"}, {"createdAt": NOON}),
    ({"createdAt": "2021-07-01T12:00:00Z"}, {"createdAt": NOON}),
    (
        {"createdAt": "07-01-2021 14:00"},
        "runs.createdAt: [[date]] finds two formats that give different instants",
    ),
    ({"createdAt": "07-13-2021 14:00"}, {"createdAt": datetime(2021, 7, 13, 12, tzinfo=UTC)}),
    (
        {"createdAt": "31.10.2021 02:30"},
        "runs.createdAt: [[date]] finds a local time that its zone has twice or",
    ),
    ({"createdAt": "gestern"}, "Run createdAt: "),
    (
        {"stats": {"queued": "12", "deltas": Decimal128("3.0"), "legacy": {"x": 1}}},
        {"stats": {"queued": 12, "deltas": 3}},
    ),
    (
        {"stats": {"queued": "1.5"}},
        "runs.stats.queued: [[number]] finds a number that the field does not hold",
    ),
    ({"stats": {"queued": "12 "}}, "Run stats.queued: "),
    ({"scheduleId": OID}, {"scheduleId": str(OID)}),
    ({"scheduleId": DBRef("schedules", OID)}, {"scheduleId": str(OID)}),
    ({"scheduleId": " s-1 "}, {"scheduleId": "s-1"}),
    ({"scheduleId": "  "}, {"scheduleId": None}),
    ({"trigger": None, "__v": 3}, {"trigger": "manual"}),
)
EVENT: Final[Document] = {
    "tenantId": "acme",
    "category": "run",
    "action": "made",
    "occurredAt": NOON,
    "actor": {"actorId": "ada", "displayName": "Ada", "kind": "user"},
}
AUDITS: Final[tuple[Document, ...]] = (
    {"_id": OID, "no": "a1", "message": "plain"},
    {"_id": "text", "no": "a2", "message": "Z_rich"},
    {"_id": 3, "no": "a3", "message": "a\0b"},
    {"_id": 4, "no": "a3", "message": "repeated"},
    {"_id": 5, "message": "absent"},
    {"_id": 6, "no": None, "message": "null"},
    {"_id": 7, "no": 7, "message": "number"},
)

# The rules in the order of the job, with the rows that each changes of those that are copied.
CHANGED: Final = {
    "replace audit.message": 1,
    "replace audit.message (2)": 1,
    "trim runs.scheduleId": 4,
    "map runs.state": 6,
    "map runs.firma": 4,
    "date runs.createdAt": 8,
    "number runs.stats.queued": 2,
    "number runs.stats.deltas": 2,
    "id runs.scheduleId": 4,
    "id schedules._id": 2,
    "derive runs.finishedAt": 4,
    "rename runs.firma": 6,
    "drop runs.events": 4,
    "drop runs.stats.legacy": 2,
    "drop *.__v": 4,
    "key audit.no": 3,
    "default runs.state": 4,
    "default runs.trigger": 2,
}


def stored_runs() -> Iterator[Document]:
    """Yield each case twice, so that several ranges have it."""
    for half in "ab":
        for number, (given, _) in enumerate(RUN_CASES):
            yield {"_id": f"{half}-{number:02}", **deepcopy(RUN), **deepcopy(given)}


def raw(document: Document) -> RawBSONDocument:
    """Return a document with a byte that is not UTF-8 in place of an underscore in a word."""
    return RawBSONDocument(bson.encode(document).replace(b"Z_rich", b"Z\xfcrich"))


@pytest.fixture
def source(mongo_database: MongoDatabase) -> Iterator[Database[Document]]:
    """Return a database as others left it."""
    with MongoClient[Document](mongo_database.url) as client:
        found = client[mongo_database.name]
        found["runs"].insert_many(stored_runs(), bypass_document_validation=True)
        events = [raw({**EVENT, **event}) for event in AUDITS]
        found["audit"].insert_many(events, bypass_document_validation=True)
        yield found


@pytest.fixture
def pair(
    source: Database[Document],
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> Iterator[Pair]:
    """Return it as a source, and an empty PostgreSQL."""
    settings = server_settings(mongo_database, postgres_database)
    with opened(settings, DIRECTIONS[0], tmp_path) as pair:
        schedules = (make_stored_schedule(number) for number in (OID, OTHER_OID, "s-1"))
        source["schedules"].insert_many(schedules, bypass_document_validation=True)
        yield pair


def make_stored_schedule(key: object) -> Document:
    """Return a schedule as a document of another program."""
    return {
        "_id": key,
        "schemaVersion": "scheduler.schedule@1",
        "tenantId": "acme",
        "name": f"nightly {key}",
        "enabled": True,
        "cronExpression": "0 2 * * *",
        "timezone": "UTC",
        "mode": "analysis-only",
        "selection": {"scope": "all-images", "tenantId": "acme"},
        "createdAt": NOON,
        "createdBy": "ada",
        "updatedAt": NOON,
        "updatedBy": "ada",
        "__v": 1,
    }


def wires(pair: Pair, entity: Entity) -> dict[str, Document]:
    """Return the rows of the target as models write them, by key."""
    with pair.target.bulk.view() as view:
        records = [record for batch in view.records(entity, KeyRange()) for record in batch]
    return {str(record.key[0]): record.model.wire() for record in records if record.key and record.model}


def reasons(pair: Pair, entity: Entity) -> dict[str | None, str]:
    """Return why rows of the last copy are in quarantine, by key."""
    lines = map(json.loads, (pair.directory / "quarantine.ndjson").read_text().splitlines())
    return {line["key"] and line["key"][0]: line["reason"] for line in lines if line["entity"] == entity.name}


def assert_runs(pair: Pair) -> None:
    """Check every run against what is written next to its case."""
    found, refused = wires(pair, RUNS), reasons(pair, RUNS)
    for half in "ab":
        for number, (given, wanted) in enumerate(RUN_CASES):
            key = f"{half}-{number:02}"
            if isinstance(wanted, str):
                assert wanted in refused.get(key, "not refused"), (given, refused.get(key))
                assert key not in found
                continue
            assert key in found, (given, refused.get(key))
            shown = {name: found[key].get(name) for name in wanted}
            if "stats" in wanted:
                shown["stats"] = {name: found[key]["stats"][name] for name in wanted["stats"]}
            assert shown == wanted, given


def rows_by_rule(result: CopyResult) -> dict[str, int]:
    """Return how many rows each rule changed."""
    return dict(result.totals.rules)


def test_each_row_is_what_its_rules_make_of_it_or_refused_with_the_reason(pair: Pair) -> None:
    dry = pair.copy(execute=False, rules=RULES)
    result = pair.copy(rules=RULES)
    assert result.exit is Exit.INCONCLUSIVE
    assert_runs(pair)
    events = wires(pair, AUDIT)
    assert {key: event["message"] for key, event in events.items()} == {
        "a1": "plain",
        "a2": "Z?rich",
        "a3": "ab",
    }
    assert sum(result.totals.of("audit")[name] for name in ("written", "quarantined")) == len(AUDITS)
    assert wires(pair, SCHEDULES).keys() == {str(OID), str(OTHER_OID)}
    assert list(reasons(pair, SCHEDULES).values()) == ["its _id is not an ObjectId"]
    assert rows_by_rule(result) == CHANGED
    assert dry.totals.all() == result.totals.all()
    assert dry.totals.rules == result.totals.rules
    report = json.loads((pair.directory / "backfill-report.json").read_text())
    assert [item["rows"] for item in report["rules"]] == [*CHANGED.values()]
    assert report["rules"][3] == {"kind": "map", "path": "runs.state", "reason": "reason 4", "rows": 6}
    assert "- map runs.state: 6. reason 4" in list(copy_texts(copy_report(result), pair.directory))
    # Nothing differs any more, and nothing is written a second time.
    again = pair.copy(rules=RULES).totals.all()
    assert (again["written"], again["conflicts"]) == (0, 0)
    assert again["unchanged"] == result.totals.all()["written"]


def test_a_tenant_is_selected_after_its_rules(pair: Pair) -> None:
    result = pair.copy(entities=("runs",), tenants=("umbrella",), rules=RULES)
    assert wires(pair, RUNS).keys() == {"a-09", "b-09"}
    assert result.totals.all()["read"] == 2


def test_an_interrupted_copy_continues_under_its_rules(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, copied = worker.copy_range, list[int]()

    def failing(context: worker.CopyContext, claim: Any) -> worker.CopiedRange:  # noqa: ANN401
        if len(copied) == 5:
            raise KeyboardInterrupt
        copied.append(claim.number)
        return honest(context, claim)

    monkeypatch.setattr(worker, "copy_range", failing)
    with pytest.raises(KeyboardInterrupt):
        pair.copy(rules=RULES, jobs=1)
    monkeypatch.setattr(worker, "copy_range", honest)
    result = pair.copy(rules=RULES, jobs=1)
    assert result.complete
    assert_runs(pair)
    assert rows_by_rule(result)["map runs.state"] == 6


def test_several_processes_apply_the_same_rules(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "THREADS_PER_PROCESS", 1)
    result = pair.copy(rules=RULES, jobs=2)
    assert result.complete
    assert_runs(pair)
    assert rows_by_rule(result)["date runs.createdAt"] == 8


@pytest.mark.parametrize(("at_once", "ranges"), [(5, 4), (1_000_000, 1)])
def test_a_key_without_an_index_is_sorted_once_for_a_million_rows(
    at_once: int,
    ranges: int,
    pair: Pair,
    source: Database[Document],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port, "SORTED_ROWS", at_once)
    keys = [f"k{number:02}" for number in range(20)]
    source["audit"].delete_many({})
    events = ({**EVENT, "_id": ObjectId(), "no": key} for key in reversed(keys))
    source["audit"].insert_many(events, bypass_document_validation=True)
    options: Document = {"entities": ("audit",), "rules": RULES, "range_size": 3}
    result = pair.copy(**options)
    assert result.exit is Exit.OK
    assert list(wires(pair, AUDIT)) == keys
    (job,) = pair.target.ledger.jobs()
    assert sum(pair.target.ledger.counts(job.id, "audit").values()) == ranges
    # The plan knows how long a sort takes, and how many there are.
    monkeypatch.setattr(survey, "SAMPLE", 5)
    monkeypatch.setattr(survey, "monotonic", count().__next__)
    plan = plan_copy(pair.source, pair.target, CopyOptions(**options))
    assert plan.estimate.seconds == (ranges + (ranges > 1)) + 20 / (5 * 0.4)
    for warnings in (result.warnings, plan.warnings):
        (warning,) = (text for text in warnings if text.startswith("audit has no index on {no: 1}"))
        assert "the whole collection (20 documents) and sorts it once, on disk" in warning
    (audit,) = pair.verify(**options).entities
    assert (audit.counts.unproved, audit.counts.missing, audit.counts.extra) == (20, 0, 0)


def test_a_driver_that_cannot_apply_rules_is_refused_before_anything_is_written(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    settings = server_settings(mongo_database, postgres_database)
    with opened(settings, DIRECTIONS[1], tmp_path) as pair:
        pair.source.storage.runs.create(make_run("acme", "r1"))
        with pytest.raises(PreflightError, match="rules of this job cannot be applied to what"):
            pair.copy(rules=RULES)
        assert wires(pair, RUNS) == {}
        # A table has no other property that could be dropped.
        assert pair.copy(rules=job((DropRule, f"{ANY}.__v", {}))).exit is Exit.OK
        assert wires(pair, RUNS).keys() == {"r1"}


def test_rows_of_tables_change_on_their_way_into_documents(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    rules = job(
        (ReplaceRule, "schedules.name", {"old": "e", "by": "E"}),
        (MapRule, "runs.trigger", {"values": {"manual": "cron"}}),
        (MapRule, "policy_jobs.priority", {"values": {"normal": "high"}}),
        (MapRule, "audit.tenantId", {"values": {"acme": "globex"}}),
        (DefaultRule, "audit.message", {"value": "none"}),
        # What a column holds already is left as it is.
        (DateRule, "runs.createdAt", {"formats": ("%Y-%m-%d",), "zone": "UTC"}),
        (NumberRule, "runs.stats.deltas", {"source": "text"}),
    )
    settings = server_settings(postgres_database, mongo_database)
    with opened(settings, DIRECTIONS[1], tmp_path) as pair:
        fill(pair.source.storage)
        result = pair.copy(rules=rules)
        assert result.exit is Exit.OK
        assert rows_by_rule(result) == {
            "replace schedules.name": 6,
            "map runs.trigger": 14,
            "map policy_jobs.priority": 2,
            "map audit.tenantId": 4,
            "default audit.message": 8,
        }
        report = pair.verify(rules=rules)
        assert report.verdict == "PASS", report.reasons
        for number in range(5):
            others = JobRules((*rules.rules[:number], *rules.rules[number + 1 :]))
            assert pair.verify(rules=others).verdict == "FAIL", rules.rules[number]
        again = pair.copy(rules=rules).totals.all()
        assert (again["written"], again["conflicts"]) == (0, 0)


def test_a_store_of_json_takes_rules_and_a_changed_row_of_the_target_is_a_conflict(tmp_path: Path) -> None:
    rules = job(
        (MapRule, "runs.state", {"values": {"done": "completed"}}),
        (NumberRule, "runs.stats.queued", {"source": "text"}),
        (RenameRule, "runs.firma", {"to": ("tenantId",)}),
        (DropRule, "runs.stats.old", {}),
    )
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        store = pair.stores[0]
        row = stored_rows(store, RUNS)["acme-run-0",]
        stats = {**cast("Document", row.document["stats"]), "queued": "7", "old": 1}
        left = {**row.document, "state": "done", "stats": stats, "firma": "acme"}
        left.pop("tenantId")
        store_unchecked(store, replace(row, document=left))
        result = pair.copy(rules=rules)
        assert (result.exit, reasons(pair, RUNS)) == (Exit.OK, {})
        assert rows_by_rule(result) == dict.fromkeys(
            ("map runs.state", "number runs.stats.queued", "rename runs.firma", "drop runs.stats.old"), 1
        )
        copied = stored_rows(pair.stores[1], RUNS)["acme-run-0",]
        assert (copied.document["state"], copied.document["tenantId"]) == ("completed", "acme")
        assert cast("Document", copied.document["stats"])["queued"] == 7
        assert stored_rows(store, RUNS)["acme-run-0",].document["state"] == "done"
        assert pair.copy(rules=rules).totals.all()["conflicts"] == 0
        store_unchecked(pair.stores[1], replace(copied, document={**copied.document, "scheduleId": "other"}))
        assert pair.copy(rules=rules).totals.all()["conflicts"] == 1
        left["stats"] = {**stats, "queued": "0.5"}
        store_unchecked(store, replace(row, document=left))
        assert pair.copy(rules=rules).totals.all()["quarantined"] == 1
        (reason,) = reasons(pair, RUNS).values()
        assert reason == "runs.stats.queued: [[number]] finds a number that the field does not hold exactly"
