"""A MongoDB source is only read: by a user with the role ``read``, and it stays as it is byte for byte."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import bson
import pytest
from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collation import Collation

import twinstore_embedded
from tests.support.copies import (
    READINGS,
    SINGLE_READINGS,
    Answer,
    invoke,
    keys_in,
    open_store,
    single_keys_in,
    write_config,
)
from tests.support.foreign import (
    NO_OWN_WRITES,
    Document,
    Footprint,
    document,
    fill_with_pymongo,
    footprint,
    foreign_runs,
)
from twinstore.catalog.keys import KeyRange
from twinstore.config import load_settings
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS, SCHEDULER
from twinstore.testing.scheduler.builders import make_audit_record, rich_run_summary
from twinstore_backfill.outcome import Exit
from twinstore_mongo.bulk import port
from twinstore_mongo.client import identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import PostgresDatabase
    from twinstore.bulk.port import BulkPort
    from twinstore_embedded import MongoServer

Command = Callable[..., Answer]


@pytest.fixture(scope="module")
def guarded() -> Iterator[MongoServer]:
    """Run a server that allows nothing without a login."""
    with tempfile.TemporaryDirectory(prefix="twinstore-guarded-") as directory:
        server = twinstore_embedded.start_mongo(directory, users=True, parameters=NO_OWN_WRITES, owned=True)
        yield server
        server.stop()


@pytest.fixture(scope="module")
def admin(guarded: MongoServer) -> Iterator[MongoClient[Document]]:
    with closing(MongoClient[Document](guarded.url)) as client:
        yield client


@dataclass(frozen=True)
class Foreign:
    """The database of another service, and the URL of a user who may read it and nothing else."""

    database: Database[Document]
    reader_url: str

    @property
    def settings(self) -> dict[str, object]:
        mongo = {"ConnectionString": self.reader_url, "Database": self.database.name}
        return {"Persistence": {"Scheduler": "Mongo", "Mongo": mongo}}


@pytest.fixture
def foreign(guarded: MongoServer, admin: MongoClient[Document]) -> Iterator[Foreign]:
    name = f"foreign_{uuid4().hex[:8]}"
    yield Foreign(admin[name], guarded.user_url(name, "reader", "read"))
    admin.drop_database(name)


@pytest.fixture
def bulk(foreign: Foreign) -> Iterator[BulkPort]:
    """Open the database as its reader; it is filled by the test."""
    settings = load_settings(foreign.settings, environ={})
    with open_store("scheduler", "mongo", settings, read_only=True) as store:
        yield store.bulk


@pytest.fixture
def command(
    foreign: Foreign,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Return a way to run a command from the foreign database to an empty PostgreSQL."""
    source = write_config(tmp_path / "source.json", foreign.settings)
    target = write_config(tmp_path / "target.json", empty_postgres_database.config)

    def run(name: str, *more: object) -> Answer:
        sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres")
        files = ("--source-config", source, "--target-config", target)
        return invoke(capsys, "backfill", name, *sides, *files, *more)

    return run


