"""The depot as a module: the entities of the kit with ids of other forms, reached by the access itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.catalog.entity import Module, Parent
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.storage.module import ModuleStorage
from twinstore.testing.entities import PARCELS as KIT_PARCELS
from twinstore.testing.entities import SCANS as KIT_SCANS
from twinstore.testing.entities import STUBS as KIT_STUBS
from twinstore.testing.entities import TICKETS as KIT_TICKETS

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore.testing.entities import Parcel, Scan, Stub, Ticket

NAME: Final = "depot"
PARCELS: Final[Entity[Parcel]] = replace(KIT_PARCELS, module=NAME)
SCANS: Final[Entity[Scan]] = replace(KIT_SCANS, module=NAME, parent=Parent(entity=PARCELS, field="parcelId"))
TICKETS: Final[Entity[Ticket]] = replace(KIT_TICKETS, module=NAME)
STUBS: Final[Entity[Stub]] = replace(KIT_STUBS, module=NAME, parent=Parent(entity=TICKETS, field="ticket"))


@dataclass(frozen=True, slots=True)
class Repositories:
    """The access, which this module uses in place of repositories."""

    access: Access


class DepotStorage(ModuleStorage[Repositories, Repositories]):
    """What a host holds of the depot."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> Repositories:
        return repositories


MODULE: Final = ModuleSpec(
    catalog=Module(name=NAME, entities=(PARCELS, SCANS, TICKETS, STUBS)),
    repositories=Repositories,
    title="Depot",
    package="tests.support.depot",
    storage=DepotStorage,
    session=Repositories,
)
