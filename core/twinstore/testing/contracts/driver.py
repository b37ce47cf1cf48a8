"""Everything that a driver must do, for all modules that are installed, in one class."""

from __future__ import annotations

from pkgutil import resolve_name

from twinstore.modules import complete_modules
from twinstore.testing.contracts.access import AccessContract, AccessDefaultsContract

__all__ = ["DriverContract"]


class DriverContract:
    """The kits of all modules, each as a class of its own, such as ``TestLibrary``.

    The operations are tried over the entities that exist for tests alone, as the driver overrides them
    and with the defaults of core. A module whose ``ModuleSpec`` names no kit is left out.
    """

    class TestAccess(AccessContract):
        """The operations over entities of every kind."""

    class TestDefaults(AccessDefaultsContract):
        """The same with the defaults of core alone."""

    def __init_subclass__(cls) -> None:
        """Give the tests of a driver the kit of each module that is installed."""
        super().__init_subclass__()
        # Not when this file is imported: a kit imports the contracts from the package that imports this file.
        for name, kit in cls.kits().items():
            setattr(cls, name, kit)

    @staticmethod
    def kits() -> dict[str, type[object]]:
        """Return the kits of the installed modules by the names under which they are collected."""
        found: dict[str, type[object]] = {}
        for module in complete_modules():
            if module.kit is not None:
                name = f"Test{module.title}"
                told = f"The kit of the module {module.name}."
                found[name] = type(
                    name, (resolve_name(module.kit),), {"__doc__": told, "__module__": __name__}
                )
        return found
