"""ObjectIds, UUIDs, decimals and bytes between two servers: copied, compared, restored, never mistaken."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast
from uuid import uuid4

import psycopg
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from pymongo.errors import BulkWriteError

from tests.support.copies import Answer, invoke, open_store, server_settings, write_config
from tests.support.data_modules import installed_module
from tests.support.goods import CRATES, STAMPS, WARES
from tests.unit.fast.test_digests_of_stores import check
from tests.unit.fast.test_typed_values import MADE, ODD, typed
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.config import load_settings
from twinstore.testing.datasets import CRATE, DECIMALS, STAMP, WARE, Dataset
from twinstore_backfill.cli import main
from twinstore_backfill.selftest.corruptions import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from twinstore_backfill.stores import Store

Document = dict[str, Any]
TENANTS: Final = ("acme", "umbrella")
FACTORIES: Final = ((WARES, WARE), (STAMPS, STAMP), (CRATES, CRATE))
NUMBERS: Final = len(DECIMALS)
ROWS: Final = len(FACTORIES) * len(TENANTS) * NUMBERS


@pytest.fixture(scope="module", autouse=True)
def _goods(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("goods")
    with (
        postgres_server.empty_database() as database,
        installed_module(folder, "goods", database.config, "goods"),
    ):
        yield


def fill(store: Store) -> None:
    """Store rows of each entity for each tenant."""
    access = store.bulk.access()
    for tenant in TENANTS:
        dataset = Dataset(Tenant(tenant), f"batch of {tenant}")
        for entity, factory in FACTORIES:
            for row in factory.rows(dataset, NUMBERS):
                access.insert(entity, ALL_TENANTS, Row(row.model))


@contextmanager
def opened(directory: Path, settings: dict[str, object], backend: str) -> Iterator[tuple[Path, Store]]:
    """Write the settings of one side, and open it with its schema."""
    config = write_config(directory / f"{uuid4().hex}.json", settings)
    with open_store("goods", backend, load_settings(config, environ={})) as store:
        store.storage.initializer.ensure_migrations()
        yield config, cast("Store", store)


@dataclass
class Goods:
    """A source and a target, and the commands on them."""

    sides: tuple[str, str]
    configs: tuple[Path, Path]
    directory: Path
    capsys: pytest.CaptureFixture[str]
    out: Path = field(init=False)

    def __call__(self, command: str, *more: object) -> Answer:
        """Run a command of the backfill from source to target."""
        (one, other), (from_, to) = self.sides, self.configs
        sides = ("--from", one, "--to", other, "--source-config", from_, "--target-config", to)
        module = ("--module", "goods", "--format", "json")
        return invoke(self.capsys, "backfill", *command.split(), *module, *sides, *more)

    def copied(self, *more: object) -> dict[str, int]:
        """Copy and return the totals."""
        self.out = self.directory / uuid4().hex
        totals: dict[str, int] = self("copy", "--execute", "--out", self.out, "--range-size", 5, *more).json[
            "totals"
        ]
        return totals

    def report(self, *more: object) -> dict[str, Any]:
        """Compare and return the report."""
        out = self.directory / "report"
        return self("verify", "--out", out, "--range-size", 5, *more).json


@pytest.fixture
def documents(mongo_server: MongoServer, empty_mongo_database: MongoDatabase) -> Database[Document]:
    return mongo_server.client[empty_mongo_database.name]


@pytest.fixture
def forward(
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Goods]:
    """Fill MongoDB and name a PostgreSQL as the target."""
    with (
        opened(tmp_path, empty_mongo_database.config, "mongo") as (source, store),
        opened(tmp_path, empty_postgres_database.config, "postgres") as (target, _),
    ):
        fill(store)
        yield Goods(("mongo", "postgres"), (source, target), tmp_path, capsys)


def raw(database: Database[Document]) -> dict[str, list[bytes]]:
    """Return all documents byte by byte."""
    return {
        entity.name: [
            bytes(document.raw)
            for document in database[entity.collection]
            .with_options(database.codec_options.with_options(document_class=RawBSONDocument))
            .find()
            .sort([("_id", 1)])
        ]
        for entity, _ in FACTORIES
    }


def test_every_type_goes_there_and_back_byte_by_byte(
    mongo_server: MongoServer, forward: Goods, documents: Database[Document]
) -> None:
    assert forward.copied()["written"] == ROWS
    report = forward.report()
    assert (report["verdict"], report["equivalences"], report["cutover_ready"]) == ("PASS", [], True)
    again = forward.copied()
    assert (again["written"], again["unchanged"], again["conflicts"]) == (0, ROWS, 0)
    with (
        mongo_server.database() as other,
        opened(forward.directory, other.config, "mongo") as (target, _),
    ):
        back = Goods(("postgres", "mongo"), (forward.configs[1], target), forward.directory, forward.capsys)
        assert back.copied()["written"] == ROWS
        assert back.report()["verdict"] == "PASS"
        again = back.copied()
        assert (again["written"], again["unchanged"], again["conflicts"]) == (0, ROWS, 0)
        before, after = raw(documents), raw(mongo_server.client[other.name])
        # The `_id` of a stamp joins its key, so it sorts otherwise than that.
        assert {name: sorted(found) for name, found in after.items()} == {
            name: sorted(found) for name, found in before.items()
        }


def first_ware(database: Database[Document]) -> ObjectId:
    """Return the id of a ware."""
    found = database[WARES.collection].find_one({"tenantId": "acme"}, sort=[("_id", 1)])
    assert found is not None
    return cast("ObjectId", found["_id"])


def test_other_forms_are_named_and_restored_in_normal_form(
    forward: Goods, documents: Database[Document], empty_postgres_database: PostgresDatabase
) -> None:
    wares, identity = documents[WARES.collection], first_ware(documents)
    values = {
        "weight": (Decimal128("1E+3"), Int64(7), "1.50"),
        "makers": ([str(identity)],),
        "offer": ({"price": 5},),
    }
    ids = [item["_id"] for item in wares.find({"tenantId": "acme"}).sort("_id", 1)]
    forms = [{name: value} for name, several in values.items() for value in several]
    for one, form in zip(ids, forms, strict=False):
        documents.command(
            "update",
            WARES.collection,
            updates=[{"q": {"_id": one}, "u": {"$set": form}}],
            bypassDocumentValidation=True,
        )
    assert forward.copied()["written"] == ROWS
    report = forward.report()
    kinds = {item["name"]: item["documents"] for item in report["equivalences"]}
    assert report["verdict"] == "PASS"
    assert kinds == {"decimal_exponent": 1, "number_type": 2, "text_value": 2}
    with psycopg.connect(empty_postgres_database.superuser_url) as tables:
        stored = tables.execute(
            "SELECT weight FROM goods.wares WHERE id = ANY (%s) ORDER BY id", [[str(one) for one in ids[:3]]]
        ).fetchall()
    assert [str(weight) for (weight,) in stored] == ["1000", "7", "1.50"]
    # Where lists use the value, both stores may answer differently.
    documents.command(
        "update",
        WARES.collection,
        updates=[{"q": {"_id": ids[-1]}, "u": {"$set": {"price": Int64(9007199254740993)}}}],
        bypassDocumentValidation=True,
    )
    forward.copied("--on-conflict", "overwrite")
    assert forward.report()["verdict"] == "INCONCLUSIVE"


def test_digests_are_those_of_the_rows_whatever_is_stored(
    forward: Goods, documents: Database[Document], *, long_form: bool
) -> None:
    rng = Random("digests of typed values")  # not for secrets
    made = [odd_document(rng, make) for _, make in MADE for _ in range(400 if long_form else 40)]
    for entity, part in zip((WARES, STAMPS), (made[: len(made) // 2], made[len(made) // 2 :]), strict=True):
        # Two with one key are one too many.
        with suppress(BulkWriteError):
            documents[entity.collection].insert_many(part, ordered=False, bypass_document_validation=True)
    forward.copied("--max-quarantine", 999)
    for config, backend in zip(forward.configs, forward.sides, strict=True):
        with open_store("goods", backend, load_settings(config, environ={})) as store:
            for entity in (WARES, STAMPS):
                assert check(store.bulk, entity) > 0


def odd_document(rng: Random, make: Callable[..., Document]) -> Document:
    """Return a document that has a value of another type or form at one place, or at none."""
    found = make(rng, lambda kind: typed(rng)[kind])
    if rng.random() < 0.5:  # a share
        odd = rng.choice([value for values in ODD.values() for value in values.values()])
        found[rng.choice([name for name in found if name not in {"tenantId", "batch", "name"}])] = odd
    return found


def test_what_no_table_holds_goes_to_quarantine_with_its_path(
    forward: Goods, documents: Database[Document]
) -> None:
    wares = documents[WARES.collection]
    good = wares.find_one({"_id": first_ware(documents)})
    assert good is not None
    bad: dict[str, Document] = {
        "price: NaN is no decimal": {"price": Decimal128("NaN")},
        "price: Minus zero": {"price": Decimal128("-0")},
        "price: Decimal has more than 34 significant digits": {"price": Decimal128("1E+40")},
        "price: Input should be a Decimal": {"price": 1.5},
        "maker: Text is no ObjectId": {"maker": "nobody"},
        "design: binary data of subtype 3": {"design": Binary(bytes(16), 3)},
        "image: binary data of subtype 5": {"image": Binary(bytes(16), 5)},
        "seal: a text, and not binary data": {"seal": "aGk="},
        "its _id is not an ObjectId": {"_id": str(ObjectId())},
    }
    del good["design"]
    rows = [{**good, "_id": ObjectId(), **changes} for changes in bad.values()]
    documents.command("insert", WARES.collection, documents=rows, bypassDocumentValidation=True)
    totals = forward.copied("--max-quarantine", 99)
    assert (totals["written"], totals["quarantined"]) == (ROWS, len(bad))
    lines = (forward.out / "quarantine.ndjson").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in lines]
    assert all(any(reason in found for found in reasons) for reason in bad), reasons
    report = forward.report()
    assert report["verdict"] == "INCONCLUSIVE"
    (entity,) = (item for item in report["entities"] if item["entity"] == WARES.name)
    assert entity["quarantined"]["count"] == len(bad)
    assert forward.copied("--max-quarantine", 99)["written"] == 0


PLANTED: Final[tuple[tuple[LiteralString, str], ...]] = (
    ("price = (price::text || '0')::numeric", "doc.price"),
    ("maker = '000000000000000000000009'", "doc.maker"),
    ("design = '00000000-0000-4000-8000-000000000009'", "doc.design"),
    ("image = '\\x01'", "doc.image"),
    ("weights = '[\"1.0\"]'", "doc.weights"),
)


def test_the_least_differences_are_named(forward: Goods, empty_postgres_database: PostgresDatabase) -> None:
    forward.copied()
    with psycopg.connect(empty_postgres_database.superuser_url, autocommit=True) as tables:
        # The longest prices have 34 digits already, and cannot take another zero.
        prices = "SELECT id FROM goods.wares WHERE price::text LIKE '%.%' ORDER BY length(price::text), id"
        ids = [key for (key,) in tables.execute(prices)]
        for key, (change, _) in zip(ids, PLANTED, strict=False):
            tables.execute(sql.SQL("UPDATE goods.wares SET {} WHERE id = %s").format(sql.SQL(change)), [key])
    report = forward.report()
    (entity,) = (item for item in report["entities"] if item["entity"] == WARES.name)
    assert (report["verdict"], entity["different"]["count"]) == ("FAIL", len(PLANTED))
    paths = {item["path"].partition(" ")[0].partition("[")[0] for item in entity["fields"]}
    assert paths == {path for _, path in PLANTED}
    assert forward.copied("--max-conflicts", 99)["conflicts"] == len(PLANTED)
    forward.copied("--on-conflict", "overwrite")
    assert forward.report()["verdict"] == "PASS"


def test_the_self_test_finds_what_is_planted_in_each_type(
    mongo_server: MongoServer, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with (
        mongo_server.database() as source,
        mongo_server.database() as left,
        postgres_server.empty_database() as right,
        opened(tmp_path, source.config, "mongo") as (config, store),
        opened(tmp_path, left.config, "mongo"),
        opened(tmp_path, right.config, "postgres"),
    ):
        fill(store)
        scratch = write_config(tmp_path / "scratch.json", server_settings(left, right))
        sides = ("--module", "goods", "--from", "Mongo", "--to", "Postgres", "--scratch", scratch)
        command = ("--config", config, "backfill", "selftest", *sides, "--out", tmp_path)
        code = main([*map(str, command)])
    report: dict[str, Any] = json.loads((tmp_path / "selftest-report.json").read_text())
    assert (code, report["problems"], report["untested"]) == (0, [], [])
    for side in report["stores"]:
        assert (side["missed"], side["false_alarms"]) == ([], [])
        assert side["found"] == side["planted"] > 100
        assert Kind.SCALE.value in side["by_kind"]
    (documents,) = (side for side in report["stores"] if side["target"] == "Mongo")
    forms = Counter(
        (row["field"], row["form"]) for row in documents["corruptions"] if row["kind"] == Kind.FORM.value
    )
    assert forms.keys() >= {
        ("doc.maker", "text of an id"),
        ("doc.design", "text of bytes"),
        ("doc.design", "old UUID"),
        ("doc.price", "text of a decimal"),
        ("doc.price", "double of a decimal"),
        ("doc.image", "text of bytes"),
        ("doc.image", "other binary data"),
        ("doc.id", "text"),
    }
