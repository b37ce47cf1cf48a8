"""A verification or a copy with a fault: the self-test says so."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import bson
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import opened
from tests.support.copies import fill, server_settings
from twinstore.bulk.corruption import Role
from twinstore.bulk.rows import ScanRow
from twinstore.catalog.entity import Derived
from twinstore.config import load_settings
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, SCHEDULES
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.selftest.corruptions import Kind
from twinstore_backfill.selftest.engine import (
    AppliedCorruption,
    ScratchSide,
    copy_all,
    entity_contexts,
    evaluate,
    open_scratch,
    run_verification,
)
from twinstore_backfill.verify.ranges import RowComparison
from twinstore_mongo.bulk.view import MongoView
from twinstore_mongo.mapping.free_json import exact_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pymongo.collection import Collection

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import KeyRange
    from twinstore.scheduler.storage import SchedulerStorage

STOP = StopSwitch()


@pytest.fixture
def sides(
    empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> Iterator[tuple[ScratchSide, ScratchSide]]:
    """Open two scratch databases, the first with rows in it."""
    settings = load_settings(server_settings(empty_mongo_database, postgres_database), environ={})
    with (
        open_scratch("scheduler", "Mongo", settings) as left,
        open_scratch("scheduler", "Postgres", settings) as right,
    ):
        fill(cast("SchedulerStorage", left.store.storage))
        yield left, right


def planted(target: ScratchSide, entity: Entity, field: str, kind: Kind) -> AppliedCorruption:
    """Plant one corruption into the first row that it fits into."""
    contexts = entity_contexts(target, {})[entity.name]
    for key, row in sorted(target.rows(entity).items()):
        for item in contexts.corruptions(key, row.values):
            if (item.point.field, item.kind, item.form) == (field, kind, ""):
                after = target.corruption_writer.change(entity, row, item.of(row.values))
                return AppliedCorruption(item, row, after, target.key_of(entity, after))
    raise AssertionError(f"{kind} fits nowhere into {field}")


def line(item: AppliedCorruption, *paths: str) -> dict[str, object]:
    """Return a row of a file of differences."""
    return {"entity": "audit", "key": list(item.key or ()), "kind": "different", "paths": list(paths)}


def test_a_verification_that_ignores_case_is_caught(
    sides: tuple[ScratchSide, ScratchSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    item = planted(right, AUDIT, "doc.category", Kind.CASE)
    assert evaluate([item], run_verification(left, right, STOP)[1]) == ([(item, "")], [])
    compare = RowComparison._both  # noqa: SLF001  # the fault is planted where pairs are judged

    def lenient(self: RowComparison, source: ScanRow, target: ScanRow) -> None:
        alike = source.content.lower() == target.content.lower()
        compare(self, source, source if alike else target)

    monkeypatch.setattr(RowComparison, "_both", lenient)
    assert evaluate([item], run_verification(left, right, STOP)[1]) == (
        [(item, "different is not named")],
        [],
    )


def test_only_the_corrupted_field_of_the_right_row_counts(sides: tuple[ScratchSide, ScratchSide]) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    item = planted(right, AUDIT, "doc.category", Kind.BLANK)
    ((_, problem),), alarms = evaluate([item], [line(item, "doc.message")])
    assert (problem, alarms) == ("the field is not named: doc.message", [])
    ((_, problem),), alarms = evaluate([item], [line(item, "doc.category", "doc.message")])
    assert (problem, alarms) == ("other fields are named: doc.message", [])
    # Found, but planted by no one.
    _, ((alarm),) = evaluate([], run_verification(left, right, STOP)[1])
    assert alarm | line(item, "doc.category") == alarm


def test_rows_that_lists_pass_over_are_logged_again_after_a_verification(
    sides: tuple[ScratchSide, ScratchSide], caplog: pytest.LogCaptureFixture
) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    planted(left, AUDIT, "doc.category", Kind.NULL)
    run_verification(right, left, STOP)
    logger = logging.getLogger("twinstore.undecodable")
    logger.warning("found")
    assert [record.message for record in caplog.records if record.name == logger.name] == ["found"]


def test_a_wrong_normaliser_in_the_copy_is_found(
    sides: tuple[ScratchSide, ScratchSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    read = MongoView.records

    def shouting(
        self: MongoView,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
    ) -> Iterator[list[Record]]:
        for batch in read(self, entity, within, tenant_id=tenant_id, batch_size=batch_size):
            for record in batch:
                if entity == SCHEDULES and record.model is not None:
                    record.model = record.model.evolve(name=cast("Any", record.model).name.upper())
            yield batch

    with monkeypatch.context() as patched:
        patched.setattr(MongoView, "records", shouting)
        # Rows that native code reads do not pass through a normaliser.
        patched.setattr(MongoView, "packed", shouting)
        copy_all(left, right, STOP)
    report, lines = run_verification(left, right, STOP)
    assert report.verdict == "FAIL"
    assert {(line["entity"], line["kind"], *line["paths"]) for line in lines} == {
        ("schedules", "different", "doc.name")
    }
    assert len(lines) == len(right.corruption_writer.rows(SCHEDULES))


def test_a_wrong_digest_function_in_the_copy_is_found(sides: tuple[ScratchSide, ScratchSide]) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    for entity in reversed(left.entities):
        left.corruption_writer.clear(entity)
    digest = next(item for item in IMPACT_SNAPSHOTS.derived if item.name == "contentDigest")
    with other_function(digest):
        copy_all(right, left, STOP)
    report, lines = run_verification(right, left, STOP)
    assert report.verdict == "FAIL"
    assert {(line["entity"], line["kind"], *line["paths"]) for line in lines} == {
        ("impact_snapshots", "different", "beside.contentDigest")
    }
    assert len(lines) == len(left.corruption_writer.rows(IMPACT_SNAPSHOTS))


@contextmanager
def other_function(derived: Derived) -> Iterator[None]:
    """Compute a derived field wrongly for the length of a block."""
    right = derived.value, derived.of_content
    # Frozen, because a description never changes; the fault is in the functions that it names.
    object.__setattr__(derived, "value", lambda _model, _storage: "sha256:wrong")
    object.__setattr__(derived, "of_content", lambda _content: "sha256:wrong")
    try:
        yield
    finally:
        for name, function in zip(("value", "of_content"), right, strict=True):
            object.__setattr__(derived, name, function)


def test_the_smallest_change_of_a_place_follows_from_its_role(sides: tuple[ScratchSide, ScratchSide]) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    item = planted(right, IMPACT_SNAPSHOTS, "beside.imageCount", Kind.STEP)
    assert item.item.point.role is Role.DERIVED
    assert item.after is not None
    assert item.before is not None
    assert item.after.values["image_count"] == cast("int", item.before.values["image_count"]) + 1
    changed = {name for name, value in item.after.values.items() if value != item.before.values[name]}
    assert changed == {"image_count"}


Documents = dict[str, Any]


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    return server_settings(mongo_database, postgres_database)


def named(pair: Pair) -> dict[str, list[tuple[str, ...]]]:
    """Return the paths of the rows that differ by entity, in the order of their keys."""
    report = pair.verify()
    assert (report.verdict, report.cutover_ready) == ("FAIL", False)
    return {item.entity: [row.paths for row in item.different.shown] for item in report.entities}


def twice(document: Documents, name: str) -> bytes:
    """Return a document that contains a name twice with the same value."""
    once = bson.encode(document)
    again = bson.encode({name: document[name]})[4:-1]
    return (len(once) + len(again)).to_bytes(4, "little") + once[4:-1] + again + b"\x00"


def nested(stored: Documents) -> Documents:
    return {**stored, "stats": RawBSONDocument(twice(stored["stats"], "newLow"))}


def at_top(stored: Documents) -> Documents:
    return cast("Documents", RawBSONDocument(twice(stored, "state")))


RUN_CHANGES: Final[dict[str, tuple[Callable[[Documents], Documents], str]]] = {
    "a name twice inside": (nested, "doc.stats.newLow (number in source, object in target)"),
    "a name twice at the top": (at_top, "doc.state (text in source, object in target)"),
    "no version": (lambda row: {**row, "_version": None}, "beside._version"),
    "a version missing": (
        lambda row: {name: value for name, value in row.items() if name != "_version"},
        "beside._version",
    ),
}


def test_documents_are_named_with_the_field_that_is_stored_otherwise(
    settings: dict[str, object], mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    with (
        opened(settings, "postgres to mongo", tmp_path) as pair,
        MongoClient[Documents](mongo_database.url) as client,
    ):
        fill(pair.source.storage, ["acme"])
        pair.copy()
        runs, summaries = (client[mongo_database.name][name] for name in ("runs", "run_summaries"))
        for number, (change, _) in enumerate(RUN_CHANGES.values()):
            replace(runs, {"_id": f"acme-run-{number}"}, change)
        replace(summaries, {}, lambda row: {**row, "_id": None})
        found = named(pair)
    assert len(found["runs"]) == len(RUN_CHANGES)
    shown = dict(zip(RUN_CHANGES, found["runs"], strict=True))
    assert [name for name, (_, path) in RUN_CHANGES.items() if path not in shown[name]] == []
    (summary,) = found["run_summaries"]
    assert "beside._id" in summary


def replace(
    collection: Collection[Documents], which: Documents, change: Callable[[Documents], Documents]
) -> None:
    """Store a document otherwise, past the validator."""
    stored = collection.find_one_and_delete(which)
    assert stored is not None
    collection.insert_one(change(stored), bypass_document_validation=True)


def test_a_version_below_the_first_is_named(
    settings: dict[str, object], postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with (
        opened(settings, "mongo to postgres", tmp_path) as pair,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
    ):
        pair.source.storage.runs.create(make_run("acme", "acme-run"))
        pair.copy()
        connection.execute("UPDATE scheduler.runs SET row_version = 7")
        assert pair.verify().verdict == "PASS"
        connection.execute("UPDATE scheduler.runs SET row_version = 0")
        assert named(pair)["runs"] == [("beside.row_version",)]


def test_what_the_client_replaces_is_marked_where_it_stands() -> None:
    inner = bson.encode({"c": "x"})[4:-1] + bson.encode({"c": "y"})[4:-1]
    twofold = RawBSONDocument((len(inner) + 5).to_bytes(4, "little") + inner + b"\x00")
    items = b"\x060\x00"
    array = (len(items) + 5).to_bytes(4, "little") + items + b"\x00"
    content = b"\x04a\x00" + array + bson.encode({"b": twofold})[4:-1]
    raw = (len(content) + 5).to_bytes(4, "little") + content + b"\x00"
    assert exact_document(raw) == {
        "a": [{"\x00bson": {"$undefined": ""}}],
        "b": {"c": {"\x00repeated": ["x", "y"]}},
    }


def test_a_document_like_any_other_is_given_as_the_client_gives_it() -> None:
    document: Documents = {"a": [1, {"b": 2.5}], "c": None, "d": True, "e": bson.Int64(5), "f": {}}
    assert exact_document(bson.encode(document)) == document


def test_a_name_that_is_no_text_and_a_value_twice_far_down_are_shown_all_the_same() -> None:
    inner = twice({"c": "x"}, "c")
    for _ in range(20):
        inner = bson.encode({"n": RawBSONDocument(inner)})
    found: Any = exact_document(inner)
    for _ in range(20):
        found = found["n"]
    assert found == {"c": {"\x00repeated": ["x", "x"]}}
    content = b"\x08\xff\x00\x01"
    broken = (len(content) + 5).to_bytes(4, "little") + content + b"\x00"
    assert exact_document(broken) == {"\\xff": True}