def test_plan_copy_verify_and_report_leave_a_foreign_database_as_it_was_and_its_changes_are_found(
    foreign: Foreign,
    admin: MongoClient[Document],
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_with_pymongo(foreign.database)
    before = footprint(admin, foreign.database.name)
    plan = command("plan", "--format", "json")
    dry = command("copy", "--format", "json")
    copied = command("copy", "--execute", "--range-size", 7, "--out", tmp_path, "--format", "json")
    verified = command("verify", "--range-size", 7, "--jobs", 2, "--out", tmp_path, "--format", "json")
    report = invoke(capsys, "backfill", "report", "--in", tmp_path / "parity-report.json")
    assert [answer.code for answer in (plan, dry, copied, verified, report)] == [0] * 5, verified.out
    assert footprint(admin, foreign.database.name) == before
    assert before.content["runs"]
    assert verified.json["verdict"] == "PASS"
    assert verified.json["cutover_ready"] is True
    assert (plan.json["rows"], verified.json["documents_equal"]) == (80, 70)
    again = command("copy", "--execute", "--out", tmp_path, "--format", "json")
    assert (again.code, again.json["totals"]["written"], again.json["totals"]["unchanged"]) == (0, 0, 70)
    foreign.database["run_summaries"].update_one({}, {"$set": {"counters.total": 999}})
    failed = command("verify", "--format", "json")
    assert (failed.code, failed.json["verdict"]) == (Exit.DIFFERENT, "FAIL")


def test_a_footprint_shows_every_kind_of_change(foreign: Foreign, admin: MongoClient[Document]) -> None:
    fill_with_pymongo(foreign.database)
    runs = foreign.database["runs"]
    last = footprint(admin, foreign.database.name)
    for change, parts in (
        (lambda: runs.update_one({}, {"$set": {"error": "x"}}), {"content", "writes", "oplog"}),
        (lambda: runs.create_index("error"), {"indexes", "writes", "oplog"}),
        (
            lambda: foreign.database.command("collMod", "runs", validator={}),
            {"collections", "writes", "oplog"},
        ),
        (lambda: runs.delete_many({"_id": "none"}), {"writes"}),
        (lambda: admin.drop_database("absent"), {"writes"}),
    ):
        change()
        found = footprint(admin, foreign.database.name)
        assert {item.name for item in fields(found) if differs(found, last, item.name)} == parts
        last = found


def differs(left: Footprint, right: Footprint, name: str) -> bool:
    return bool(getattr(left, name) != getattr(right, name))


def test_what_is_missing_is_a_warning_with_its_cost_in_plan_copy_and_every_report(
    foreign: Foreign, command: Command, tmp_path: Path
) -> None:
    fill_with_pymongo(foreign.database)
    plan, copied = command("plan"), command("copy", "--execute", "--out", tmp_path)
    verified = command("verify", "--out", tmp_path)
    texts = {name: json.loads((tmp_path / name).read_text())["warnings"] for name in REPORTS}
    for text in (plan.out, copied.out, verified.out):
        assert "There is nothing for execution_logs, audit" in flat(text)
        # What only costs time is one line, and not a second time on stderr.
        assert text.count("warnings (speed only)") == 1
        assert "reads the whole collection" not in text
    assert "reads the whole collection" not in copied.err + verified.err
    shown = [(tmp_path / f"parity-report.{form}").read_text() for form in ("md", "html", "xml")]
    for expected in (
        "There is nothing for execution_logs, audit, workers, locks, graph_jobs, graph_job_events, policy",
        "run_summaries has no index on {tenantId: 1, scheduleId: 1}",
        "a copy reads the whole collection (6 documents) and sorts it once, on disk where memory is short",
        "runs lacks the indexes ix_tenantId_createdAt__id, ix_tenantId_scheduleId_createdAt__id, ix_state",
    ):
        assert all(any(expected in text for text in found) for found in texts.values()), expected
        for text in shown:
            assert expected in flat(text), (expected, text)


REPORTS = ("backfill-report.json", "parity-report.json")


def test_a_document_without_a_usable_key_is_named_by_its_id_and_for_one_reason(
    foreign: Foreign, command: Command, tmp_path: Path
) -> None:
    oid = ObjectId("5f" * 12)
    audit = make_audit_record("acme", "audit-1").wire()
    foreign.database["audit"].insert_many([{"_id": oid, **audit}, {"_id": 7}])
    expected = {
        ("its fields _id and id differ", f'{{"$oid": "{oid}"}}'),
        ("the stored key is not a string", "7"),
    }
    for name, more in (
        ("copy", ()),
        ("copy", ("--execute", "--out", tmp_path)),
        ("verify", ("--out", tmp_path)),
    ):
        causes = command(name, "--format", "json", *more).json["causes"]
        assert {(item["reason"], item["example"]) for item in causes} == expected, name
        assert {item["cause"] for item in causes} == {"key"}
    for file in ("quarantine.ndjson", "differences.ndjson"):
        lines = [json.loads(line) for line in (tmp_path / file).read_text().splitlines()]
        assert {(line["reason"], line["key"]) for line in lines} == expected, file
    report = json.loads((tmp_path / "parity-report.json").read_text())
    audits = next(item for item in report["entities"] if item["entity"] == "audit")
    assert {(item["reason"], item["key"]) for item in audits["quarantined"]["shown"]} == expected


def flat(text: str) -> str:
    """Return a text without the marks and line ends of its format."""
    return " ".join(text.replace("\\", "").replace("&#x27;", "'").split())


def test_a_database_without_any_of_the_collections_is_refused(
    foreign: Foreign, admin: MongoClient[Document], command: Command
) -> None:
    foreign.database["orders"].insert_one({"_id": 1})
    before = footprint(admin, foreign.database.name)
    for name, more in (("plan", ()), ("copy", ("--execute",)), ("verify", ())):
        answer = command(name, *more)
        assert answer.code == Exit.PREFLIGHT_REFUSED
        assert "has none of schedules, triggers, runs, " in answer.err
        assert foreign.database.name in answer.err
    assert footprint(admin, foreign.database.name) == before


def test_the_error_for_a_user_who_may_not_read_names_the_sufficient_role(
    guarded: MongoServer, command: Command, foreign: Foreign, tmp_path: Path
) -> None:
    fill_with_pymongo(foreign.database)
    stranger = guarded.user_url(f"{foreign.database.name}_other", "reader", "read")
    write_config(tmp_path / "source.json", Foreign(foreign.database, stranger).settings)
    answer = command("plan")
    assert answer.code == Exit.USAGE
    assert "reading needs the role read on this database, and nothing else" in answer.err


def test_keys_that_are_no_text_are_seen_without_an_index(
    foreign: Foreign, bulk: BulkPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "SORTED_ROWS", 1)
    texts = [f"s-{number}" for number in (4, 2, 9, 1, 7)]
    foreign.database["run_summaries"].insert_many(
        [{"tenantId": "t", "scheduleId": key} for key in texts]
        + [
            {"tenantId": "t", "scheduleId": 5},
            {"tenantId": 7, "scheduleId": "s"},
            {"scheduleId": ["s-2"]},
            {},
        ]
    )
    wanted: list[tuple[str, ...] | None] = [("t", key) for key in sorted(texts)]
    for size in (1, 2, 100):
        ranges = list(bulk.cut(RUN_SUMMARIES, size))
        assert (ranges[0].lower, ranges[-1].upper) == (None, None)
        assert [item.upper for item in ranges[:-1]] == [item.lower for item in ranges[1:]]
        exported = keys_in(bulk, "records", RUN_SUMMARIES, ranges)
        scanned = keys_in(bulk, "rows", RUN_SUMMARIES, ranges)
        assert [key for key in exported if key] == [key for key in scanned if key] == wanted
        assert exported.count(None) == scanned.count(None) == 4
    assert len(list(bulk.cut(RUN_SUMMARIES, 1))) == len(texts)


def test_one_tenant_is_read_alone_without_an_index(
    foreign: Foreign, bulk: BulkPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "SORTED_ROWS", 1)
    rows = [{"tenantId": tenant, "scheduleId": f"s-{number}"} for number in range(6) for tenant in ("t", "u")]
    foreign.database["run_summaries"].insert_many(rows)
    ranges = list(bulk.cut(RUN_SUMMARIES, 2, tenant_id="u"))
    assert len(ranges) == 3
    for reading in READINGS:
        keys = keys_in(bulk, reading, RUN_SUMMARIES, ranges, tenant_id="u")
        assert keys == [("u", f"s-{number}") for number in range(6)]
    for single in SINGLE_READINGS:
        assert single_keys_in(bulk, single, RUN_SUMMARIES, [("t", "s-3"), ("t", "none")]) == [("t", "s-3")]


def test_a_reader_sees_one_point_in_time_with_and_without_an_index(foreign: Foreign, bulk: BulkPort) -> None:
    fill_with_pymongo(foreign.database, ["acme"])
    position = bulk.position()
    assert position is not None
    foreign.database["runs"].delete_many({})
    foreign.database["run_summaries"].delete_many({})
    for entity, rows in ((RUNS, 30), (RUN_SUMMARIES, 3)):
        for reading in READINGS:
            then = keys_in(bulk, reading, entity, [KeyRange()], as_of=position, batch_size=2)
            assert len(then) == rows
            assert keys_in(bulk, reading, entity, [KeyRange()]) == []


def test_the_identity_needs_no_right_beyond_reading_and_no_name_of_the_server(
    foreign: Foreign, bulk: BulkPort
) -> None:
    (member,) = foreign.database.client.admin.command("hello")["hosts"]
    assert bulk.identity == f"Mongo twinstore {member}/{foreign.database.name}"
    renamed = Foreign(foreign.database, foreign.reader_url.replace("127.0.0.1", "localhost"))
    assert renamed.reader_url != foreign.reader_url
    settings = load_settings(renamed.settings, environ={})
    with open_store("scheduler", "mongo", settings, read_only=True) as store:
        assert store.bulk.identity == bulk.identity
        assert store.bulk.place != bulk.place


GRANT: Final = "the role read on the database config"


@pytest.fixture
def routed(
    foreign: Foreign,
    guarded: MongoServer,
    admin: MongoClient[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[ObjectId, tuple[object, ...]]]:
    """Let the server pass for a router; return the number of its cluster, and how to copy there."""
    hello = identity.hello_of
    monkeypatch.setattr(identity, "hello_of", lambda client: {**hello(client), "msg": "isdbgrid"})
    fill_with_pymongo(foreign.database, ["acme"])
    versions, cluster = admin["config"]["version"], ObjectId()
    versions.insert_one({"_id": 1, "clusterId": cluster})
    there = {"ConnectionString": guarded.url, "Database": f"{foreign.database.name}_copy"}
    target = write_config(tmp_path / "there.json", {"Persistence": {"Mongo": there}})
    yield cluster, ("--to", "mongo", "--target-config", target, "--format", "json")
    versions.drop()


def test_a_router_is_known_by_its_cluster_or_the_grant_is_named(
    foreign: Foreign,
    routed: tuple[ObjectId, tuple[object, ...]],
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, between = routed
    # A router on one side, whose user may not read to which cluster it leads.
    alone = command("plan", "--format", "json")
    assert (alone.code, GRANT in alone.json["warnings"][0]) == (Exit.OK, True)
    doctor = invoke(capsys, "doctor", "--config", tmp_path / "source.json")
    assert GRANT in " ".join(doctor.out.split())
    # One on both.
    for name in ("plan", "copy"):
        refused = command(name, *between)
        assert (refused.code, GRANT in refused.out) == (Exit.PREFLIGHT_REFUSED, True)
    read = [{"role": "read", "db": "config"}]
    foreign.database.command("grantRolesToUser", "reader", roles=read)
    granted = command("plan", *between)
    assert (granted.code, GRANT in granted.out) == (Exit.OK, False)
    assert granted.json["source"]["identity"] == f"Mongo cluster {cluster}/{foreign.database.name}"


def test_a_user_who_may_not_read_where_chunks_are_copies_in_the_order_of_the_keys(
    routed: tuple[ObjectId, tuple[object, ...]], bulk: BulkPort
) -> None:
    del routed
    assert bulk.placement(RUNS) == ()


def test_absent_collections_read_as_empty(bulk: BulkPort) -> None:
    for entity in SCHEDULER.entities:
        assert bulk.counts(entity) == {}
        assert list(bulk.cut(entity, 5)) == [KeyRange()]
        for reading in READINGS:
            assert keys_in(bulk, reading, entity, [KeyRange()]) == []
        for single in SINGLE_READINGS:
            assert single_keys_in(bulk, single, entity, [tuple("k" for _ in entity.key)]) == []
    assert not any(item.present for item in bulk.inventory())


class TestCollation:
    """Texts are compared by code point, whatever collation a collection was made with."""

    KEYS = ("b", "A", "c", "B2", "Z", "a1")

    @pytest.fixture
    def collated(self, foreign: Foreign) -> Foreign:
        """Fill collections that do not distinguish upper case from lower case."""
        for name in ("runs", "run_summaries"):
            foreign.database.create_collection(name, collation=Collation("en", strength=2))
        foreign.database["run_summaries"].create_index([("tenantId", 1), ("scheduleId", 1)], unique=True)
        (run,) = foreign_runs("acme", 1)
        foreign.database["runs"].insert_many([{**run, "_id": key} for key in self.KEYS])
        foreign.database["runs"].insert_one({**run, "_id": "q", "tenantId": "ACME"})
        summaries = [rich_run_summary("acme", key) for key in self.KEYS]
        foreign.database["run_summaries"].insert_many(document(item.wire()) for item in summaries)
        return foreign

    def test_keys_come_in_the_order_of_every_other_store(self, collated: Foreign, bulk: BulkPort) -> None:
        del collated
        assert bulk.counts(RUNS) == {"ACME": 1, "acme": 6}
        for entity, prefix in ((RUNS, ()), (RUN_SUMMARIES, ("acme",))):
            wanted = sorted((*prefix, key) for key in self.KEYS)
            for item in (bulk.cut(entity, 2, tenant_id="acme"), [KeyRange()]):
                ranges = list(item)
                for reading in READINGS:
                    assert keys_in(bulk, reading, entity, ranges, tenant_id="acme") == wanted
        for single in SINGLE_READINGS:
            assert single_keys_in(bulk, single, RUNS, [("a",), ("Q",)]) == []

    def test_the_cost_is_named(self, collated: Foreign, bulk: BulkPort) -> None:
        del collated
        runs = next(item for item in bulk.inventory() if item.entity == "runs")
        assert "runs has no index on {_id: 1} that compares texts by code point" in runs.warnings[0]


class TestRowsThatShareAKey:
    """No unique index of ours keeps a second row of one key away."""

    @pytest.fixture
    def doubled(self, foreign: Foreign) -> Foreign:
        summaries = [document(rich_run_summary("acme", f"s-{number}").wire()) for number in (1, 2, 2, 2, 3)]
        foreign.database["run_summaries"].insert_many(summaries)
        return foreign

    @pytest.mark.parametrize("index", [[], [("tenantId", 1), ("scheduleId", 1)]], ids=["sorted", "indexed"])
    def test_the_first_is_copied_and_the_others_leave_the_proof_open(
        self, doubled: Foreign, command: Command, tmp_path: Path, index: list[Any]
    ) -> None:
        if index:
            doubled.database["run_summaries"].create_index(index)
        out = ("--out", tmp_path, "--format", "json")
        copied = command("copy", "--execute", "--range-size", 1, *out)
        totals = copied.json["totals"]
        assert (copied.code, totals["written"], totals["quarantined"]) == (Exit.INCONCLUSIVE, 3, 2)
        kept = [json.loads(line) for line in (tmp_path / "quarantine.ndjson").read_text().splitlines()]
        assert [entry["key"] for entry in kept] == [["acme", "s-2"]] * 2
        assert all("another row of the source has the same key" in entry["reason"] for entry in kept)
        verified = command("verify", "--range-size", 1, *out)
        (summaries,) = (item for item in verified.json["entities"] if item["entity"] == "run_summaries")
        assert (summaries["counts"]["equal"], summaries["counts"]["quarantined"]) == (3, 2)
        assert verified.code in {Exit.DIFFERENT, Exit.INCONCLUSIVE}


class TestViews:
    def test_a_view_is_read_like_a_collection(
        self, foreign: Foreign, command: Command, tmp_path: Path
    ) -> None:
        foreign.database["their_runs"].insert_many(foreign_runs("acme", 12))
        foreign.database.command("create", "runs", viewOn="their_runs", pipeline=[])
        assert command("copy", "--execute", "--range-size", 5, "--out", tmp_path).code == 0
        verified = command("verify", "--range-size", 5, "--format", "json")
        assert (verified.json["verdict"], verified.json["documents_equal"]) == ("PASS", 12)

    def test_a_view_that_takes_longer_than_a_call_of_a_service_is_counted(self, foreign: Foreign) -> None:
        foreign.database["their_runs"].insert_many(foreign_runs("acme", 12))
        body = "function() { const end = Date.now() + 200; while (Date.now() < end); return true; }"
        slowly = {"$match": {"$expr": {"$function": {"body": body, "args": [], "lang": "js"}}}}
        foreign.database.command("create", "runs", viewOn="their_runs", pipeline=[slowly])
        limited = replace(foreign, reader_url=f"{foreign.reader_url}&timeoutMS=2000")
        settings = load_settings(limited.settings, environ={})
        with open_store("scheduler", "mongo", settings, read_only=True) as store:
            assert store.bulk.estimated_count(RUNS) == 12

    def test_a_view_in_another_order_is_refused(self, foreign: Foreign, command: Command) -> None:
        foreign.database["their_runs"].insert_many(foreign_runs("acme", 3))
        collation = {"locale": "en", "strength": 2}
        foreign.database.command("create", "runs", viewOn="their_runs", pipeline=[], collation=collation)
        answer = command("plan")
        assert answer.code == Exit.PREFLIGHT_REFUSED
        assert "create the view again without a collation" in answer.err


def test_an_index_that_leaves_rows_out_is_not_used(foreign: Foreign, bulk: BulkPort) -> None:
    rows: list[Document] = [{"tenantId": "t", "scheduleId": f"s-{number}"} for number in range(4)]
    foreign.database["run_summaries"].insert_many([*rows, {"tenantId": "t"}, {}])
    key: Any = [("tenantId", 1), ("scheduleId", 1)]
    unfit: dict[str, Document] = {
        "sparse": {"sparse": True},
        "partial": {"partialFilterExpression": {"scheduleId": {"$gt": "s-1"}}},
        "hidden": {"hidden": True},
        "collated": {"collation": Collation("de")},
    }
    for name, options in unfit.items():
        foreign.database["run_summaries"].create_index(key, name=name, **options)
        found = keys_in(bulk, "records", RUN_SUMMARIES, [KeyRange()])
        assert len(found) == 6, name
        foreign.database["run_summaries"].drop_index(name)


def test_a_broken_document_spoils_nothing_without_an_index(foreign: Foreign, bulk: BulkPort) -> None:
    good = bson.encode({"tenantId": "t", "scheduleId": "s-1", "note": "XXXX"})
    broken = RawBSONDocument(good.replace(b"XXXX", b"\xff\xfe\xff\xfe"))
    foreign.database["run_summaries"].insert_many([broken, {"tenantId": "t", "scheduleId": "s-2"}])
    with bulk.view() as view:
        (records,) = view.records(RUN_SUMMARIES, KeyRange())
        (rows,) = view.rows(RUN_SUMMARIES, KeyRange())
    assert [record.key for record in records] == [("t", "s-1"), ("t", "s-2")]
    assert "UTF-8" in str(records[0].error)
    assert [row.key for row in rows] == [("t", "s-1"), ("t", "s-2")]
