from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.memory import memory_deployments
from twinstore.testing import AccessContract, AccessDefaultsContract, SchedulerContract

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return memory_deployments


class TestMemory(SchedulerContract):
    """The executable specification."""


class TestMemoryAccess(AccessContract):
    """The ten operations over entities of every kind."""


class TestMemoryDefaults(AccessDefaultsContract):
    """The same with the defaults of core alone."""
