from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.mongomock import mongomock_deployments
from twinstore.testing.scheduler import SchedulerContract

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return mongomock_deployments


class TestMongomock(SchedulerContract):
    """A client without sessions and transactions."""
