"""The depot as a module: the entities of the kit with generated ids, reached by the access itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.catalog.entity import Module, Parent
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.storage.module import ModuleStorage
from twinstore.testing.entities import PARCELS as KIT_PARCELS
from twinstore.testing.entities import SCANS as KIT_SCANS

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore.testing.entities import Parcel, Scan

NAME: Final = "depot"
PARCELS: Final[Entity[Parcel]] = replace(KIT_PARCELS, module=NAME)
SCANS: Final[Entity[Scan]] = replace(KIT_SCANS, module=NAME, parent=Parent(entity=PARCELS, field="parcelId"))


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
    catalog=Module(name=NAME, entities=(PARCELS, SCANS)),
    repositories=Repositories,
    title="Depot",
    package="tests.support.depot",
    storage=DepotStorage,
    session=Repositories,
)
