"""What the self-test showed the verification to miss: it is named now, with its field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import bson
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.backfill.test_between_servers import opened
from tests.backfill.toolkit import fill, server_settings
from twinstore.testing.scheduler.builders import make_run
from twinstore_mongo.mapping.free_json import exact_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pymongo.collection import Collection

    from tests.backfill.toolkit import Pair
    from tests.databases import MongoDatabase, PostgresDatabase

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
    """Return a document in which a name stands twice with the same value."""
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
        "a": [{"\x00bson": {"type": 6, "value": ""}}],
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
