"""The goods, a module of data alone: the typed entities of the kit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.support.applications import plugin
from twinstore.catalog.entity import Parent
from twinstore.testing.typed_entities import CRATES as KIT_CRATES
from twinstore.testing.typed_entities import STAMPS as KIT_STAMPS
from twinstore.testing.typed_entities import WARES as KIT_WARES

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.testing.typed_entities import Crate, Stamp, Ware

NAME: Final = "goods"
WARES: Final[Entity[Ware]] = replace(KIT_WARES, module=NAME)
STAMPS: Final[Entity[Stamp]] = replace(KIT_STAMPS, module=NAME, parent=Parent(entity=WARES, field="wareId"))
CRATES: Final[Entity[Crate]] = replace(KIT_CRATES, module=NAME)
GOODS_PLUGIN: Final = plugin(NAME, WARES, STAMPS, CRATES)
