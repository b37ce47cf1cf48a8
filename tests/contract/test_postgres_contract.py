from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.postgres import postgres_deployments
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from tests.databases import PostgresServer
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> BackendFactory:
    return postgres_deployments(postgres_server)


class TestPostgres(DriverContract):
    """A server with row-level security; tables of the kit as their descriptions propose."""
