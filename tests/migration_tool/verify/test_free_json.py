"""Typed values inside free JSON between two servers: none is lost or changed, in either direction."""

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
from bson import Binary, Code, DatetimeMS, Decimal128, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from psycopg.types.json import Jsonb
from pymongo import MongoClient

from tests.drivers.mongo.deployment import MongoDeployment
from tests.drivers.postgres.deployment import PostgresDeployment
from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.support import free_lists
from tests.support.hostile_rows import MAKERS, stored_lines
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
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
from twinstore_memory.backend import MemoryBackend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pymongo.collection import Collection
    from pymongo.database import Database

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.access.protocol import Access
    from twinstore.bulk.port import BulkPort, OnConflict
    from twinstore.catalog.entity import Entity
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
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


# Each form at depth, in lists and under names that a user chooses.
TYPED: Final[Document] = {
    "$oid": ObjectId("65a1f0c2b7e4d90012345678"),
    "decimals": [Decimal128(text) for text in ("0", "1.50", "-1E+3", "0E-6176", "9" * 34)],
    "bytes": [b"", b"\0\xff", *(Binary(bytes(16), subtype) for subtype in (2, 3, 4, 5, 6, 9, 128))],
    "a.b": {"": [[{"deep": {"at": [WHEN, Decimal128("1.500")], "id": ObjectId("0" * 24)}}]]},
    "reference": {"$ref": "runs", "$id": ObjectId("0" * 24)},
}
TYPED_IN_TABLES: Final[Document] = {
    "$oid": {"$oid": "65a1f0c2b7e4d90012345678"},
    "decimals": [{"$numberDecimal": text} for text in ("0", "1.50", "-1E+3", "0E-6176", "9" * 34)],
    "bytes": [
        {"$binary": {"base64": text, "subType": subtype}}
        for text, subtype in (
            *(("", "00"), ("AP8=", "00")),
            *((f"{'A' * 22}==", subtype) for subtype in ("02", "03", "04", "05", "06", "09", "80")),
        )
    ],
    "a.b": {
        "": [[{"deep": {"id": {"$oid": "0" * 24}, "at": [AT, {"$numberDecimal": "1.500"}]}}]],
    },
    "reference": {"$id": {"$oid": "0" * 24}, "$ref": "runs"},
}


def test_ids_decimals_and_bytes_go_there_and_back_and_every_byte_is_as_before(
    settings: dict[str, object], logs: Collection[Document], tables: psycopg.Connection[Any], tmp_path: Path
) -> None:
    # Only the order of names is free, and here the driver keeps that of the document.
    typed = {name: TYPED[name] for name in sorted(TYPED)}
    typed["reference"] = {"$id": typed["reference"]["$id"], "$ref": "runs"}
    with forward(settings, tmp_path) as pair:
        for number, value in ((2, typed), (3, [typed, None])):
            set_in_documents(logs, number, value)
        before = raw_documents(logs)
        assert pair.copy().exit is Exit.OK
        report = pair.verify()
        assert (report.verdict, report.equivalences) == ("PASS", ())
        rows = tables.execute("SELECT data->'at' FROM scheduler.execution_logs ORDER BY sequence").fetchall()
        assert [row[0] for row in rows[1:]] == [TYPED_IN_TABLES, [TYPED_IN_TABLES, None]]
        found = pair.source.storage.execution_logs.list("acme", "run")
        assert found[1].data == {"at": TYPED_IN_TABLES, "b": 1}
    logs.delete_many({})
    with opened(settings, DIRECTIONS[1], tmp_path / "back") as pair:
        assert pair.copy().exit is Exit.OK
        report = pair.verify()
        assert (report.verdict, report.equivalences) == ("PASS", ())
        assert raw_documents(logs) == before
        assert pair.copy().totals.all()["written"] == 0
        # The service writes what it reads.
        entries = pair.target.storage.execution_logs.list("acme", "run")
        logs.delete_many({})
        pair.target.storage.execution_logs.append(entries)
        assert raw_documents(logs) == before


