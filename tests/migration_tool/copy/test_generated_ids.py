"""Documents with a generated id: copied, compared, repaired and tested by their key, whatever the id is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest
from bson import Binary, ObjectId

from tests.support.copies import Answer, invoke, open_store, write_config
from tests.support.depot.module import PARCELS, SCANS
from tests.support.distributions import install_distribution
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.config import load_settings
from twinstore.testing.entities import Parcel, Scan
from twinstore.testing.instants import at
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.collection import Collection
    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase
    from twinstore_backfill.stores import Store

Document = dict[str, Any]
Run = Callable[..., Answer]
TENANTS: Final = ("acme", "umbrella")
NUMBERS: Final = range(1, 8)
LOGGED: Final = 4
ROWS: Final = {"parcels": len(TENANTS) * len(NUMBERS), "scans": len(TENANTS) * LOGGED}
KEYS: Final = tuple(f"{tenant}-{number}" for tenant in TENANTS for number in NUMBERS)
ODD_IDS: Final = ("parcel-text", 17, 2**40, 1.5, {"a": 1}, Binary(b"\x01", 4), None, True, at(0))


def fill(store: Store) -> None:
    """Store some parcels of each tenant, and a log of the first one."""
    access = store.bulk.access()
    for tenant in TENANTS:
        for number in NUMBERS:
            parcel = Parcel(
                parcel_id=f"{tenant}-{number}",
                tenant_id=tenant,
                batch="b",
                label=f"{tenant}/{number}" if number % 2 else None,
                amount=number,
                checked_at=at(number) if number % 3 else None,
            )
            access.insert(PARCELS, ALL_TENANTS, Row(parcel))
        for number in range(1, LOGGED + 1):
            scan = Scan(parcel_id=f"{tenant}-1", sequence=number, batch="b", message=f"at {number}")
            access.insert(SCANS, ALL_TENANTS, Row(scan))


@pytest.fixture(scope="module", autouse=True)
def _depot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        points = {"twinstore.modules": {"depot": "tests.support.depot.plugin:PLUGIN"}}
        install_distribution(patch, tmp_path_factory.mktemp("depot"), "acme-depot", points)
        yield


@dataclass(frozen=True)
class Depot:
    """A filled source and an empty target, and the commands on them."""

    sides: tuple[str, str]
    configs: tuple[Path, Path]
    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, command: str, *more: object, back: bool = False) -> Answer:
        """Run a command of the backfill from source to target, or back."""
        step = -1 if back else 1
        (one, other), (from_, to) = self.sides[::step], self.configs[::step]
        sides = ("--from", one, "--to", other, "--source-config", from_, "--target-config", to)
        module = ("--module", "depot", "--format", "json")
        return invoke(self.capsys, "backfill", *command.split(), *module, *sides, *more)

    def copied(self, *more: object, back: bool = False) -> dict[str, int]:
        """Copy and return the totals."""
        out = ("--out", self.directory / uuid4().hex, "--range-size", 3)
        totals: dict[str, int] = self("copy", "--execute", *out, *more, back=back).json["totals"]
        return totals

    def verdict(self, *more: object, back: bool = False) -> str:
        """Compare and return the verdict."""
        report = self("verify", "--out", self.report, "--range-size", 3, *more, back=back)
        return cast("str", report.json["verdict"])

    @property
    def report(self) -> Path:
        return self.directory / "report"


@contextmanager
def opened(directory: Path, settings: dict[str, object], backend: str) -> Iterator[tuple[Path, Store]]:
    """Write the settings of one side, and open it with its schema."""
    config = write_config(directory / f"{uuid4().hex}.json", settings)
    with open_store("depot", backend, load_settings(config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        yield config, cast("Store", store)


@pytest.fixture
def documents(mongo_server: MongoServer, empty_mongo_database: MongoDatabase) -> Database[Document]:
    return mongo_server.client[empty_mongo_database.name]


@pytest.fixture
def parcels(documents: Database[Document]) -> Collection[Document]:
    return documents["parcels"]


@pytest.fixture
def into_documents(
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Depot]:
    """Fill PostgreSQL and name a MongoDB as the target."""
    with (
        opened(tmp_path, empty_postgres_database.config, "postgres") as (source, store),
        opened(tmp_path, empty_mongo_database.config, "mongo") as (target, _),
    ):
        fill(store)
        yield Depot(("postgres", "mongo"), (source, target), tmp_path, capsys)


@pytest.fixture
def from_documents(
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Depot]:
    """Fill MongoDB and name a PostgreSQL as the target."""
    with (
        opened(tmp_path, empty_mongo_database.config, "mongo") as (source, store),
        opened(tmp_path, empty_postgres_database.config, "postgres") as (target, _),
    ):
        fill(store)
        yield Depot(("mongo", "postgres"), (source, target), tmp_path, capsys)


def force(collection: Collection[Document], *documents: Document) -> None:
    """Insert documents whatever the validator says."""
    collection.database.command(
        "insert", collection.name, documents=list(documents), bypassDocumentValidation=True
    )


def stands_under(collection: Collection[Document], name: str, identity: object) -> None:
    """Give the document of a parcel another id."""
    found = collection.find_one_and_delete({"parcelId": name})
    assert found is not None
    force(collection, {**found, "_id": identity})


def ids_of(collection: Collection[Document]) -> dict[object, object]:
    return {(row["parcelId"], row.get("sequence")): row["_id"] for row in collection.find()}


def all_of(database: Database[Document]) -> list[list[Document]]:
    return [list(database[name].find().sort("parcelId")) for name in ROWS]


def test_a_copy_generates_ids_once_and_every_further_copy_writes_nothing(
    into_documents: Depot, documents: Database[Document]
) -> None:
    assert into_documents.copied()["written"] == sum(ROWS.values())
    ids = [row["_id"] for rows in all_of(documents) for row in rows]
    assert {type(identity) for identity in ids} == {ObjectId}
    assert len(set(ids)) == sum(ROWS.values())
    before = all_of(documents)
    assert into_documents.verdict() == "PASS"
    again = into_documents.copied()
    assert (again["written"], again["unchanged"], again["conflicts"]) == (0, sum(ROWS.values()), 0)
    back = into_documents.copied(back=True)
    assert (back["written"], back["unchanged"], back["conflicts"]) == (0, sum(ROWS.values()), 0)
    assert into_documents.verdict(back=True) == "PASS"
    assert all_of(documents) == before


def test_documents_of_another_database_get_ids_of_their_own(
    mongo_server: MongoServer, from_documents: Depot, documents: Database[Document]
) -> None:
    with (
        mongo_server.database() as other,
        opened(from_documents.directory, other.config, "mongo") as (target, _),
    ):
        pair = Depot(
            ("mongo", "mongo"),
            (from_documents.configs[0], target),
            from_documents.directory,
            from_documents.capsys,
        )
        assert pair.copied()["written"] == sum(ROWS.values())
        assert pair.verdict() == "PASS"
        copies = mongo_server.client[other.name]
        for name in ROWS:
            one, two = ids_of(documents[name]), ids_of(copies[name])
            assert one.keys() == two.keys()
            assert set(one.values()).isdisjoint(two.values())


def test_a_document_that_is_overwritten_keeps_its_id(
    into_documents: Depot, parcels: Collection[Document]
) -> None:
    into_documents.copied()
    before = ids_of(parcels)
    parcels.update_one({"parcelId": "acme-2"}, {"$set": {"amount": 99, "foreign": True}})
    parcels.update_one({"parcelId": "acme-3"}, {"$set": {"label": "taken"}})
    parcels.update_one({"parcelId": "acme-5"}, {"$set": {"label": "acme/3"}})
    found = into_documents("verify", "--out", into_documents.report)
    (entity,) = (item for item in found.json["entities"] if item["entity"] == "parcels")
    assert {item["path"].partition(" ")[0] for item in entity["fields"]} == {
        "doc.amount",
        "doc.foreign",
        "doc.label",
    }
    assert into_documents.copied("--max-conflicts", 9)["conflicts"] == 3
    into_documents.copied("--on-conflict", "overwrite")
    assert ids_of(parcels) == before
    assert into_documents.verdict() == "PASS"


# test_repair has the repair of one identity.
@pytest.mark.parametrize("way", ["overwrite", pytest.param("repair", marks=pytest.mark.long)])
def test_an_id_of_another_type_is_a_difference_that_is_repaired_once_for_all(
    into_documents: Depot, documents: Database[Document], way: str
) -> None:
    into_documents.copied()
    parcels, scans = documents["parcels"], documents["scans"]
    odd = dict(zip(KEYS, ODD_IDS, strict=False))
    for name, identity in odd.items():
        stands_under(parcels, name, identity)
    # Of rows that are never changed none is overwritten, but a repair puts one in the place of another.
    if way == "repair":
        found = scans.find_one_and_delete({"parcelId": "acme-1", "sequence": 2})
        force(scans, {**cast("Document", found), "_id": "acme-1:2"})
    report = into_documents("verify", "--out", into_documents.report).json
    found_fields = {
        item["entity"]: [field["path"] for field in item["fields"]] for item in report["entities"]
    }
    fields = {name: found_fields[name] for name in ROWS}
    assert fields == {"parcels": ["beside._id"], "scans": ["beside._id"] if way == "repair" else []}
    if way == "repair":
        mended = into_documents("repair", "--in", into_documents.report, "--execute")
        assert mended.code == Exit.OK
        assert mended.json["repaired"]["written"] == {"parcels": len(odd), "scans": 1}
        rechecked = into_documents("recheck", "--in", into_documents.report, "--out", into_documents.report)
        assert rechecked.code == Exit.OK
    else:
        totals = into_documents.copied("--on-conflict", "overwrite")
        assert totals["written"] == len(odd)
    assert {type(identity) for identity in ids_of(parcels).values()} == {ObjectId}
    assert len(ids_of(parcels)) == parcels.count_documents({}) == ROWS["parcels"]
    assert into_documents.verdict() == "PASS"


def test_a_source_whose_ids_are_of_any_type_is_read_and_copied_all_the_same(
    from_documents: Depot, parcels: Collection[Document]
) -> None:
    for name, identity in zip(KEYS, ODD_IDS, strict=False):
        stands_under(parcels, name, identity)
    totals = from_documents.copied()
    assert (totals["written"], totals["quarantined"]) == (sum(ROWS.values()), 0)
    assert from_documents.verdict() == "PASS"
    with open_store("depot", "mongo", load_settings(from_documents.configs[0], environ={})) as store:
        access = store.bulk.access()
        rows = access.find(PARCELS, ALL_TENANTS, [(name,) for name in KEYS])
        assert [row and row.model.parcel_id for row in rows] == list(KEYS)


def test_a_document_without_a_usable_key_goes_to_quarantine_with_its_id(
    from_documents: Depot, parcels: Collection[Document]
) -> None:
    identity = ObjectId()
    bad: list[Document] = [
        {"_id": identity, "tenantId": "acme", "batch": "b", "amount": 1},
        {"tenantId": "acme", "batch": "b", "amount": 1, "parcelId": 17},
        {"tenantId": "acme", "batch": "b", "amount": 1, "parcelId": ["acme-1", "acme-2"]},
        {"tenantId": "acme", "batch": "b", "amount": "many", "parcelId": "acme-bad"},
    ]
    parcels.drop_index("ux_parcelId")
    parcels.create_index("parcelId")
    force(parcels, *bad)
    out = from_documents.directory / "out"
    answer = from_documents("copy", "--execute", "--out", out, "--range-size", 3)
    totals = answer.json["totals"]
    assert (totals["written"], totals["quarantined"]) == (sum(ROWS.values()), len(bad))
    kept = [json.loads(line) for line in (out / "quarantine.ndjson").read_text().splitlines()]
    keys = [entry["key"] for entry in kept]
    # Of the others the _id is named, by which the document is found.
    assert ["acme-bad"] in keys
    assert sum(isinstance(key, str) and "$oid" in key for key in keys) == 3
    originals = json.dumps(from_documents_originals(from_documents))
    assert str(identity) in originals


def from_documents_originals(depot: Depot) -> list[Any]:
    file = depot.directory / "kept.ndjson"
    arguments = ("--to", depot.sides[1], "--target-config", depot.configs[1], "--module", "depot")
    answer = invoke(depot.capsys, "backfill", "quarantine", "export", *arguments, "--out", file)
    assert answer.code == Exit.OK, answer.err
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_copy_that_stopped_goes_on_without_a_second_document(
    into_documents: Depot, parcels: Collection[Document]
) -> None:
    out = ("--out", into_documents.directory / "out", "--range-size", 2)
    # A row under a key of a later range stops the first run in the middle.
    taken: Document = {"tenantId": "acme", "batch": "b", "amount": 99, "parcelId": "umbrella-3"}
    force(parcels, taken)
    stopped = into_documents("copy", "--execute", "--jobs", 1, *out)
    assert (stopped.code != Exit.OK, 0 < parcels.count_documents({}) <= ROWS["parcels"]) == (True, True)
    before = ids_of(parcels)
    parcels.delete_one({"parcelId": "umbrella-3"})
    assert into_documents("copy", "--execute", *out).code == Exit.OK
    after = ids_of(parcels)
    assert parcels.count_documents({}) == len(after) == ROWS["parcels"]
    assert {key for key, identity in after.items() if before.get(key) == identity} >= before.keys() - {
        ("umbrella-3", None)
    }
    assert into_documents.verdict() == "PASS"


def test_a_concurrent_insert_under_an_index_of_another_name_is_compared_like_any_row(
    into_documents: Depot, parcels: Collection[Document]
) -> None:
    parcels.drop_index("ux_parcelId")
    parcels.create_index("parcelId", unique=True)  # under the name that the server gives it
    source, target = (load_settings(config, environ={}) for config in into_documents.configs)
    with open_store("depot", "postgres", source) as tables, tables.bulk.view() as view:
        records = list(view.records_of(PARCELS, [(name,) for name in KEYS]))
    one, two = (cast("Parcel", record.model) for record in records[:2])
    with open_store("depot", "mongo", target) as store, store.bulk.writer(PARCELS) as writer:
        writer.write(records)
        # Between the search for existing rows and the insert.
        store.bulk.access().insert(PARCELS, ALL_TENANTS, Row(one))
        store.bulk.access().insert(PARCELS, ALL_TENANTS, Row(two.evolve(amount=77)))
        outcome = writer.flush()
        writer.commit()
    assert (sum(outcome.written.values()), sum(outcome.unchanged.values())) == (ROWS["parcels"] - 2, 1)
    assert ([item.key for item in outcome.conflicts], outcome.rejected) == ([records[1].key], ())
