"""The contract kit: what every driver must do, as tests that a driver's own test module inherits.

    from twinstore.testing import DriverContract

    @pytest.fixture(scope="module")
    def backend_factory() -> BackendFactory:
        return my_deployments        # a context manager that makes a Deployment; see BackendFactory

    class TestMyDriver(DriverContract):
        ...

``DriverContract`` has the kit of every module that is installed, which its ``ModuleSpec`` names. A kit is a
``ModuleContract``, the sum of the contracts named here, over the examples of its module, and what the module
adds. What is alike for all modules runs once: ``AccessContract`` and ``AccessDefaultsContract``, the
operations of :class:`~twinstore.access.protocol.Access` over entities that exist for tests alone, and
``CopyStateContract``, the ledger of copies. A capability that the driver does not declare is asserted to be
refused, never skipped. Needs ``twinstore[testing]``.
"""

from __future__ import annotations

try:
    import hypothesis
    import pytest
except ModuleNotFoundError as error:
    from twinstore.errors import ConfigurationError

    raise ConfigurationError(
        f"twinstore.testing needs {error.name}, which is not installed. Run: pip install 'twinstore[testing]'"
    ) from error

from twinstore.testing.base import Contract, needs
from twinstore.testing.contracts.access import AccessContract, AccessDefaultsContract
from twinstore.testing.contracts.bulk import BulkContract
from twinstore.testing.contracts.capabilities import CapabilitiesContract
from twinstore.testing.contracts.claims import RangeClaimContract
from twinstore.testing.contracts.copies import CopyStateContract
from twinstore.testing.contracts.decoding import DecodingContract
from twinstore.testing.contracts.driver import DriverContract
from twinstore.testing.contracts.errors import StoreErrorContract
from twinstore.testing.contracts.initializer import InitializerContract
from twinstore.testing.contracts.isolation import IsolationContract
from twinstore.testing.contracts.joining import JoiningContract
from twinstore.testing.contracts.keyed import KeyedRepositoryContract
from twinstore.testing.contracts.ledger import LedgerContract
from twinstore.testing.contracts.module import ModuleContract
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
from twinstore.testing.damage import BreakingChange, breaking_change
from twinstore.testing.probe import (
    BackendFactory,
    Deployment,
    DeploymentDefaults,
    ProbeDefaults,
    RawProbe,
    StoredRow,
)
from twinstore.testing.workspace import Workspace

del hypothesis, pytest

__all__ = [
    "AccessContract",
    "AccessDefaultsContract",
    "BackendFactory",
    "BreakingChange",
    "BulkContract",
    "CapabilitiesContract",
    "Contract",
    "CopyStateContract",
    "DecodingContract",
    "Deployment",
    "DeploymentDefaults",
    "DriverContract",
    "InitializerContract",
    "IsolationContract",
    "JoiningContract",
    "KeyedRepositoryContract",
    "LedgerContract",
    "ModuleContract",
    "PagingContract",
    "PluginContract",
    "ProbeContract",
    "ProbeDefaults",
    "RaceContract",
    "RangeClaimContract",
    "RangeWriterContract",
    "RawProbe",
    "ResourceContract",
    "RetentionContract",
    "SessionContract",
    "StoreErrorContract",
    "StoredRow",
    "TenancyContract",
    "TransactionContract",
    "UnvalidatedModelContract",
    "ValueContract",
    "Workspace",
    "breaking_change",
    "needs",
]
