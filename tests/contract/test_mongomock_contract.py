from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.mongomock import mongomock_deployments
from twinstore.testing import AccessContract, AccessDefaultsContract, SchedulerContract

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return mongomock_deployments


class TestMongomock(SchedulerContract):
    """A client without sessions and transactions."""


class TestMongomockAccess(AccessContract):
    """The ten operations over entities of every kind."""


class TestMongomockDefaults(AccessDefaultsContract):
    """The same with the defaults of core alone."""
