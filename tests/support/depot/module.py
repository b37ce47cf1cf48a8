"""The depot as a module of data alone: the entities of the kit with ids of other forms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from twinstore.catalog.entity import Module, Parent
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.testing.entities import PARCELS as KIT_PARCELS
from twinstore.testing.entities import SCANS as KIT_SCANS
from twinstore.testing.entities import STUBS as KIT_STUBS
from twinstore.testing.entities import TICKETS as KIT_TICKETS

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.testing.entities import Parcel, Scan, Stub, Ticket

NAME: Final = "depot"
PARCELS: Final[Entity[Parcel]] = replace(KIT_PARCELS, module=NAME)
SCANS: Final[Entity[Scan]] = replace(KIT_SCANS, module=NAME, parent=Parent(entity=PARCELS, field="parcelId"))
TICKETS: Final[Entity[Ticket]] = replace(KIT_TICKETS, module=NAME)
STUBS: Final[Entity[Stub]] = replace(KIT_STUBS, module=NAME, parent=Parent(entity=TICKETS, field="ticket"))


MODULE: Final[ModuleSpec[object]] = ModuleSpec(
    catalog=Module(name=NAME, entities=(PARCELS, SCANS, TICKETS, STUBS)),
    title="Depot",
    package="tests.support.depot",
)
