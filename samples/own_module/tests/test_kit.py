from __future__ import annotations

import pytest

from acme_library.testing import LibraryContract
from twinstore.testing import BackendFactory
from twinstore_memory.testing import memory_deployments


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return memory_deployments


class TestInMemory(LibraryContract):
    """Without a server."""
