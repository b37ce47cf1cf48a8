"""The sums: all contracts of the access, of copies, of a module, and everything that a driver must do."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

from twinstore.plugins.modules import complete_modules
from twinstore.testing.base import Contract
from twinstore.testing.contracts.access_changing import (
    AccessChangeContract,
    AccessMarkContract,
    AccessMomentContract,
    AccessRemoveContract,
)
from twinstore.testing.contracts.access_extra import AccessExtraContract
from twinstore.testing.contracts.access_reading import (
    AccessCountContract,
    AccessFindContract,
    AccessKeysContract,
    AccessListContract,
)
from twinstore.testing.contracts.access_typed import AccessTypedContract
from twinstore.testing.contracts.access_units import AccessConcurrencyContract, AccessUnitContract
from twinstore.testing.contracts.access_writing import (
    AccessAppendContract,
    AccessInsertContract,
    AccessPutContract,
    AccessUnreadableContract,
)
from twinstore.testing.contracts.bulk import BulkContract, RangeWriterContract
from twinstore.testing.contracts.capabilities import CapabilitiesContract, PluginContract
from twinstore.testing.contracts.deployment import InitializerContract, ProbeContract, ResourceContract
from twinstore.testing.contracts.errors import DecodingContract, StoreErrorContract
from twinstore.testing.contracts.keyed import KeyedRepositoryContract
from twinstore.testing.contracts.ledger import LedgerContract, RangeClaimContract
from twinstore.testing.contracts.paging import PagingContract, RetentionContract
from twinstore.testing.contracts.tenancy import TenancyContract
from twinstore.testing.contracts.transactions import (
    IsolationContract,
    JoiningContract,
    RaceContract,
    SessionContract,
    TransactionContract,
)
from twinstore.testing.contracts.values import UnvalidatedModelContract, ValueContract
from twinstore.testing.entities import MODULE_BY_DEFAULTS

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = [
    "AccessContract",
    "AccessDefaultsContract",
    "CopyStateContract",
    "DataContract",
    "DriverContract",
    "ModuleContract",
]


class AccessContract(
    AccessFindContract,
    AccessListContract,
    AccessCountContract,
    AccessKeysContract,
    AccessInsertContract,
    AccessPutContract,
    AccessChangeContract,
    AccessMomentContract,
    AccessMarkContract,
    AccessAppendContract,
    AccessRemoveContract,
    AccessConcurrencyContract,
    AccessUnreadableContract,
    AccessUnitContract,
    AccessTypedContract,
    AccessExtraContract,
):
    """What :class:`~twinstore.access.protocol.Access` does for any entity, whatever its description says."""


class AccessDefaultsContract(AccessContract):
    """The same of a driver that overrides none of the operations that have a default."""

    module: ClassVar[ModuleSpec[Access]] = MODULE_BY_DEFAULTS
    amends_unreadable = False


class CopyStateContract(LedgerContract, RangeClaimContract):
    """The ledger of copies, which is the same whatever is copied: once for a driver, not for each module."""


class ModuleContract(
    ProbeContract,
    KeyedRepositoryContract,
    PagingContract,
    RaceContract,
    RetentionContract,
    TenancyContract,
    SessionContract,
    TransactionContract,
    IsolationContract,
    JoiningContract,
    CapabilitiesContract,
    DecodingContract,
    StoreErrorContract,
    ResourceContract,
    ValueContract,
    UnvalidatedModelContract,
    InitializerContract,
    PluginContract,
    BulkContract,
    RangeWriterContract,
):
    """Everything that a module must do on a driver, and a driver for a module, whatever the module stores.

    The ``DriverContract`` has what a driver does alike for every module.

    A kit derives from it and names the examples of its module: ``module = LIBRARY_EXAMPLES``.
    """


class DataContract(
    ProbeContract,
    ValueContract,
    InitializerContract,
    PluginContract,
    BulkContract,
    RangeWriterContract,
):
    """What a module of data alone must do on a driver: its values, its migrations and its rows in copies."""


class DriverContract:
    """The kits of all modules, each as a separate class, such as ``TestLibrary``.

    The operations are tried over the entities that exist for tests alone, as the driver overrides them
    and with the defaults of core. What is kept of copies is the same whatever is copied, and is tried over
    the rows of one module. A module whose ``ModuleSpec`` names no kit is skipped.
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
            doc = "What is kept of copies."
            found["TestCopies"] = named("TestCopies", CopyStateContract, doc, module=examples)
        return found


def named(name: str, contract: type[object], doc: str, **attributes: object) -> type[object]:
    """Return a contract under a name by which pytest collects it."""
    return type(name, (contract,), {"__doc__": doc, "__module__": __name__, **attributes})
