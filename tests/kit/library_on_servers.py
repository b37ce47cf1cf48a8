"""The kit of the sample module on real servers; run by ``test_own_module`` where the sample is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acme_library.testing import LibraryContract
from tests.drivers.mongo.deployment import mongo_deployments
from tests.drivers.postgres.deployment import postgres_deployments

if TYPE_CHECKING:
    from tests.support.databases import MongoServer, PostgresServer
    from twinstore.testing import BackendFactory


class TestOnMongo(LibraryContract):
    """A replica set."""

    @pytest.fixture(scope="class")
    @staticmethod
    def backend_factory(mongo_server: MongoServer) -> BackendFactory:
        """Return deployments on the server of the run."""
        return mongo_deployments(mongo_server)


class TestOnPostgres(LibraryContract):
    """A server that checks tenants itself."""

    @pytest.fixture(scope="class")
    @staticmethod
    def backend_factory(postgres_server: PostgresServer) -> BackendFactory:
        """Return deployments on the server of the run."""
        return postgres_deployments(postgres_server)
