"""What the self-test showed the verification to miss: it is named now, with its field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import bson
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from pymongo import MongoClient

from tests.backfill.test_between_servers import opened
from tests.backfill.toolkit import fill
from twinstore_mongo.exact import exact_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.backfill.toolkit import Pair
    from tests.databases import MongoDatabase, PostgresDatabase

Documents = dict[str, Any]
RUN: Final = "acme-run-1"


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    merged: dict[str, object] = {}
    for database in (mongo_database, postgres_database):
        persistence = database.config["Persistence"]
        assert isinstance(persistence, dict)
        merged |= persistence
    return {"Persistence": merged, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}


def named(pair: Pair, entity: str) -> tuple[str, ...]:
    """Return the paths of the one row that differs."""
    report = pair.verify()
    assert (report.verdict, report.cutover_ready) == ("FAIL", False)
    found = next(item for item in report.entities if item.entity == entity)
    assert found.different.count == 1
    return found.different.shown[0].paths


def twice(document: Documents, name: str) -> bytes:
    """Return a document in which a name stands twice with the same value."""
    once = bson.encode(document)
    again = bson.encode({name: document[name]})[4:-1]
    return (len(once) + len(again)).to_bytes(4, "little") + once[4:-1] + again + b"\x00"


def nested(stored: Documents) -> Documents:
    return {**stored, "stats": RawBSONDocument(twice(stored["stats"], "newLow"))}


def at_top(stored: Documents) -> Documents:
    return cast("Documents", RawBSONDocument(twice(stored, "state")))


CHANGES: Final[dict[str, tuple[str, Callable[[Documents], Documents], str]]] = {
    "a name twice inside": ("runs", nested, "doc.stats.newLow (number in source, object in target)"),
    "a name twice at the top": ("runs", at_top, "doc.state (text in source, object in target)"),
    "no version": ("runs", lambda row: {**row, "_version": None}, "beside._version"),
    "a version missing": (
        "runs",
        lambda row: {name: value for name, value in row.items() if name != "_version"},
        "beside._version",
    ),
    "no identity": ("run_summaries", lambda row: {**row, "_id": None}, "beside._id"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_document_is_named_with_the_field_that_is_stored_otherwise(
    settings: dict[str, object], mongo_database: MongoDatabase, tmp_path: Path, name: str
) -> None:
    entity, change, path = CHANGES[name]
    with (
        opened(settings, "postgres to mongo", tmp_path) as pair,
        MongoClient[Documents](mongo_database.url) as client,
    ):
        fill(pair.source.storage)
        pair.copy()
        collection = client[mongo_database.name][entity]
        stored = collection.find_one({"_id": RUN} if entity == "runs" else {})
        assert stored is not None
        collection.delete_one({"_id": stored["_id"]})
        collection.insert_one(change(stored), bypass_document_validation=True)
        assert path in named(pair, entity)


def test_a_version_below_the_first_is_named(
    settings: dict[str, object], postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with (
        opened(settings, "mongo to postgres", tmp_path) as pair,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
    ):
        fill(pair.source.storage)
        pair.copy()
        statement = sql.SQL("UPDATE scheduler.runs SET row_version = {} WHERE id = {}")
        connection.execute(statement.format(7, RUN))
        assert pair.verify().verdict == "PASS"
        connection.execute(statement.format(0, RUN))
        assert named(pair, "runs") == ("beside.row_version",)


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
