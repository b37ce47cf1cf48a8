"""Databases in the forms of public applications: what has no wart is copied as it is, both ways."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson import DBRef, Decimal128
from bson.raw_bson import RawBSONDocument

from tests.migration_tool.copy.test_hostile_stores import quarantine_lines
from tests.support.applications import APPLICATIONS
from tests.support.data_modules import installed_module, opened
from twinstore.module import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.applications import Application
    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase

AWARE: Final[bson.CodecOptions[dict[str, Any]]] = bson.CodecOptions(tz_aware=True)


def store(database: Database[dict[str, Any]], documents: list[tuple[str, bytes]]) -> None:
    """Store documents as another program has done."""
    for name in {name for name, _ in documents}:
        database[name].insert_many([RawBSONDocument(raw) for kind, raw in documents if kind == name])


def identity(value: object) -> str:
    """Return what finds an id; a whole double comes back as an integer."""
    return str(value).removesuffix(".0")


def differences(before: object, after: object) -> Iterator[str]:
    """Yield the kinds in which a document differs from the one that came back; anything else as its value."""
    if isinstance(before, DBRef) and isinstance(after, DBRef):
        before, after = dict(before.as_doc()), dict(after.as_doc())
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            if name not in after and before[name] is None:
                yield "null_for_absent"
            elif name in before and name in after:
                yield from differences(before[name], after[name])
            else:
                yield f"{name} in {before} and {after}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from differences(one, other)
    elif type(before) is not type(after) or repr(before) != repr(after):
        yield kind_of(before, after)


def kind_of(before: object, after: object) -> str:
    """Return the equivalence of two values that differ."""
    if isinstance(before, Decimal128) and isinstance(after, Decimal128):
        grown = str(before).upper().find("E+") > 0 and before.to_decimal() == after.to_decimal()
        return "decimal_exponent" if grown else f"{before} and {after}"
    if isinstance(before, str) and isinstance(after, datetime):
        return "text_timestamp" if parse_timestamp(before) == after else f"{before} and {after}"
    if isinstance(before, int | float) and isinstance(after, int) and before == after:
        return "number_type"
    return f"{before!r} and {after!r}"


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda found: found.name)
@pytest.mark.parametrize("total", [2000, pytest.param(110_000, marks=pytest.mark.long)])
def test_what_has_no_wart_goes_there_and_back_and_each_wart_is_named(  # noqa: PLR0917  # fixtures
    mongo_server: MongoServer,
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    application: Application,
    total: int,
) -> None:
    name, documents = application.name, application.documents(total)
    store(mongo_server.client[empty_mongo_database.name], [(kind, raw) for kind, raw, _ in documents])
    bad = {raw: wart.reason for _, raw, wart in documents if wart is not None and wart.reason}
    kept = [(kind, raw) for kind, raw, _ in documents if raw not in bad]
    with (
        installed_module(tmp_path, name, empty_postgres_database.config),
        mongo_server.database() as other,
        opened(name, empty_mongo_database, empty_postgres_database, tmp_path / "there") as pair,
        opened(name, empty_postgres_database, other, tmp_path / "back") as back,
    ):
        totals = pair.copy(range_size=1000).totals.all()
        lines = {
            line.original: line.reason for line in quarantine_lines(pair.directory / "quarantine.ndjson")
        }
        assert lines.keys() == bad.keys(), [line for raw, line in lines.items() if raw not in bad]
        wrong = [(lines[raw], reason) for raw, reason in bad.items() if reason not in lines[raw]]
        assert not wrong
        assert (totals["written"], totals["conflicts"]) == (len(kept), 0)
        report = pair.verify(range_size=1000)
        assert report.verdict == application.verdict, report.reasons
        assert back.copy(range_size=1000).totals.all()["written"] == len(kept)
        assert back.verify(range_size=1000).verdict == "PASS"
        copies = mongo_server.client[other.name]
        found = {
            (kind, identity(document["_id"])): document
            for kind in application.shares
            for document in copies[kind].with_options(AWARE).find()
        }
    kinds = Counter[str]()
    for kind, raw in kept:
        before = bson.decode(raw, AWARE)
        kinds.update(set(differences(before, found[kind, identity(before["_id"])])))
    assert kinds == {item.name: item.documents for item in report.equivalences}
    assert {wart.kind for wart in application.warts if wart.kind} <= kinds.keys()
