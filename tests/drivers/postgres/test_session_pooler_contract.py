from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.drivers.postgres.deployment import pooled_deployments
from tests.support.pgbouncer import pooler_before
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresServer
    from twinstore.testing import BackendFactory

pytestmark = [pytest.mark.pgbouncer, pytest.mark.long]


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> Iterator[BackendFactory]:
    # Here each connection of a client keeps one of the server.
    with pooler_before(postgres_server.url, pool_mode="session", default_pool_size=40) as pooler:
        yield pooled_deployments(postgres_server, pooler)


class TestSessionPooledPostgres(DriverContract):
    """A server behind pgbouncer in session mode, with the setting for any pooler."""
