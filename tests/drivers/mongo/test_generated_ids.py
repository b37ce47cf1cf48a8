"""What no contract sees: the generated ``_id`` of a document through every way of writing, on a server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId
from pydantic import SecretStr

from tests.drivers.mongo.deployment import module_backend
from twinstore.access.protocol import Add, Ref, UniqueKey
from twinstore.access.query import build_query, key_order
from twinstore.catalog.conditions import Equals
from twinstore.catalog.entity import Module
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DuplicateError, ValidationError
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.testing.datasets import Dataset, factory_of
from twinstore.testing.entities import KIT, MODULE, PARCELS, SCANS, Parcel, by_access
from twinstore.testing.workspace import race
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection
    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer
    from twinstore.access.protocol import Access, Rule
    from twinstore.catalog.entity import Entity

Document = dict[str, Any]
T: Final = Tenant("acme")
DATASET: Final = Dataset(T, "batch")
# Nothing counts its changes, so it is replaced in other ways.
CRATES: Final = replace(PARCELS, name="crates", collection="crates", singular="crate", versioned=False)
SPEC: Final[ModuleSpec[Access]] = by_access(
    replace(MODULE, catalog=Module(name=KIT.name, entities=(PARCELS, SCANS, CRATES)))
)
both = pytest.mark.parametrize("entity", [PARCELS, CRATES], ids=lambda entity: entity.name)


@pytest.fixture
def database(mongo_server: MongoServer, empty_mongo_database: MongoDatabase) -> Database[Document]:
    return mongo_server.client[empty_mongo_database.name]


@pytest.fixture
def access(empty_mongo_database: MongoDatabase) -> Iterator[Access]:
    settings = MongoSettings(
        connection_string=SecretStr(empty_mongo_database.url), database=empty_mongo_database.name
    )
    with module_backend(SPEC, settings) as backend:
        yield backend.repositories


def parcel(number: int = 1, **changes: object) -> Row[Parcel]:
    model = Parcel(parcel_id=f"p-{number}", tenant_id=T.id, batch="batch", label=f"l-{number}", amount=number)
    return Row(model.evolve(**changes) if changes else model)


def ref(entity: Entity[Parcel], number: int = 1) -> Ref[Parcel]:
    return Ref(entity, T, (f"p-{number}",))


def to(amount: int) -> Rule:
    """Return the rule that gives the rows it gets another amount."""
    return lambda rows, _: tuple(
        None if row is None else Row(row.model.evolve(amount=amount), row.storage) for row in rows
    )


def the_id(collection: Collection[Document]) -> object:
    """Return the id of the only document, which begins with it."""
    (document,) = collection.find()
    assert next(iter(document)) == "_id"
    return document["_id"]


@both
def test_it_is_made_by_the_first_write_and_kept_by_all_others(
    access: Access, database: Database[Document], entity: Entity[Parcel]
) -> None:
    collection = database[entity.collection]
    access.put(entity, T, parcel())
    before = the_id(collection)
    assert type(before) is ObjectId
    access.put(entity, T, parcel(amount=2))
    access.put(entity, T, parcel(amount=2))
    access.change(
        [ref(entity)],
        lambda rows, _: tuple(row and replace(row, model=row.model.evolve(amount=3)) for row in rows),
    )
    with access.unit(T) as unit:
        unit.put(entity, T, parcel(amount=4))
        unit.change(
            [ref(entity)],
            lambda rows, _: tuple(row and replace(row, model=row.model.evolve(amount=5)) for row in rows),
        )
    query = build_query(
        entity.name, scope=T, where=(Equals("amount", 5),), order=key_order(entity), limit=1, maximum=1
    )
    (marked,) = access.mark(entity, query, {"amount": Add(1)})
    assert marked.model == parcel(amount=6).model
    assert access.find(entity, T, [("p-1",)]) == (marked,)
    assert access.find(entity, T, [UniqueKey(entity.uniques[0], ("l-1",))]) == (marked,)
    assert the_id(collection) == before


@both
def test_of_sixteen_first_writes_of_one_key_one_makes_it(
    access: Access, database: Database[Document], entity: Entity[Parcel]
) -> None:
    def insert(number: int) -> object:
        return access.insert(entity, T, parcel(amount=number))

    found = race(insert, range(16))
    refused = [item for item in found if isinstance(item, DuplicateError)]
    assert len(refused) == 15
    assert {(error.entity, error.key) for error in refused} == {(entity.name, "p-1")}
    first = the_id(database[entity.collection])

    def put(number: int) -> object:
        return access.put(entity, T, parcel(amount=number))

    assert [item for item in race(put, range(16)) if not isinstance(item, Row)] == []
    assert the_id(database[entity.collection]) == first
    database[entity.collection].delete_many({})
    assert [item for item in race(put, range(16)) if not isinstance(item, Row)] == []
    assert the_id(database[entity.collection]) != first


def test_writers_of_a_log_number_its_entries_one_after_the_other(
    access: Access, database: Database[Document]
) -> None:
    access.put(PARCELS, T, parcel())
    scan = factory_of(SCANS).row(DATASET).model

    def append(number: int) -> object:
        entry = Row(scan.evolve(parcel_id="p-1", sequence=None, message=f"m-{number}"))
        return access.append(SCANS, ref(PARCELS), [entry])

    assert [item for item in race(append, range(12)) if isinstance(item, Exception)] == []
    documents = list(database["scans"].find().sort("sequence"))
    assert [document["sequence"] for document in documents] == [*range(1, 13)]
    assert len({document["_id"] for document in documents}) == 12


def test_the_taken_value_is_identified_by_its_index(access: Access) -> None:
    access.insert(PARCELS, T, parcel())
    with pytest.raises(DuplicateError, match="label") as of_label:
        access.insert(PARCELS, T, parcel(2, label="l-1"))
    assert of_label.value.key == "p-2"
    with pytest.raises(DuplicateError) as of_key:
        access.insert(PARCELS, T, parcel())
    assert (of_key.value.key, "label" in of_key.value.message) == ("p-1", False)
    with pytest.raises(DuplicateError, match="label"):
        access.put(PARCELS, T, parcel(3, label="l-1"))
    with pytest.raises(DuplicateError) as foreign:
        access.put(PARCELS, Tenant("umbrella"), parcel(tenant_id="umbrella", label=None))
    assert foreign.value.key == "p-1"


def test_one_of_another_type_is_read_and_the_validator_keeps_writes_away(
    access: Access, database: Database[Document]
) -> None:
    access.insert(PARCELS, T, parcel())
    collection = database["parcels"]
    document = collection.find_one_and_delete({})
    changed = [{**(document or {}), "_id": "p-1"}]
    database.command("insert", "parcels", documents=changed, bypassDocumentValidation=True)
    assert access.find(PARCELS, T, [("p-1",)]) == (parcel(),)
    with pytest.raises(ValidationError, match="validator"):
        access.put(PARCELS, T, parcel(amount=2))
    database.command("collMod", "parcels", validator={})
    access.put(PARCELS, T, parcel(amount=2))
    assert the_id(collection) == "p-1"


def test_a_removal_goes_by_the_key_and_takes_the_log_along(
    access: Access, database: Database[Document]
) -> None:
    for number in (1, 2):
        access.put(PARCELS, T, parcel(number))
        scan = factory_of(SCANS).row(DATASET).model.evolve(parcel_id=f"p-{number}", sequence=None)
        access.append(SCANS, ref(PARCELS, number), [Row(scan), Row(scan.evolve(message="other"))])
    query = build_query(
        "parcels", scope=T, where=(Equals("parcelId", "p-1"),), order=key_order(PARCELS), limit=1, maximum=1
    )
    assert access.remove(PARCELS, query) == 1
    assert [document["parcelId"] for document in database["parcels"].find()] == ["p-2"]
    assert [document["parcelId"] for document in database["scans"].find()] == ["p-2", "p-2"]
