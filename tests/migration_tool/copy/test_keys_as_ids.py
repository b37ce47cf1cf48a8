"""Documents of other programs with numbers and documents as ids, and with fields under any name."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import bson
import psycopg
import pytest
from bson import Decimal128, Int64
from bson.raw_bson import RawBSONDocument

from tests.migration_tool.copy.test_generated_ids import Depot, _depot, opened
from tests.support.copies import invoke, server_settings, write_config
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer

Document = dict[str, Any]
__all__ = ["_depot"]

AWARE: Final[bson.CodecOptions[Document]] = bson.CodecOptions(tz_aware=True)
WHEN: Final = datetime(2025, 10, 26, 14, 5, 0, 120_000, tzinfo=UTC)
NUMBERS: Final = (-(2**40), -1, 0, 1, 2, 9, 10, 2**53 + 1, 2**63 - 1)
GATES: Final = ("", "A", "B", "a", "é", "\uff5a", "😀")
# Under the ticket of the first number that is above zero.
TICKET: Final = 1


def ticket(number: object, **changes: object) -> Document:
    """Return a ticket as another program stores it."""
    fares = [{"$amount": 0}, {"$amount": 2**40, "paid.at": WHEN}]
    return {
        "_id": Int64(number) if type(number) is int else number,
        "tenantId": "acme",
        "batch": "b",
        "amount": Int64(7),
        "_updatedAt": WHEN,
        "__v": Int64(3),
        "_class": "com.acme.Ticket",
        "seat_row": "F",
        'it\'s "50%"': "none",
        "$price": Int64(12),
        "hall.place": "left",
        "_fares": fares,
        **changes,
    }


def stub(identity: object, **changes: object) -> Document:
    """Return a stub as another program stores it."""
    return {"_id": identity, "batch": "b", "amount": Int64(7), "checkedAt": WHEN, **changes}


def key_of(gate: str, number: int = TICKET) -> Document:
    return {"ticket": Int64(number), "gate": gate}


def store(database: Database[Document], name: str, documents: Sequence[Document]) -> None:
    """Insert documents whatever the validator says."""
    database.command("insert", name, documents=list(documents), bypassDocumentValidation=True)


def originals(database: Database[Document], name: str) -> list[bytes]:
    """Return the documents of a collection byte by byte, but for their versions."""
    collection = database[name].with_options(bson.CodecOptions(document_class=RawBSONDocument))
    found = (bson.decode(document.raw) for document in collection.find(sort=[("_id", 1)]))
    return [bson.encode({key: item for key, item in one.items() if key != "_version"}) for one in found]


@pytest.fixture
def documents(mongo_server: MongoServer, empty_mongo_database: MongoDatabase) -> Database[Document]:
    """Fill a database as another program does: without our collections, indexes and validators."""
    database = mongo_server.client[empty_mongo_database.name]
    store(database, "tickets", [ticket(number) for number in reversed(NUMBERS)])
    stubs = [stub(key_of(gate, number)) for number in (9, TICKET, -1) for gate in GATES if gate]
    store(database, "stubs", [*stubs, stub(key_of("A", 2**53 + 1))])
    return database


@pytest.fixture
def depot(
    documents: Database[Document],  # noqa: ARG001  # filled first
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Depot]:
    """Name the filled MongoDB as the source and a PostgreSQL as the target."""
    source = write_config(tmp_path / "source.json", empty_mongo_database.config)
    with opened(tmp_path, empty_postgres_database.config, "postgres") as (target, _):
        yield Depot(("mongo", "postgres"), (source, target), tmp_path, capsys)


@pytest.fixture
def back(mongo_server: MongoServer, depot: Depot) -> Iterator[tuple[Depot, Database[Document]]]:
    """Name the PostgreSQL as the source and a second MongoDB as the target."""
    with mongo_server.database() as other, opened(depot.directory, other.config, "mongo") as (target, _):
        pair = Depot(("postgres", "mongo"), (depot.configs[1], target), depot.directory, depot.capsys)
        yield pair, mongo_server.client[other.name]


def rows_in(database: Database[Document]) -> int:
    return sum(database[name].count_documents({}) for name in ("tickets", "stubs"))


def test_they_come_over_and_back_byte_by_byte_and_a_second_copy_writes_nothing(
    depot: Depot, back: tuple[Depot, Database[Document]], documents: Database[Document]
) -> None:
    expected = rows_in(documents)
    returning, copies = back
    for pair in (depot, returning):
        totals = pair.copied()
        assert (totals["written"], totals["quarantined"], totals["conflicts"]) == (expected, 0, 0)
        assert pair.verdict() == "PASS"
        again = pair.copied()
        assert (again["written"], again["unchanged"], again["conflicts"]) == (0, expected, 0)
    for name in ("tickets", "stubs"):
        assert originals(copies, name) == originals(documents, name)
    assert returning.copied(back=True)["unchanged"] == expected
    assert returning.verdict(back=True) == "PASS"


PLANTED: Final[tuple[tuple[str, Document, str], ...]] = (
    ("tickets", ticket(-1, **{"$price": Int64(13)}), 'doc["$price"]'),
    ("tickets", ticket(0, **{"hall.place": "right"}), 'doc["hall.place"]'),
    ("tickets", ticket(1, __v=Int64(4)), "doc.__v"),
    ("tickets", ticket(2, _updatedAt=WHEN.replace(minute=6)), "doc._updatedAt"),
    ("tickets", ticket(9, _fares=[{"$amount": 1}, {"$amount": 2**40, "paid.at": WHEN}]), "doc._fares"),
    ("tickets", {**ticket(10, _class=None), "_id": 10}, "doc._class"),
    ("tickets", ticket(float(-(2**40))), "doc.number"),
    ("stubs", stub({"ticket": 9.0, "gate": "A"}, _version=Int64(1)), "doc.ticket"),
    ("stubs", stub(key_of("B", 9), amount=Int64(8), _version=Int64(1)), "doc.amount"),
)


def test_planted_differences_are_found_where_they_are_and_overwritten(
    back: tuple[Depot, Database[Document]], depot: Depot
) -> None:
    returning, copies = back
    depot.copied()
    returning.copied()
    for name, document, _ in PLANTED:
        copies[name].delete_one({"_id": document["_id"]})
        store(copies, name, [document])
    report = returning("verify", "--out", returning.report, "--range-size", 3).json
    found = {item["entity"]: item for item in report["entities"]}
    assert report["verdict"] == "FAIL"
    for name in ("tickets", "stubs"):
        paths = {field["path"].partition(" ")[0].partition("[]")[0] for field in found[name]["fields"]}
        assert paths == {path for entity, _, path in PLANTED if entity == name}
    assert sum(item["counts"]["different"] for item in found.values()) == len(PLANTED)
    totals = returning.copied("--on-conflict", "overwrite")
    assert (totals["written"], totals["quarantined"]) == (len(PLANTED), 0)
    assert returning.verdict() == "PASS"
    # With its names in another order an id is that of another row.
    assert copies["stubs"].delete_one({"_id": key_of("A", 9)}).deleted_count == 1
    store(copies, "stubs", [stub({"gate": "A", "ticket": Int64(9)})])
    report = returning("verify", "--out", returning.report, "--range-size", 3).json
    counts = next(item["counts"] for item in report["entities"] if item["entity"] == "stubs")
    assert (report["verdict"], counts["missing"], counts["extra"]) == ("FAIL", 1, 1)


WARTS: Final[dict[str, dict[Any, str]]] = {
    "tickets": {
        7.5: "its _id is not an integer of 64 bits",
        "7": "its _id is not an integer of 64 bits",
        True: "its _id is not an integer of 64 bits",
        float("nan"): "its _id is not an integer of 64 bits",
    },
    "stubs": {
        ("gate", "ticket"): "its _id has its names in another order than ticket, gate",
        ("ticket",): "its _id lacks gate",
        ("ticket", "gate", "more"): "its _id has more names than ticket, gate",
        ("ticket", "row"): "its _id lacks gate",
        (): "its _id lacks ticket, gate",
    },
}
VALUES: Final[Document] = {"ticket": Int64(TICKET), "gate": "B", "more": 1, "row": 2}


def test_an_id_that_is_no_key_goes_to_quarantine_with_its_reason_and_the_others_are_copied(
    depot: Depot, documents: Database[Document]
) -> None:
    expected = rows_in(documents)
    store(documents, "tickets", [ticket(identity) for identity in WARTS["tickets"]])
    odd = [{name: VALUES[name] for name in names} for names in WARTS["stubs"]]
    of_types = [{"ticket": "1", "gate": "B"}, {"ticket": Int64(1), "gate": 5}, {"ticket": 1.5, "gate": "B"}]
    store(documents, "stubs", [stub(identity) for identity in (*odd, *of_types, "1:B", 5)])
    out = depot.directory / "out"
    totals = depot("copy", "--execute", "--out", out, "--range-size", 3).json["totals"]
    kept = [json.loads(line) for line in (out / "quarantine.ndjson").read_text().splitlines()]
    assert (totals["written"], totals["quarantined"]) == (expected, len(kept))
    reasons = Counter((entry["entity"], entry["reason"]) for entry in kept)
    wanted = Counter((name, reason) for name, warts in WARTS.items() for reason in warts.values())
    type_reason = "its _id holds {} in another type than that of the key"
    wanted += Counter(("stubs", type_reason.format(part)) for part in ("ticket", "gate", "ticket"))
    wanted += Counter([("stubs", "its _id is not a document of ticket, gate")] * 2)
    assert reasons == wanted
    report = depot("verify", "--out", depot.report, "--range-size", 3).json
    assert report["verdict"] == "INCONCLUSIVE"
    counts = [entity["counts"] for entity in report["entities"]]
    assert sum(item["quarantined"] for item in counts) == len(kept)
    assert sum(item["missing"] + item["extra"] + item["different"] for item in counts) == 0


def test_unknown_properties_come_over_and_back_and_none_takes_the_place_of_a_field(
    depot: Depot,
    back: tuple[Depot, Database[Document]],
    documents: Database[Document],
    empty_postgres_database: PostgresDatabase,
) -> None:
    unknown: Document = {"_rev": Int64(2**40), "a.b": [None, WHEN], "$cost": Decimal128("1.50"), "extra": {}}
    documents["tickets"].update_one({"_id": 0}, [{"$replaceWith": {"$literal": ticket(0, **unknown)}}])
    returning, copies = back
    expected = rows_in(documents)
    for pair in (depot, returning):
        assert pair.copied()["written"] == expected
        assert pair.verdict() == "PASS"
    assert bson.decode(originals(copies, "tickets")[NUMBERS.index(0)], AWARE) == ticket(0, **unknown)

    with psycopg.connect(empty_postgres_database.superuser_url) as tables:
        tables.execute("""UPDATE depot.tickets SET extra = '{"amount": 8, "_id": 1}' WHERE number = 0""")
    out = depot.directory / "refused"
    command = ("--execute", "--out", out, "--on-conflict", "overwrite", "--max-quarantine", 9)
    assert returning("copy", *command).json["totals"]["quarantined"] == 1
    (line,) = (out / "quarantine.ndjson").read_text("utf-8").splitlines()
    assert json.loads(line)["reason"].startswith("extra: holds _id, amount, which tickets has for itself")
    # The target still has what was copied before.
    assert returning.verdict() == "FAIL"


def test_an_integral_double_as_the_key_is_an_equivalence_that_is_counted(
    depot: Depot, documents: Database[Document]
) -> None:
    store(documents, "tickets", [ticket(77.0)])
    store(documents, "stubs", [stub({"ticket": 77.0, "gate": "A"})])
    expected = rows_in(documents)
    assert depot.copied()["written"] == expected
    assert depot.copied()["unchanged"] == expected
    report = depot("verify", "--out", depot.report, "--range-size", 3).json
    assert report["verdict"] == "INCONCLUSIVE"
    counts = {item["entity"]: item["counts"]["unproved"] for item in report["entities"]}
    assert (counts["tickets"], counts["stubs"]) == (1, 1)
    assert [(item["name"], item["documents"]) for item in report["equivalences"]] == [("number_type", 2)]


@pytest.mark.long
def test_every_corruption_of_such_rows_is_found(
    depot: Depot, documents: Database[Document], mongo_server: MongoServer, postgres_server: PostgresServer
) -> None:
    # A corruption of the case of one key would be that of another row.
    documents["stubs"].delete_many({"_id.gate": "a"})
    out = depot.directory / "selftest"
    with mongo_server.database() as left, postgres_server.empty_database() as right:
        scratch = write_config(depot.directory / "scratch.json", server_settings(left, right))
        sides = ("--module", "depot", "--from", "mongo", "--to", "postgres", "--scratch", scratch)
        only = ("--entity", "tickets", "--entity", "stubs")
        config = ("--config", depot.configs[0])
        answer = invoke(depot.capsys, *config, "backfill", "selftest", *sides, *only, "--out", out)
    report = json.loads((out / "selftest-report.json").read_text())
    assert (answer.code, report["problems"], report["false_alarms"]) == (Exit.OK, [], 0)
    assert report["found"] == report["planted"] > 200
    assert report["untested"] == ["parcels", "scans"]
