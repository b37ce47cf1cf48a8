from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.postgres import postgres_deployments
from twinstore.testing import AccessContract, AccessDefaultsContract, SchedulerContract

if TYPE_CHECKING:
    from tests.databases import PostgresServer
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> BackendFactory:
    return postgres_deployments(postgres_server)


class TestPostgres(SchedulerContract):
    """A server with row-level security."""


class TestPostgresAccess(AccessContract):
    """The ten operations over entities of every kind, in the tables that their descriptions propose."""


class TestPostgresDefaults(AccessDefaultsContract):
    """The same with the defaults of core alone."""
