"""Dates inside free JSON between two servers: none is lost or changed, in either direction."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson import DatetimeMS
from bson.raw_bson import RawBSONDocument
from psycopg.types.json import Jsonb
from pymongo import MongoClient

from tests.backfill.test_between_servers import DIRECTIONS, opened
from tests.backfill.test_corruptions import merged_settings
from twinstore.models.fields import date_object
from twinstore.scheduler.catalog import EXECUTION_LOGS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore.testing.scheduler.examples import make_log_entry, rich_log_entry
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.collection import Collection

    from tests.backfill.toolkit import Pair
    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore_backfill.report.model import EntityReport, ParityReport

Document = dict[str, Any]
WHEN: Final = datetime(2025, 10, 26, 14, 5, 0, 120_000, tzinfo=UTC)
AT: Final = {"$date": "2025-10-26T14:05:00.120+00:00"}
LOGS: Final = EXECUTION_LOGS.collection


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    return merged_settings(mongo_database, postgres_database)


@pytest.fixture
def logs(mongo_database: MongoDatabase) -> Iterator[Collection[Document]]:
    """Open the documents past the driver."""
    with MongoClient[Document](mongo_database.url, tz_aware=True) as client:
        yield client[mongo_database.name][LOGS]


@pytest.fixture
def tables(postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    """Connect as a superuser, whom no policy binds."""
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
        yield connection


@contextmanager
def forward(settings: dict[str, object], directory: Path) -> Iterator[Pair]:
    """Open MongoDB as the source, with the log of a run."""
    with opened(settings, DIRECTIONS[0], directory) as pair:
        storage = pair.source.storage
        storage.runs.create(make_run("acme", "run"))
        rows = [make_log_entry("acme", "run", sequence=number) for number in (2, 3)]
        storage.execution_logs.append([rich_log_entry("acme", "run"), *rows])
        yield pair


def raw_documents(logs: Collection[Document]) -> list[bytes]:
    """Return the documents byte by byte, in the order of their keys."""
    raw = logs.with_options(logs.codec_options.with_options(document_class=RawBSONDocument))
    return [bytes(document.raw) for document in raw.find().sort("sequence")]


def entity_in(report: ParityReport) -> EntityReport:
    return next(item for item in report.entities if item.entity == EXECUTION_LOGS.name)


def set_in_documents(logs: Collection[Document], number: int, value: object) -> None:
    """Put a value into the data of an entry."""
    change = {"$set": {"data": {"at": value, "b": 1}}}
    assert logs.update_one({"sequence": number}, change).modified_count == 1


def test_a_repository_writes_dates_and_reads_what_stands_for_them(
    settings: dict[str, object], logs: Collection[Document], tmp_path: Path
) -> None:
    with forward(settings, tmp_path) as pair:
        written = rich_log_entry("acme", "run")
        found = pair.source.storage.execution_logs.list("acme", "run")
        assert found[0] == written
        (stored, *_) = logs.find().sort("sequence")
        assert stored["data"]["at"] == [at(0.001), {"$date": "no date"}]
        # What another program wrote reads like it.
        set_in_documents(logs, 2, [WHEN, {"c": WHEN}])
        found = pair.source.storage.execution_logs.list("acme", "run")
        assert found[1].data == {"at": [AT, {"c": AT}], "b": 1}
        again = pair.source.storage.execution_logs.append([found[1]])
        assert again == (found[1],)


def test_dates_go_there_and_back_and_every_byte_is_as_before(
    settings: dict[str, object],
    logs: Collection[Document],
    tables: psycopg.Connection[Any],
    tmp_path: Path,
) -> None:
    with forward(settings, tmp_path) as pair:
        set_in_documents(logs, 2, [WHEN, {"c": WHEN, "d": [WHEN]}])
        before = raw_documents(logs)
        assert pair.copy().exit is Exit.OK
        report = pair.verify()
        assert (report.verdict, report.equivalences) == ("PASS", ())
        rows = tables.execute("SELECT data FROM scheduler.execution_logs ORDER BY sequence").fetchall()
        assert rows[1][0] == {"at": [AT, {"c": AT, "d": [AT]}], "b": 1}
        assert rows[0][0]["at"][0] == date_object(at(0.001))
    logs.delete_many({})
    with opened(settings, DIRECTIONS[1], tmp_path / "back") as pair:
        assert pair.copy().exit is Exit.OK
        report = pair.verify()
        assert (report.verdict, report.equivalences) == ("PASS", ())
        assert raw_documents(logs) == before
        assert pair.copy().totals.all()["written"] == 0


def test_an_object_of_that_form_is_copied_as_it_reads_and_told_as_an_equivalence(
    settings: dict[str, object], logs: Collection[Document], tables: psycopg.Connection[Any], tmp_path: Path
) -> None:
    with forward(settings, tmp_path) as pair:
        set_in_documents(logs, 2, AT)
        set_in_documents(logs, 3, {"$date": "2025-10-26T14:05:00Z"})
        assert pair.copy().exit is Exit.OK
        report = pair.verify()
        assert [(item.name, item.documents) for item in report.equivalences] == [("date_object", 1)]
        assert (report.verdict, entity_in(report).counts.equal) == ("PASS", 3)
        rows = tables.execute("SELECT data->'at' FROM scheduler.execution_logs WHERE sequence > 1 ORDER BY 1")
        assert [row[0] for row in rows] == [AT, {"$date": "2025-10-26T14:05:00Z"}]
    with opened(settings, DIRECTIONS[1], tmp_path / "back") as pair:
        # The way back writes a date; no other form of the target passes.
        report = pair.verify()
        (row,) = entity_in(report).different.shown
        assert (report.verdict, row.key, row.paths) == ("FAIL", ("run", 2), ("doc.data.at",))
        logs.delete_many({})
        pair.copy()
        assert pair.verify().verdict == "PASS"
    assert [document["data"]["at"] for document in logs.find({"sequence": {"$gt": 1}}).sort("sequence")] == [
        WHEN,
        {"$date": "2025-10-26T14:05:00Z"},
    ]


def test_a_date_outside_the_years_of_the_models_is_kept_back_with_its_bytes(
    settings: dict[str, object], logs: Collection[Document], tmp_path: Path
) -> None:
    with forward(settings, tmp_path) as pair:
        set_in_documents(logs, 2, DatetimeMS(253_402_300_800_000))
        kept = raw_documents(logs)[1]
        assert pair.copy().exit is Exit.INCONCLUSIVE
        (line,) = (pair.directory / "quarantine.ndjson").read_text().splitlines()
        raw = json.loads(json.loads(line)["raw"])
        assert raw["document"]["data"]["at"] == {"$date": {"$numberLong": "253402300800000"}}
        assert pair.verify().verdict == "INCONCLUSIVE"
        assert entity_in(pair.verify()).counts.quarantined == 1
        assert raw_documents(logs)[1] == kept


WRONG_IN_DOCUMENTS: Final[dict[str, object]] = {
    "another instant": WHEN + timedelta(milliseconds=1),
    "the plain object": AT,
    "the text alone": AT["$date"],
    "another spelling": {"$date": "2025-10-26T14:05:00.12Z"},
    "extended JSON": {"$date": {"$numberLong": "1761487500120"}},
    "a null": None,
}
WRONG_IN_TABLES: Final[dict[str, object]] = {
    "another instant": {"$date": "2025-10-26T14:05:00.121+00:00"},
    "another spelling": {"$date": "2025-10-26T14:05:00.12Z"},
    "the text alone": AT["$date"],
    "one more name": {**AT, "c": 1},
    "a null": None,
}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_whatever_else_stands_in_the_target_is_named_and_written_anew(
    direction: str,
    settings: dict[str, object],
    logs: Collection[Document],
    tables: psycopg.Connection[Any],
    tmp_path: Path,
) -> None:
    into_tables = direction == DIRECTIONS[0]
    wrong = WRONG_IN_TABLES if into_tables else WRONG_IN_DOCUMENTS
    numbers = dict(enumerate(wrong, 4))
    with forward(settings, tmp_path) as pair:
        entry = make_log_entry("acme", "run", data={"at": AT, "b": 1})
        pair.source.storage.execution_logs.append([entry.evolve(sequence=number) for number in numbers])
        pair.copy()
    with opened(settings, direction, tmp_path / "again") as pair:
        assert pair.verify().verdict == "PASS"
        for number, name in numbers.items():
            if into_tables:
                change = "UPDATE scheduler.execution_logs SET data = %s WHERE sequence = %s"
                tables.execute(change, [Jsonb({"at": wrong[name], "b": 1}), number])
            else:
                set_in_documents(logs, number, wrong[name])
        report = pair.verify()
        assert report.verdict == "FAIL"
        found = {row.key: row.paths for row in entity_in(report).different.shown}
        assert found.keys() == {("run", number) for number in numbers}
        for key, paths in found.items():
            assert [path.startswith("doc.data.at") for path in paths] == [True], key
        # Nobody changes a log, so a copy writes anew what was removed.
        tables.execute("DELETE FROM scheduler.execution_logs") if into_tables else logs.delete_many({})
        pair.copy()
        assert pair.verify().verdict == "PASS"
