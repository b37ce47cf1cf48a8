"""Rows whose keys are whole numbers of 64 bits alone go through the whole kit, children too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

import pytest
from typing_extensions import override

from tests.support.distributions import install_distribution
from twinstore.access.keyed import KeyedRepository
from twinstore.access.paging import Page
from twinstore.catalog.entity import Entity, Module, Parent
from twinstore.catalog.keys import int64, text
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Int64, Name, PositiveInt, TenantId
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleOptions, ModuleSettings
from twinstore.storage.module import ModuleStorage
from twinstore.testing import ModuleContract
from twinstore.testing.examples import ModuleExamples, example, number_of
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access.protocol import Access
    from twinstore.testing import BackendFactory


class Meter(CanonicalModel):
    """A meter of a tenant."""

    number: PositiveInt
    tenant_id: TenantId
    place: Name


class Reading(CanonicalModel):
    """A reading of a meter; that of a day before its installation has a negative day."""

    meter: PositiveInt
    day: Int64
    value: Name


class Tariff(CanonicalModel):
    """A tariff; another tenant may have the same number."""

    tenant_id: TenantId
    number: Int64
    title: Name


class TariffRepository(Protocol):
    """Tariffs by tenant and number."""

    def put(self, tariff: Tariff, /) -> Tariff: ...
    def get(self, tenant_id: str, number: int, /) -> Tariff | None: ...
    def list(self, tenant_id: str, /, *, limit: int = 50, page_token: str | None = None) -> Page[Tariff]: ...


class MeterRepository(Protocol):
    """Meters by number."""

    def put(self, meter: Meter, /) -> Meter: ...
    def get(self, tenant_id: str, number: int, /) -> Meter | None: ...
    def list(self, tenant_id: str, /, *, limit: int = 50, page_token: str | None = None) -> Page[Meter]: ...
    def delete(self, tenant_id: str, number: int, /) -> bool: ...


class ReadingRepository(Protocol):
    """Readings by meter and day."""

    def put(self, tenant_id: str, reading: Reading, /) -> Reading: ...
    def get(self, tenant_id: str, meter: int, day: int, /) -> Reading | None: ...
    def list(
        self, tenant_id: str, meter: int, /, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Reading]: ...
    def delete(self, tenant_id: str, meter: int, day: int, /) -> bool: ...


METERS: Final = Entity(
    name="meters",
    singular="meter",
    module="grid",
    model=Meter,
    key_parts=(int64("number"),),
    tenancy=Tenancy.required(),
    group="meters",
)
READINGS: Final = Entity(
    name="readings",
    singular="reading",
    module="grid",
    model=Reading,
    key_parts=(int64("meter"), int64("day")),
    tenancy=Tenancy.through_parent(),
    parent=Parent(entity=METERS, field="meter"),
    group="meters",
)

TARIFFS: Final = Entity(
    name="tariffs",
    singular="tariff",
    module="grid",
    model=Tariff,
    key_parts=(text("tenantId"), int64("number")),
    tenancy=Tenancy.required(),
    group="tariffs",
)


class Tariffs(KeyedRepository[Tariff], TariffRepository):
    """Implements TariffRepository."""

    entity = TARIFFS


class Meters(KeyedRepository[Meter], MeterRepository):
    """Implements MeterRepository."""

    entity = METERS


class Readings(KeyedRepository[Reading], ReadingRepository):
    """Implements ReadingRepository."""

    entity = READINGS
    order = ("-day",)


@dataclass(frozen=True, slots=True)
class Repositories:
    """All of them."""

    meters: Meters
    readings: Readings
    tariffs: Tariffs

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(Meters(access), Readings(access), Tariffs(access))


@dataclass(frozen=True, eq=False, repr=False)
class GridSession:
    """All of them, bound or not."""

    meters: MeterRepository
    readings: ReadingRepository
    tariffs: TariffRepository


class GridStorage(ModuleStorage[Repositories, GridSession], GridSession):
    """What a host holds."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> GridSession:
        return GridSession(repositories.meters, repositories.readings, repositories.tariffs)


MODULE: Final = ModuleSpec(
    catalog=Module(name="grid", entities=(METERS, READINGS, TARIFFS)),
    repositories=Repositories.over,
    title="Grid",
    package="tests.kit",
    storage=GridStorage,
    session=GridSession,
)
PLUGIN: Final = ModulePlugin(
    name="grid",
    title="Grid",
    settings=ModuleSettings(section="Grid", options=ModuleOptions),
    spec=lambda: MODULE,
)


def meter(tenant: str, name: str) -> Meter:
    return Meter(number=number_of(name), tenant_id=tenant, place="cellar")


def listed_meter(tenant: str, key: str, number: int) -> Meter:
    return meter(tenant, key).evolve(place=f"floor {number}")


def reading(tenant: str, name: str) -> Reading:
    return Reading(meter=meter(tenant, name).number, day=-(2**62), value="7.5 kWh")


def listed_reading(tenant: str, key: str, number: int) -> Reading:
    return Reading(meter=number_of(f"listed {tenant}"), day=number - 3, value=key)


def store_reading(session: GridSession, tenant: str, stored: Reading) -> Reading:
    session.meters.put(Meter(number=stored.meter, tenant_id=tenant, place="cellar"))
    return session.readings.put(tenant, stored)


def tariff(tenant: str, name: str) -> Tariff:
    return Tariff(tenant_id=tenant, number=-number_of(name), title="night")


class GridContract(ModuleContract):
    """What holds for every module."""

    module = ModuleExamples(
        MODULE,
        (
            example(
                entity=METERS,
                protocol=MeterRepository,
                small=meter,
                rich=meter,
                store="put",
                remove="delete",
                orders={"list": "number"},
                vary=listed_meter,
            ),
            example(
                entity=READINGS,
                protocol=ReadingRepository,
                small=reading,
                rich=reading,
                store=store_reading,
                remove="delete",
                orders={"list": "-day"},
                vary=listed_reading,
            ),
            example(
                entity=TARIFFS,
                protocol=TariffRepository,
                small=tariff,
                rich=tariff,
                store="put",
                orders={"list": "number"},
            ),
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        points = {"twinstore.modules": {"grid": f"{__name__}:PLUGIN"}}
        install_distribution(patch, tmp_path_factory.mktemp("installed"), "acme-grid", points)
        yield


class TestGrid(GridContract):
    """Meters and readings in memory."""

    @pytest.fixture(scope="class")
    @staticmethod
    def backend_factory() -> BackendFactory:
        return memory_deployments
