"""Entities of every kind between a store of this process and MongoDB: keys of texts, numbers and UUIDs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from tests.conftest import EXACT
from tests.migration_tool.copy.test_kinds_of_entities import NOTES, Note
from tests.support.copies import contents_of
from twinstore.catalog.entity import Entity, Module, Parent
from twinstore.catalog.keys import KeyRange, int64, uuid
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, UNKNOWN_TENANT, Tenancy, Tenant
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, PositiveInt, TenantId, Text
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.options import ModuleOptions
from twinstore.plugins.resources import SharedResources
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.store import MemoryDatabase as MemoryStore
from twinstore_mongo.backend import MongoBackend
from twinstore_mongo.client.connection import Connection
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer
    from twinstore.bulk.port import BulkPort, OnConflict
    from twinstore.catalog.keys import Key


class Box(CanonicalModel):
    """A row of a tenant under a UUID."""

    id: Id
    tenant_id: TenantId


class Thing(CanonicalModel):
    """A row that belongs to the tenant of its box."""

    box_id: Id
    number: PositiveInt


class Tally(CanonicalModel):
    """A row without a tenant, under a number."""

    number: PositiveInt
    content: Text = ""


BOXES: Final = Entity(
    name="boxes",
    singular="box",
    module="notebook",
    model=Box,
    key_parts=(uuid("id"),),
    tenancy=Tenancy.required(),
    group="notes",
)
THINGS: Final = Entity(
    name="things",
    singular="thing",
    module="notebook",
    model=Thing,
    key_parts=(uuid("boxId"), int64("number")),
    tenancy=Tenancy.through_parent(),
    group="notes",
    parent=Parent(entity=BOXES, field="boxId"),
)
TALLIES: Final = Entity(
    name="tallies",
    singular="tally",
    module="notebook",
    model=Tally,
    key_parts=(int64("number"),),
    tenancy=Tenancy.none(),
    group="notes",
)
NOTEBOOK: Final[ModuleSpec[None]] = ModuleSpec(
    catalog=Module(name="notebook", entities=(NOTES, BOXES, THINGS, TALLIES)),
    title="Notebook",
    package="tests",
)
NUMBERS: Final = (1, 2, 9, 10, 11, 100)
BOX_OF: Final = {"acme": str(UUID(int=1)), "umbrella": str(UUID(int=2))}


@pytest.fixture
def stored(mongo_server: MongoServer, mongo_database: MongoDatabase) -> Database[dict[str, object]]:
    return mongo_server.client[mongo_database.name]


@pytest.fixture
def notebook(mongo_database: MongoDatabase) -> Iterator[BulkPort]:
    """Open an empty notebook in MongoDB, one of whose collections has another name."""
    settings = MongoSettings(connection_string=SecretStr(mongo_database.url), database=mongo_database.name)
    with SharedResources() as resources:
        connection = Connection(settings, resources)
        with closing(MongoBackend(NOTEBOOK, connection, ModuleOptions())) as backend:
            yield backend.bulk


@pytest.fixture
def model() -> BulkPort:
    """Return a filled notebook in this process."""
    bulk = MemoryBackend(NOTEBOOK, MemoryStore(uuid4().hex)).bulk
    access = bulk.access()
    for number in NUMBERS:
        for tenant in (None, "acme"):
            note = Note(run_id=f"run-{tenant}", sequence=number, tenant_id=tenant, content="x" * number)
            access.insert(NOTES, ALL_TENANTS, Row(note))
        access.insert(TALLIES, ALL_TENANTS, Row(Tally(number=number)))
    for tenant, box in BOX_OF.items():
        access.insert(BOXES, ALL_TENANTS, Row(Box(id=box, tenant_id=tenant)))
        for number in NUMBERS:
            access.insert(THINGS, ALL_TENANTS, Row(Thing(box_id=box, number=number)))
    return bulk


def copy_all(source: BulkPort, target: BulkPort, on_conflict: OnConflict = "fail") -> dict[str, int]:
    written: dict[str, int] = {}
    for entity in NOTEBOOK.catalog.entities:
        with source.view() as view, target.writer(entity, on_conflict=on_conflict) as writer:
            for batch in view.records(entity, KeyRange(), batch_size=5):
                writer.write(batch)
            outcome = writer.flush()
            writer.commit()
        assert (outcome.rejected, outcome.conflicts) == ((), ())
        written[entity.name] = sum(outcome.written.values())
    return written


def keys_of(bulk: BulkPort, entity: Entity, reading: str, size: int, tenant: str | None) -> list[Key | None]:
    with bulk.view() as view:
        read = getattr(view, reading)
        ranges = bulk.cut(entity, size, tenant_id=tenant)
        return [
            row.key for within in ranges for batch in read(entity, within, tenant_id=tenant) for row in batch
        ]


@pytest.mark.parametrize(
    ("both_paths", "indexed"),
    [
        ("native", False),
        (EXACT, True),
        pytest.param("native", True, marks=pytest.mark.long),
        pytest.param(EXACT, False, marks=pytest.mark.long),
    ],
    indirect=["both_paths"],
)
@pytest.mark.usefixtures("both_paths")
def test_entities_of_every_kind_come_over_and_back(
    model: BulkPort, notebook: BulkPort, stored: Database[dict[str, object]], *, indexed: bool
) -> None:
    if indexed:
        for name, key in (("notes", NOTES.key), ("things", THINGS.key), ("tallies", TALLIES.key)):
            stored[name].create_index([(part, 1) for part in key], unique=True)
    assert copy_all(model, notebook) == {"notes": 12, "boxes": 2, "things": 12, "tallies": 6}
    assert set(copy_all(model, notebook).values()) == {0}
    back = MemoryBackend(NOTEBOOK, MemoryStore(uuid4().hex)).bulk
    copy_all(notebook, back)
    for entity in NOTEBOOK.catalog.entities:
        assert contents_of(notebook, entity) == contents_of(model, entity) == contents_of(back, entity)
        assert notebook.counts(entity) == model.counts(entity)
        for size in (1, 4, 100):
            for reading in ("records", "rows"):
                wanted = keys_of(model, entity, reading, 100, None)
                assert keys_of(notebook, entity, reading, size, None) == wanted
    for tenant, box in BOX_OF.items():
        for size in (2, 100):
            for reading in ("records", "rows"):
                found = keys_of(notebook, THINGS, reading, size, tenant)
                assert found == [(box, number) for number in NUMBERS]
                assert keys_of(notebook, BOXES, reading, size, tenant) == [(box,)]
        assert notebook.counts(THINGS, tenant_id=tenant) == {":none": 6}
    assert keys_of(notebook, THINGS, "rows", 100, "nobody") == []


@pytest.mark.usefixtures("both_paths")
def test_no_tenant_and_a_broken_tenant_are_distinguished(
    notebook: BulkPort, stored: Database[dict[str, object]]
) -> None:
    stored["notes"].insert_many(
        [
            {"runId": "r", "sequence": 1},
            {"runId": "r", "sequence": 2, "tenantId": None},
            {"runId": "r", "sequence": 3, "tenantId": 5},
            {"runId": "r", "sequence": 4, "tenantId": "acme"},
        ]
    )
    assert notebook.counts(NOTES) == {"": 1, ":none": 2, "acme": 1}
    owners = [NO_TENANT, NO_TENANT, UNKNOWN_TENANT, Tenant("acme")]
    with notebook.view() as view:
        assert [row.owner for batch in view.records(NOTES, KeyRange()) for row in batch] == owners
        assert [row.owner for batch in view.rows(NOTES, KeyRange()) for row in batch] == owners
    stored["boxes"].insert_one({"_id": str(UUID(int=9))})
    assert notebook.counts(BOXES) == {"": 1}


@pytest.mark.usefixtures("both_paths")
def test_numbers_in_keys_are_stored_as_numbers_of_any_width(
    notebook: BulkPort, stored: Database[dict[str, object]]
) -> None:
    stored["tallies"].insert_many([{"_id": str(number), "number": number} for number in (3, 2**40, -1)])
    stored["tallies"].insert_many([{"_id": "text", "number": "3"}, {"_id": "none"}])
    for size in (1, 100):
        for reading in ("records", "rows"):
            found = keys_of(notebook, TALLIES, reading, size, None)
            assert [key for key in found if key is not None] == [(-1,), (3,), (2**40,)]
            assert found.count(None) == 2
    with notebook.view() as view:
        assert {row.key for row in view.rows_of(TALLIES, [(3,), (2**40,), (4,)])} == {(3,), (2**40,)}
        assert {row.key for row in view.records_of(TALLIES, [(3,), (2**40,), (4,)])} == {(3,), (2**40,)}
    with notebook.writer(TALLIES) as writer:
        writer.remove([(3,), (4,)])
        assert writer.flush().removed == 1
        writer.commit()
    assert notebook.counts(TALLIES) == {":none": 4}
