from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.testing import DriverContract
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return memory_deployments


class TestMemory(DriverContract):
    """The executable specification."""
