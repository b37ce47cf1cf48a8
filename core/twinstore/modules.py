"""What a module brings: catalog, repositories and migrations, all that a driver needs to store it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from twinstore.access import Access
    from twinstore.catalog import Module

__all__ = ["ModuleSpec", "module_spec"]

R_co = TypeVar("R_co", covariant=True)

# Where the modules of this distribution describe themselves.
MODULES: Final = {"scheduler": "twinstore.scheduler.module"}
ATTRIBUTE: Final = "MODULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSpec(Generic[R_co]):
    """A module as drivers and tools see it.

    Attributes:
        catalog: its entities.
        repositories: makes its set of repositories over an access.
        title: the name of the module in names of classes.
        package: the import package whose folder ``migrations`` has one folder per kind of store.
    """

    catalog: Module
    repositories: Callable[[Access], R_co]
    title: str
    package: str

    @property
    def name(self) -> str:
        """The name of the module, of its schema and in commands."""
        return self.catalog.name

    def migrations(self, store: str) -> Traversable:
        """Return the folder with the migrations for a kind of store, such as ``postgres``."""
        return files(self.package) / "migrations" / store


def module_spec(name: str) -> ModuleSpec[object]:
    """Return the module of that name.

    Raises:
        ValidationError: there is none; names those that exist.
    """
    where = MODULES.get(name)
    if where is None:
        raise ValidationError(f"Unknown module {name!r}; known: {', '.join(MODULES)}.", module=name)
    return cast("ModuleSpec[object]", getattr(import_module(where), ATTRIBUTE))
