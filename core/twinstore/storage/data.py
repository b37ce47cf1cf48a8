"""The storage of a module of data alone: no repositories, only the access to the rows of any entity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.storage.module import ModuleStorage

if TYPE_CHECKING:
    from twinstore.access.protocol import Access

__all__ = ["DataSession", "DataStorage"]


@dataclass(frozen=True, eq=False, repr=False)
class DataSession:
    """The access to the rows of every entity, bound to one session or unit of work, or unbound."""

    access: Access


class DataStorage(ModuleStorage["Access", DataSession], DataSession):
    """The same, unbound, and what tools need of a module."""

    @override
    def session_over(self, repositories: Access, *, in_unit: bool = False) -> DataSession:
        return DataSession(repositories)
