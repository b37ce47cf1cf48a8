"""The goods as a module: the typed entities of the kit, reached by the access itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.catalog.entity import Module, Parent
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.storage.module import ModuleStorage
from twinstore.testing.typed_entities import CRATES as KIT_CRATES
from twinstore.testing.typed_entities import STAMPS as KIT_STAMPS
from twinstore.testing.typed_entities import WARES as KIT_WARES

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore.testing.typed_entities import Crate, Stamp, Ware

NAME: Final = "goods"
WARES: Final[Entity[Ware]] = replace(KIT_WARES, module=NAME)
STAMPS: Final[Entity[Stamp]] = replace(KIT_STAMPS, module=NAME, parent=Parent(entity=WARES, field="wareId"))
CRATES: Final[Entity[Crate]] = replace(KIT_CRATES, module=NAME)


@dataclass(frozen=True, slots=True)
class Repositories:
    """The access, which this module uses in place of repositories."""

    access: Access


class GoodsStorage(ModuleStorage[Repositories, Repositories]):
    """What a host holds of the goods."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> Repositories:
        return repositories


MODULE: Final = ModuleSpec(
    catalog=Module(name=NAME, entities=(WARES, STAMPS, CRATES)),
    repositories=Repositories,
    title="Goods",
    package="tests.support.goods",
    storage=GoodsStorage,
    session=Repositories,
)
