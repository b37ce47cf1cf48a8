from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.mongo import mongo_deployments
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from tests.databases import MongoServer
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory(mongo_server: MongoServer) -> BackendFactory:
    return mongo_deployments(mongo_server)


class TestMongo(DriverContract):
    """A replica set."""
