from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.pooler import pooled_deployments
from tests.pgbouncer import pooler_before
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import PostgresServer
    from twinstore.testing import BackendFactory

pytestmark = pytest.mark.pgbouncer


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> Iterator[BackendFactory]:
    with pooler_before(postgres_server.url) as pooler:
        yield pooled_deployments(postgres_server, pooler)


class TestPooledPostgres(DriverContract):
    """A server behind pgbouncer in transaction mode, with two connections of the server for all clients."""
