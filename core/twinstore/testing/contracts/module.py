"""All contracts that hold for every module, in one class."""

from __future__ import annotations

from twinstore.testing.contracts.bulk import BulkContract
from twinstore.testing.contracts.capabilities import CapabilitiesContract
from twinstore.testing.contracts.decoding import DecodingContract
from twinstore.testing.contracts.errors import StoreErrorContract
from twinstore.testing.contracts.initializer import InitializerContract
from twinstore.testing.contracts.isolation import IsolationContract
from twinstore.testing.contracts.joining import JoiningContract
from twinstore.testing.contracts.keyed import KeyedRepositoryContract
from twinstore.testing.contracts.paging import PagingContract
from twinstore.testing.contracts.plugin import PluginContract
from twinstore.testing.contracts.probe import ProbeContract
from twinstore.testing.contracts.races import RaceContract
from twinstore.testing.contracts.range_writer import RangeWriterContract
from twinstore.testing.contracts.resources import ResourceContract
from twinstore.testing.contracts.retention import RetentionContract
from twinstore.testing.contracts.sessions import SessionContract
from twinstore.testing.contracts.tenancy import TenancyContract
from twinstore.testing.contracts.transactions import TransactionContract
from twinstore.testing.contracts.unvalidated import UnvalidatedModelContract
from twinstore.testing.contracts.values import ValueContract

__all__ = ["ModuleContract"]


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

    What a driver does alike for every module stands in the ``DriverContract``.

    A kit derives from it and names the examples of its module: ``module = LIBRARY_EXAMPLES``.
    """
