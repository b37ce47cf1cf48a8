"""Rows whose keys are ObjectIds and UUIDs alone go through the whole kit, children too."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol, Self

import pytest
from typing_extensions import override

from tests.support.distributions import install_distribution
from twinstore.access.keyed import KeyedRepository
from twinstore.access.paging import Page
from twinstore.catalog.entity import Entity, Module, Parent
from twinstore.catalog.indexes import Index
from twinstore.catalog.keys import binary_uuid, object_id
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import BinaryUuid, Bytes, DecimalNumber, Name, ObjectIdText, TenantId
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleOptions, ModuleSettings
from twinstore.storage.module import ModuleStorage
from twinstore.testing import ModuleContract
from twinstore.testing.examples import ModuleExamples, example, object_id_named, uuid_named
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access.protocol import Access
    from twinstore.testing import BackendFactory


class Film(CanonicalModel):
    """A film of a tenant."""

    id: ObjectIdText
    tenant_id: TenantId
    title: Name
    rating: DecimalNumber
    poster: Bytes = b""
    series: ObjectIdText | None = None


class Print(CanonicalModel):
    """A print of a film; ``box`` is where it is, of which there is one in the world."""

    film_id: ObjectIdText
    serial: BinaryUuid
    box: BinaryUuid
    price: DecimalNumber
    remark: Name


class FilmRepository(Protocol):
    """Films by id, the best first."""

    def put(self, film: Film, /) -> Film: ...
    def get(self, tenant_id: str, film_id: str, /) -> Film | None: ...
    def list(self, tenant_id: str, /, *, limit: int = 50, page_token: str | None = None) -> Page[Film]: ...
    def delete(self, tenant_id: str, film_id: str, /) -> bool: ...


class PrintRepository(Protocol):
    """Prints by film and serial number."""

    def put(self, tenant_id: str, item: Print, /) -> Print: ...
    def get(self, tenant_id: str, film_id: str, serial: str, /) -> Print | None: ...
    def list(
        self, tenant_id: str, film_id: str, /, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Print]: ...
    def delete(self, tenant_id: str, film_id: str, serial: str, /) -> bool: ...


FILMS: Final = Entity(
    name="films",
    singular="film",
    module="cinema",
    model=Film,
    key_parts=(object_id("id"),),
    tenancy=Tenancy.required(),
    group="films",
    indexes=(Index(fields=("tenantId", "-rating", "id"), name="tenant_rating"),),
)
PRINTS: Final = Entity(
    name="prints",
    singular="print",
    module="cinema",
    model=Print,
    key_parts=(object_id("filmId"), binary_uuid("serial")),
    tenancy=Tenancy.through_parent(),
    parent=Parent(entity=FILMS, field="filmId"),
    group="films",
    indexes=(Index(fields=("box",), name="box", unique=True, noun="box"),),
)


class Films(KeyedRepository[Film], FilmRepository):
    """Implements FilmRepository."""

    entity = FILMS
    order = ("-rating",)


class Prints(KeyedRepository[Print], PrintRepository):
    """Implements PrintRepository."""

    entity = PRINTS


@dataclass(frozen=True, slots=True)
class Repositories:
    """All of them."""

    films: Films
    prints: Prints

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(Films(access), Prints(access))


@dataclass(frozen=True, eq=False, repr=False)
class CinemaSession:
    """All of them, bound or not."""

    films: FilmRepository
    prints: PrintRepository


class CinemaStorage(ModuleStorage[Repositories, CinemaSession], CinemaSession):
    """What a host holds."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> CinemaSession:
        return CinemaSession(repositories.films, repositories.prints)


MODULE: Final = ModuleSpec(
    catalog=Module(name="cinema", entities=(FILMS, PRINTS)),
    repositories=Repositories.over,
    title="Cinema",
    package="tests.kit",
    storage=CinemaStorage,
    session=CinemaSession,
)
PLUGIN: Final = ModulePlugin(
    name="cinema",
    title="Cinema",
    settings=ModuleSettings(section="Cinema", options=ModuleOptions),
    spec=lambda: MODULE,
)


def film(tenant: str, name: str) -> Film:
    return Film(id=object_id_named(name), tenant_id=tenant, title="Metropolis", rating=Decimal("8.30"))


def rich_film(tenant: str, name: str) -> Film:
    return film(tenant, name).evolve(poster=b"\x00\xff", series=object_id_named("series"))


def listed_film(tenant: str, key: str, number: int) -> Film:
    return film(tenant, key).evolve(rating=Decimal(number // 3).scaleb(-1))


def a_print(tenant: str, name: str) -> Print:
    return Print(
        film_id=film(tenant, name).id,
        serial=uuid_named(name),
        box=uuid_named(f"box {name}"),
        price=Decimal("-0.10"),
        remark="scratched",
    )


def listed_print(tenant: str, key: str, number: int) -> Print:
    film_id = object_id_named(f"listed {tenant}")
    return a_print(tenant, key).evolve(film_id=film_id, price=Decimal(number))


def store_print(session: CinemaSession, tenant: str, stored: Print) -> Print:
    session.films.put(film(tenant, stored.film_id))
    return session.prints.put(tenant, stored)


class CinemaContract(ModuleContract):
    """What holds for every module."""

    module = ModuleExamples(
        MODULE,
        (
            example(
                entity=FILMS,
                protocol=FilmRepository,
                small=film,
                rich=rich_film,
                store="put",
                remove="delete",
                orders={"list": "-rating id"},
                vary=listed_film,
            ),
            example(
                entity=PRINTS,
                protocol=PrintRepository,
                small=a_print,
                rich=a_print,
                store=store_print,
                remove="delete",
                orders={"list": "serial"},
                vary=listed_print,
            ),
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        points = {"twinstore.modules": {"cinema": f"{__name__}:PLUGIN"}}
        install_distribution(patch, tmp_path_factory.mktemp("installed"), "acme-cinema", points)
        yield


class TestCinema(CinemaContract):
    """Films and prints in memory."""

    @pytest.fixture(scope="class")
    @staticmethod
    def backend_factory() -> BackendFactory:
        return memory_deployments
