"""Everything that a driver must do, for all modules that are installed, in one class."""

from __future__ import annotations

from pkgutil import resolve_name

from twinstore.plugins.modules import complete_modules
from twinstore.testing.base import Contract
from twinstore.testing.contracts.access import AccessContract, AccessDefaultsContract
from twinstore.testing.contracts.copies import CopyStateContract

__all__ = ["DriverContract"]


class DriverContract:
    """The kits of all modules, each as a class of its own, such as ``TestLibrary``.

    The operations are tried over the entities that exist for tests alone, as the driver overrides them
    and with the defaults of core. What is kept of copies is the same whatever is copied, and is tried over
    the rows of one module. A module whose ``ModuleSpec`` names no kit is left out.
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
        """Return what depends on the modules that are installed, by the names under which it is collected.

        The kit of each of them, and what is kept of copies over the rows of the first.
        """
        modules = [module for module in complete_modules() if module.kit is not None]
        kits = {module.title: resolve_name(module.kit or "") for module in modules}
        found = {
            f"Test{title}": named(f"Test{title}", kit, f"The kit of the module {title}.")
            for title, kit in kits.items()
        }
        owned = (kit.module for kit in kits.values() if issubclass(kit, Contract) and kit.module.of_tenants)
        examples = next(owned, None)
        if examples is not None:
            told = "What is kept of copies."
            found["TestCopies"] = named("TestCopies", CopyStateContract, told, module=examples)
        return found


def named(name: str, contract: type[object], told: str, **attributes: object) -> type[object]:
    """Return a contract under a name by which pytest collects it."""
    return type(name, (contract,), {"__doc__": told, "__module__": __name__, **attributes})
