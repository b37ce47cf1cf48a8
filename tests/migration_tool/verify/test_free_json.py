"""Dates inside free JSON between two servers: none is lost or changed, in either direction."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson import DatetimeMS
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from psycopg.types.json import Jsonb
from pymongo import MongoClient

from tests.drivers.mongo.deployment import MongoDeployment
from tests.drivers.postgres.deployment import PostgresDeployment
from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.support.hostile_rows import MAKERS, stored_lines
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DocumentDecodeError
from twinstore.models.fields import date_object
from twinstore.scheduler.catalog import EXECUTION_LOGS
from twinstore.testing.datasets import Dataset, factory_of
from twinstore.testing.entities import DEVICES, MODULE, NOTES
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore.testing.scheduler.examples import make_log_entry, rich_log_entry
from twinstore_backfill.outcome import Exit
from twinstore_backfill.verify.ranges import RangeComparison, compare_range
from twinstore_backfill.verify.summary import EntityFindings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.collection import Collection
    from pymongo.database import Database

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.access.protocol import Access
    from twinstore.bulk.port import BulkPort, OnConflict
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.row import Row
    from twinstore.plugins.backend import ModuleBackend
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


def test_an_object_of_that_form_is_copied_as_it_reads_and_reported_as_an_equivalence(
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
        # The reverse migration writes a date; no other form of the target passes.
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


def test_a_date_outside_the_years_of_the_models_is_quarantined_with_its_bytes(
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


def test_a_number_that_a_double_would_change_is_read_by_no_service_and_by_no_copy(
    settings: dict[str, object], logs: Collection[Document], tables: psycopg.Connection[Any], tmp_path: Path
) -> None:
    changed = ("0.123456789012345678901234567890", "12345.1234567890123", "0.10000000000000001")
    kept = ("0.8444218515250481", "12345.678901234567", "1.50", "1234567890123.123")
    with forward(settings, tmp_path) as pair:
        entry = make_log_entry("acme", "run", data={"at": 1, "b": 1})
        pair.source.storage.execution_logs.append([entry.evolve(sequence=4 + at) for at in range(5)])
        pair.copy()
    for number, text in enumerate(changed + kept, 2):
        data = f'{{"at": [{text}], "b": 1}}'
        tables.execute("UPDATE scheduler.execution_logs SET data = %s WHERE sequence = %s", [data, number])
    logs.delete_many({})
    with opened(settings, DIRECTIONS[1], tmp_path / "back") as pair:
        with pytest.raises(DocumentDecodeError, match="number has other digits than a double"):
            pair.source.storage.execution_logs.list("acme", "run")
        assert pair.copy().exit is Exit.INCONCLUSIVE
        lines = (pair.directory / "quarantine.ndjson").read_text().splitlines()
        assert [text in line for line, text in zip(lines, changed, strict=True)] == [True] * 3
        report = pair.verify()
        counts = entity_in(report).counts
        assert (report.verdict, counts.quarantined, counts.equal) == ("INCONCLUSIVE", 3, 5)
        stored = [document["data"]["at"] for document in logs.find({"sequence": {"$gt": 4}}).sort("sequence")]
        assert stored == [[float(text)] for text in kept]


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
def test_anything_else_in_the_target_is_named_and_rewritten(
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
        # Logs never change, so a copy writes removed entries again.
        tables.execute("DELETE FROM scheduler.execution_logs") if into_tables else logs.delete_many({})
        pair.copy()
        assert pair.verify().verdict == "PASS"


DATASET: Final = Dataset(Tenant("acme"), "lists")
ENTITIES: Final = (NOTES, DEVICES)
ROWS: Final = 12
# The note that has the steps 0, 1 and -1, and the seat -1.
NUMBER: Final = 3


@dataclass(frozen=True, slots=True)
class Sides:
    """Both stores with the module of the kit, and ways past their drivers."""

    documents: ModuleBackend[Access]
    tables: ModuleBackend[Access]
    database: Database[Document]
    admin: psycopg.Connection[Any]

    def fill(self, backend: ModuleBackend[Access]) -> None:
        for entity in ENTITIES:
            factory_of(entity).fill(backend.bulk.access(), DATASET, ROWS)

    def bare(self, entity: Entity) -> list[bytes]:
        """Return the documents byte by byte, in the order of their identities."""
        collection = self.database[entity.collection]
        raw = collection.with_options(collection.codec_options.with_options(document_class=RawBSONDocument))
        return [bytes(document.raw) for document in raw.find().sort("_id")]

    def set_in_note(self, name: str, value: object) -> None:
        """Put a value under a name of one document; its validator would refuse most of them."""
        change = {"$set": {name: value}}
        update = [{"q": {"_id": note(NUMBER).model.wire()["id"]}, "u": change}]
        done = self.database.command(
            "update", NOTES.collection, updates=update, bypassDocumentValidation=True
        )
        assert done["nModified"] == 1

    def set_in_row(self, name: str, text: str) -> None:
        """Put a value, as the text of its type, into a column of one row."""
        change = sql.SQL("UPDATE kit.notes SET {} = %s WHERE id = %s").format(sql.Identifier(name))
        assert self.admin.execute(change, [text, note(NUMBER).model.wire()["id"]]).rowcount == 1


@pytest.fixture
def sides(empty_mongo_database: MongoDatabase, empty_postgres_database: PostgresDatabase) -> Iterator[Sides]:
    with ExitStack() as stack:
        client = stack.enter_context(MongoClient[Document](empty_mongo_database.url, tz_aware=True))
        documents = MongoDeployment(MODULE, empty_mongo_database, client)
        tables = PostgresDeployment(MODULE, empty_postgres_database)
        stack.enter_context(closing(tables.probe))
        yield Sides(
            stack.enter_context(documents.open_module(MODULE)),
            stack.enter_context(tables.open_module(MODULE)),
            client[empty_mongo_database.name],
            stack.enter_context(psycopg.connect(empty_postgres_database.superuser_url, autocommit=True)),
        )


def note(number: int) -> Row[Any]:
    return factory_of(NOTES).row(DATASET, number)


def copy(source: BulkPort, target: BulkPort, *, on_conflict: OnConflict = "fail") -> list[str]:
    """Copy both entities; return why rows were quarantined."""
    reasons: list[str] = []
    for entity in ENTITIES:
        with source.view() as view, target.writer(entity, on_conflict=on_conflict) as writer:
            for batch in view.records(entity, KeyRange()):
                reasons += [record.error for record in batch if record.error is not None]
                writer.write([record for record in batch if record.error is None])
            outcome = writer.flush()
            assert not outcome.rejected
            assert on_conflict == "overwrite" or not outcome.conflicts
            writer.commit()
    return reasons


def findings_of(source: BulkPort, target: BulkPort, entity: Entity) -> EntityFindings:
    findings = EntityFindings(entity, {"acme": (ROWS, ROWS)})
    findings.add(compare_range(RangeComparison(source, target, entity, None, None), KeyRange()))
    return findings


def assert_equal(source: BulkPort, target: BulkPort) -> None:
    for entity in ENTITIES:
        findings = findings_of(source, target, entity)
        report = findings.report()
        assert (report.result, report.counts.equal, findings.equivalences) == ("pass", ROWS, {})


def test_rows_go_there_and_back_and_every_byte_is_as_before(sides: Sides) -> None:
    sides.fill(sides.documents)
    before = {entity: sides.bare(entity) for entity in ENTITIES}
    assert copy(sides.documents.bulk, sides.tables.bulk) == []
    assert_equal(sides.documents.bulk, sides.tables.bulk)
    for entity in ENTITIES:
        sides.database[entity.collection].delete_many({})
    assert copy(sides.tables.bulk, sides.documents.bulk) == []
    assert_equal(sides.tables.bulk, sides.documents.bulk)
    assert {entity: sides.bare(entity) for entity in ENTITIES} == before


def test_items_have_the_bits_of_the_column(sides: Sides) -> None:
    sides.fill(sides.tables)
    copy(sides.tables.bulk, sides.documents.bulk)
    types = sides.admin.execute(
        "SELECT DISTINCT pg_typeof(steps)::text, pg_typeof(seats)::text FROM kit.notes"
    ).fetchall()
    assert types == [("bigint[]", "integer[]")]
    (stored,) = sides.database.notes.aggregate(
        [
            {"$match": {"steps": {"$size": 3}}},
            {
                "$project": {
                    name: {"$map": {"input": f"${name}", "in": {"$type": "$$this"}}}
                    for name in ("steps", "seats")
                }
            },
        ]
    )
    assert (stored["steps"], stored["seats"]) == (["long"] * 3, ["int"])


WRONG_LISTS_IN_DOCUMENTS: Final[dict[str, tuple[str, object, str]]] = {
    "items of 32 bits": ("steps", [0, 1, -1], "doc.steps[0]"),
    "items of 64 bits in a narrow list": ("seats", [Int64(-1)], "doc.seats[0]"),
    "a double": ("steps", [Int64(0), 1.0, Int64(-1)], "doc.steps[1]"),
    "another order": ("steps", [Int64(1), Int64(0), Int64(-1)], "doc.steps[0]"),
    "one less": ("steps", [Int64(0), Int64(1)], "doc.steps[2]"),
    "a null in it": ("steps", [Int64(0), None, Int64(-1)], "doc.steps[1]"),
    "a null for it": ("seats", None, "doc.seats"),
    "a list in a list": ("steps", [[Int64(0), Int64(1), Int64(-1)]], "doc.steps[0]"),
    "one number": ("steps", Int64(0), "doc.steps"),
    "an object for a date": ("extra.a", {"b": {"$date": "2025-10-26T14:05:00+00:00"}}, "doc.extra.a.b"),
}
WRONG_LISTS_IN_TABLES: Final[dict[str, tuple[str, str, str]]] = {
    "another order": ("steps", "{1,0,-1}", "doc.steps[0]"),
    "one more": ("steps", "{0,1,-1,0}", "doc.steps[3]"),
    "a null in it": ("steps", "{0,NULL,-1}", "doc.steps[1]"),
    "another beginning": ("steps", "[0:2]={0,1,-1}", "doc.steps"),
    "two dimensions": ("steps", "{{0,1,-1}}", "doc.steps[0]"),
    "an empty one for none": ("seats", "{}", "doc.seats[0]"),
}


def test_a_document_that_is_stored_differently_is_named_and_rewritten(sides: Sides) -> None:
    sides.fill(sides.tables)
    copy(sides.tables.bulk, sides.documents.bulk)
    for field, value, path in WRONG_LISTS_IN_DOCUMENTS.values():
        sides.set_in_note(field, value)
        assert_named_and_repaired(sides.tables.bulk, sides.documents.bulk, path)


def test_a_row_that_is_stored_differently_is_named_and_rewritten(sides: Sides) -> None:
    sides.fill(sides.documents)
    copy(sides.documents.bulk, sides.tables.bulk)
    for field, value, path in WRONG_LISTS_IN_TABLES.values():
        sides.set_in_row(field, value)
        assert_named_and_repaired(sides.documents.bulk, sides.tables.bulk, path)


def assert_named_and_repaired(source: BulkPort, target: BulkPort, path: str) -> None:
    report = findings_of(source, target, NOTES).report()
    (found,) = report.different.shown
    assert (report.counts.different, found.key) == (1, NOTES.key_of(note(NUMBER).model, {}))
    assert any(item.startswith(path) for item in found.paths), found.paths
    copy(source, target, on_conflict="overwrite")
    assert_equal(source, target)


def test_what_models_can_read_anyway_is_copied_and_reported(sides: Sides) -> None:
    sides.fill(sides.documents)
    sides.set_in_note("steps", [0, 1.0, Int64(-1)])
    assert copy(sides.documents.bulk, sides.tables.bulk) == []
    findings = findings_of(sides.documents.bulk, sides.tables.bulk, NOTES)
    assert (findings.report().result, findings.equivalences) == ("pass", {"number_type": 1})
    sides.set_in_row("steps", "[5:7]={0,1,-1}")
    sides.database[NOTES.collection].delete_many({})
    sides.database[DEVICES.collection].delete_many({})
    assert copy(sides.tables.bulk, sides.documents.bulk) == []
    findings = findings_of(sides.tables.bulk, sides.documents.bulk, NOTES)
    assert (findings.report().result, findings.equivalences) == ("pass", {"list_bounds": 1})


def test_the_text_of_arrays_is_that_of_the_server(sides: Sides) -> None:
    sides.fill(sides.tables)
    for seed in range(3):
        rng = Random(seed)  # not for secrets
        for name, kind in (("steps", "int8[]"), ("seats", "int4[]"), ("tags", "text[]")):
            sides.set_in_row(name, MAKERS[kind](rng, None))
        with sides.tables.bulk.view() as view:
            texts = [str(record.original) for batch in view.records(NOTES, KeyRange()) for record in batch]
        lines = [base64.b64decode(json.loads(text)["row"]) for text in texts]
        assert sorted(lines) == sorted(stored_lines(sides.admin, NOTES))


def test_what_no_model_reads_is_quarantined_with_its_text(sides: Sides) -> None:
    sides.fill(sides.tables)
    for text in ("{0,NULL}", "{{0,1},{2,3}}", "[0:1]={0,NULL}"):
        sides.set_in_row("steps", text)
        with sides.tables.bulk.view() as view:
            bad = [record for batch in view.records(NOTES, KeyRange()) for record in batch if record.error]
        assert len(bad) == 1
        original = json.loads(str(bad[0].original))
        assert original["document"]["steps"] == text
        (reason,) = copy(sides.tables.bulk, sides.documents.bulk)
        assert "steps" in reason
        report = findings_of(sides.tables.bulk, sides.documents.bulk, NOTES).report()
        assert (report.counts.quarantined, report.counts.equal) == (1, ROWS - 1)
