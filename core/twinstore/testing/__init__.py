"""The contract kit: what every driver must do, as tests that a driver's own test module inherits.

    from twinstore.testing import DriverContract

    @pytest.fixture(scope="module")
    def backend_factory() -> BackendFactory:
        return my_deployments        # a context manager that makes a Deployment; see BackendFactory

    class TestMyDriver(DriverContract):
        ...

``DriverContract`` has the kit of every module that is installed, which its ``ModuleSpec`` names. A kit is a
``ModuleContract``, the sum of the contracts named here, over the examples of its module, and what the module
adds; that of a module of data alone is a ``DataContract``, the part without repositories. What is alike for
all modules runs once: ``AccessContract`` and ``AccessDefaultsContract``, the operations of
:class:`~twinstore.access.protocol.Access` over entities that exist for tests alone, and
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
from twinstore.testing.contracts.bulk import BulkContract, RangeWriterContract
from twinstore.testing.contracts.capabilities import CapabilitiesContract, PluginContract
from twinstore.testing.contracts.deployment import InitializerContract, ProbeContract, ResourceContract
from twinstore.testing.contracts.driver import (
    AccessContract,
    AccessDefaultsContract,
    CopyStateContract,
    DataContract,
    DriverContract,
    ModuleContract,
)
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
from twinstore.testing.probe import (
    BackendFactory,
    BreakingChange,
    Deployment,
    DeploymentDefaults,
    ProbeDefaults,
    RawProbe,
    StoredRow,
    breaking_change,
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
    "DataContract",
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