def test_an_object_in_the_form_of_a_typed_value_is_an_equivalence_and_no_other_object(
    settings: dict[str, object], logs: Collection[Document], tables: psycopg.Connection[Any], tmp_path: Path
) -> None:
    looks_alike = {"a": {"$numberDecimal": "1e3"}, "b": {"$oid": "A" * 24}, "c": {"$numberLong": "1"}}
    with forward(settings, tmp_path) as pair:
        set_in_documents(logs, 2, [TYPED_IN_TABLES["decimals"], TYPED_IN_TABLES["bytes"][1]])
        set_in_documents(logs, 3, looks_alike)
        assert pair.copy().exit is Exit.OK
        report = pair.verify()
        assert [(item.name, item.documents) for item in report.equivalences] == [("typed_object", 1)]
        assert (report.verdict, entity_in(report).counts.equal) == ("PASS", 3)
        rows = tables.execute("SELECT data->'at' FROM scheduler.execution_logs WHERE sequence = 3").fetchall()
        assert rows[0][0] == looks_alike
    with opened(settings, DIRECTIONS[1], tmp_path / "back") as pair:
        report = pair.verify()
        (row,) = entity_in(report).different.shown
        assert (report.verdict, row.key) == ("FAIL", ("run", 2))
        assert row.paths[0].startswith("doc.data.at[0][0]")
        logs.delete_many({})
        pair.copy()
        assert pair.verify().verdict == "PASS"
        (stored,) = logs.find({"sequence": 2})
        assert stored["data"]["at"] == [TYPED["decimals"], b"\0\xff"]


OTHER_TYPES: Final[dict[str, tuple[object, str]]] = {
    "pattern": (Regex("a", "i"), "Regex is not a JSON value"),
    "timestamp": (Timestamp(1, 2), "Timestamp is not a JSON value"),
    "code": (Code("a"), "code is a type of BSON that no copy keeps"),
    "code with scope": (Code("a", {"b": 1}), "code with scope is a type of BSON that no copy keeps"),
    "least": (MinKey(), "MinKey is not a JSON value"),
    "greatest": (MaxKey(), "MaxKey is not a JSON value"),
    "no number": (Decimal128("NaN"), "decimal is NaN"),
    "infinite": (Decimal128("-Infinity"), "decimal is infinite"),
    "minus zero": (Decimal128("-0.00"), "decimal is minus zero"),
}


def test_every_other_type_goes_to_quarantine_with_its_path_and_name(
    settings: dict[str, object], logs: Collection[Document], tmp_path: Path
) -> None:
    with forward(settings, tmp_path) as pair:
        entry = make_log_entry("acme", "run", data={"at": 1, "b": 1})
        numbers = dict(enumerate(OTHER_TYPES.values(), 4))
        pair.source.storage.execution_logs.append([entry.evolve(sequence=number) for number in numbers])
        for number, (value, _) in numbers.items():
            set_in_documents(logs, number, [1, {"b.c": value}])
        kept = raw_documents(logs)
        assert pair.copy().exit is Exit.INCONCLUSIVE
        lines = [json.loads(line) for line in (pair.directory / "quarantine.ndjson").read_text().splitlines()]
        reasons = {tuple(line["key"]): line["reason"] for line in lines}
        assert reasons.keys() == {("run", number) for number in numbers}
        for number, (_, rule) in numbers.items():
            assert f"data.at.1.b.c: {rule}" in reasons["run", number]
        report = pair.verify()
        counts = entity_in(report).counts
        assert (report.verdict, counts.quarantined, counts.equal) == ("INCONCLUSIVE", len(numbers), 3)
        assert raw_documents(logs) == kept


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


@contextmanager
def opened_sides(
    module: ModuleSpec[Access], mongo: MongoDatabase, postgres: PostgresDatabase
) -> Iterator[Sides]:
    """Open a module on both servers."""
    with ExitStack() as stack:
        client = stack.enter_context(MongoClient[Document](mongo.url, tz_aware=True))
        documents = MongoDeployment(module, mongo, client)
        tables = PostgresDeployment(module, postgres)
        stack.enter_context(closing(tables.probe))
        yield Sides(
            stack.enter_context(documents.open_module(module)),
            stack.enter_context(tables.open_module(module)),
            client[mongo.name],
            stack.enter_context(psycopg.connect(postgres.superuser_url, autocommit=True)),
        )


@pytest.fixture
def sides(empty_mongo_database: MongoDatabase, empty_postgres_database: PostgresDatabase) -> Iterator[Sides]:
    with opened_sides(MODULE, empty_mongo_database, empty_postgres_database) as found:
        yield found


@pytest.fixture
def lists(empty_mongo_database: MongoDatabase, empty_postgres_database: PostgresDatabase) -> Iterator[Sides]:
    with opened_sides(free_lists.MODULE, empty_mongo_database, empty_postgres_database) as found:
        yield found


def note(number: int) -> Row[Any]:
    return factory_of(NOTES).row(DATASET, number)


def copy(
    source: BulkPort,
    target: BulkPort,
    *,
    on_conflict: OnConflict = "fail",
    entities: Sequence[Entity] = ENTITIES,
) -> list[str]:
    """Copy entities; return why rows were quarantined."""
    reasons: list[str] = []
    for entity in entities:
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


def assert_equal(source: BulkPort, target: BulkPort, *, entities: Sequence[Entity] = ENTITIES) -> None:
    for entity in entities:
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


