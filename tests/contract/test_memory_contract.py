from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.memory import memory_deployments
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return memory_deployments


class TestMemory(DriverContract):
    """The executable specification."""
