"""What no contract sees: an id that has the tenant in it, and fields that no path leads to, on a server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import pytest
from pydantic import Field, SecretStr

from tests.drivers.mongo.deployment import module_backend
from twinstore.access.protocol import Add, Ref, Unset
from twinstore.access.query import build_query, key_order
from twinstore.catalog.conditions import AtLeast
from twinstore.catalog.entity import Entity, Module
from twinstore.catalog.keys import int64, text
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, Tenancy, Tenant
from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Int64, OptionalText, TenantId
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.testing.entities import MODULE, by_access
from twinstore.testing.workspace import all_pages
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer
    from twinstore.access.protocol import Access
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.tenancy import Tenants

Document = dict[str, Any]
T: Final = Tenant("acme")
NUMBERS: Final = (-2, -1, 0, 1, 9, 10, 2**40)


class Shelf(CanonicalModel):
    """A row whose tenant is a part of its id."""

    tenant_id: TenantId
    number: Int64
    amount: Int64 = 0
    price: Annotated[Int64, Field(alias="$price")] = 0
    place: Annotated[OptionalText, Field(alias="hall.place")] = None


SHELVES: Final = Entity(
    name="shelves",
    singular="shelf",
    module=MODULE.catalog.name,
    model=Shelf,
    key_parts=(text("tenantId"), int64("number")),
    tenancy=Tenancy.required(),
    group="kit",
    key_as_id=True,
)
COUNTED: Final = replace(SHELVES, name="counted", collection="counted", versioned=True)
SPEC: Final[ModuleSpec[Access]] = by_access(
    replace(MODULE, catalog=Module(name=SHELVES.module, entities=(SHELVES, COUNTED)))
)
both = pytest.mark.parametrize("entity", [SHELVES, COUNTED], ids=lambda entity: entity.name)


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


def shelf(number: int, tenant: Tenant = T, **changes: object) -> Row[Shelf]:
    model = Shelf(tenant_id=tenant.id, number=number, amount=number, price=number, place="left")
    return Row(model.evolve(**changes) if changes else model)


def query(*where: Condition, scope: Tenants = T, limit: int = 3, token: str | None = None) -> Any:  # noqa: ANN401  # of any entity
    return build_query(
        SHELVES.name,
        scope=scope,
        where=where,
        order=key_order(SHELVES),
        limit=limit,
        maximum=100,
        page_token=token,
    )


@both
def test_rows_are_written_found_and_listed_by_the_parts_of_their_id(
    access: Access, database: Database[Document], entity: Entity[Shelf]
) -> None:
    other = Tenant("umbrella")
    for number in reversed(NUMBERS):
        access.insert(entity, T, shelf(number))
        access.put(entity, other, shelf(number, other))
        access.put(entity, T, shelf(number, price=5))
    assert database[entity.collection].count_documents({}) == 2 * len(NUMBERS)
    assert access.find(entity, T, [("acme", 9), ("umbrella", 9), ("acme", 8)]) == (
        shelf(9, price=5),
        None,
        None,
    )
    listed = all_pages(lambda token: access.page(entity, query(token=token)))
    assert listed == [shelf(number, price=5) for number in NUMBERS]
    assert access.keys(entity, query(AtLeast("number", 1))) == (("acme", 1), ("acme", 9), ("acme", 10))
    assert access.count(entity, query(scope=ALL_TENANTS), "tenantId") == {
        "acme": len(NUMBERS),
        "umbrella": len(NUMBERS),
    }
    assert access.remove(entity, query(AtLeast("number", 9))) == 3
    assert database[entity.collection].count_documents({"_id.tenantId": "acme"}) == len(NUMBERS) - 3


@both
def test_fields_without_a_path_are_set_one_by_one_and_no_list_names_them(
    access: Access, database: Database[Document], entity: Entity[Shelf]
) -> None:
    for number in (1, 2):
        access.insert(entity, T, shelf(number))
    marked = access.mark(entity, query(limit=1), {"$price": Add(4), "hall.place": Unset(), "amount": 7})
    assert marked == (shelf(1, price=5, place=None, amount=7),)
    assert access.amend(entity, query(limit=1), {"hall.place": "right"}) == 1
    (changed,) = access.change(
        [Ref(entity, T, ("acme", 2))],
        lambda rows, _: tuple(row and Row(row.model.evolve(price=9, place=None)) for row in rows),
    )
    assert changed == shelf(2, price=9, place=None)
    one, two = database[entity.collection].find(sort=[("_id", 1)])
    assert (one["$price"], one["hall.place"], two["$price"], "hall.place" in two) == (5, "right", 9, False)
    assert "hall" not in one.keys() | two.keys()
    with pytest.raises(ValidationError, match=r"has no field 'hall\.place'"):
        access.count(entity, query(), "hall.place")