def contents(port: BulkPort) -> list[bytes]:
    """Return the content of all rows with lists, as a comparison reads it."""
    with port.view() as view:
        return [row.content for batch in view.rows(free_lists.MIXED, KeyRange()) for row in batch]


def test_lists_of_anything_and_of_nulls_go_between_columns_documents_and_memory(lists: Sides) -> None:
    entities = (free_lists.MIXED,)
    rows = [Row(free_lists.a_mixed(number)) for number in range(ROWS)]
    documents, tables, memory = lists.documents.bulk, lists.tables.bulk, MemoryBackend(free_lists.MODULE).bulk
    for row in rows:
        documents.access().insert(free_lists.MIXED, Tenant("acme"), row)
    before = lists.bare(free_lists.MIXED)
    for source, target in ((documents, tables), (tables, memory)):
        assert copy(source, target, entities=entities) == []
        assert_equal(source, target, entities=entities)
        found = target.access().find(free_lists.MIXED, Tenant("acme"), [(row.model.id,) for row in rows])
        assert list(found) == rows
    assert contents(documents) == contents(tables) == contents(memory)
    types = lists.admin.execute(
        "SELECT DISTINCT jsonb_typeof(things), jsonb_typeof(labels), jsonb_typeof(numbers) FROM lists.mixed"
    )
    assert types.fetchall() == [("array", "array", "array")]
    lists.database[free_lists.MIXED.collection].delete_many({})
    assert copy(memory, documents, entities=entities) == []
    assert_equal(memory, documents, entities=entities)
    assert lists.bare(free_lists.MIXED) == before


# In the row that has two things of its own, and a null in each list.
WRONG_MIXED_IN_DOCUMENTS: Final[dict[str, tuple[str, object, str]]] = {
    "an object for an id": ("things.0", {"$oid": "0" * 24}, "doc.things[0]"),
    "the text of an id": ("things.0", "0" * 24, "doc.things[0]"),
    "another scale": ("things.3", Decimal128("1.500"), "doc.things[3]"),
    "a double for a decimal": ("things.3", 1.5, "doc.things[3]"),
    "another subtype": ("things.9", Binary(b"\0\xff\n", 1), "doc.things[9]"),
    "other bytes": ("things.9", b"\0\xff", "doc.things[9]"),
    "a null less": ("labels", ["a"], "doc.labels"),
    "a null for the list": ("labels", None, "doc.labels"),
    "an empty text for a null": ("labels.0", "", "doc.labels[0]"),
    "a long": ("numbers.0", Int64(1), "doc.numbers[0]"),
    "an instant for a null": ("instants.0", WHEN, "doc.instants[0]"),
}
WRONG_MIXED_IN_TABLES: Final[dict[str, tuple[str, str, str]]] = {
    "another id": ("{things,0,$oid}", f'"{"1" * 24}"', "doc.things[0]"),
    "another scale": ("{things,3,$numberDecimal}", '"1.5"', "doc.things[3]"),
    "a number for a decimal": ("{things,3}", "1.50", "doc.things[3]"),
    "another subtype": ("{things,9,$binary,subType}", '"01"', "doc.things[9]"),
    "an empty text for a null": ("{labels,0}", '""', "doc.labels[0]"),
    "an empty object for a null": ("{spots,0}", "{}", "doc.spots[0]"),
}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_any_other_value_in_such_a_list_is_named_and_rewritten(lists: Sides, direction: str) -> None:
    into_tables, key = direction == DIRECTIONS[0], "row-02"
    source, target = lists.documents.bulk, lists.tables.bulk
    if not into_tables:
        source, target = target, source
    for number in range(ROWS):
        row = Row(free_lists.a_mixed(number))
        source.access().insert(free_lists.MIXED, Tenant("acme"), row)
    copy(source, target, entities=(free_lists.MIXED,))
    for name, (place, value, path) in (
        WRONG_MIXED_IN_TABLES if into_tables else WRONG_MIXED_IN_DOCUMENTS
    ).items():
        if into_tables:
            column, *steps = place.strip("{}").split(",")
            change = sql.SQL("UPDATE lists.mixed SET {0} = jsonb_set({0}, %s, %s) WHERE id = %s")
            lists.admin.execute(change.format(sql.Identifier(column)), [steps, value, key])
        else:
            update = [{"q": {"_id": key}, "u": {"$set": {place: value}}}]
            lists.database.command("update", "mixed", updates=update, bypassDocumentValidation=True)
        report = findings_of(source, target, free_lists.MIXED).report()
        assert (report.counts.different, [row.key for row in report.different.shown]) == (1, [(key,)]), name
        paths = report.different.shown[0].paths
        assert any(item.startswith(path) for item in paths), (name, paths)
        copy(source, target, on_conflict="overwrite", entities=(free_lists.MIXED,))
        assert_equal(source, target, entities=(free_lists.MIXED,))


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
