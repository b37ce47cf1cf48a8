from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.drivers.postgres.deployment import pooled_deployments
from tests.support.pgbouncer import pooler_before
from tests.support.recording import is_about_answers, is_about_connections
from twinstore.testing import AccessContract, AccessDefaultsContract, DriverContract
from twinstore.testing.scheduler import SchedulerContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresServer
    from twinstore.testing import BackendFactory

pytestmark = pytest.mark.pgbouncer


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> Iterator[BackendFactory]:
    with pooler_before(postgres_server.url) as pooler:
        yield pooled_deployments(postgres_server, pooler)


class TestPooledPostgres(DriverContract):
    """A server behind pgbouncer in transaction mode, with two connections of the server for all clients.

    The pooler affects how a connection is used: sessions, units, locks, concurrent transactions, row-level
    security, prepared statements. The operations and the kit of the scheduler use one in every way. Answers
    do not depend on the pooler; those contracts and the kits of other modules run in the full form only. So
    does the writing of a copy, which has a separate connection past the pooler.
    """


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether a test of a kit checks answers alone, or uses connections as others do."""
    # The defaults of core are made of the operations themselves.
    if issubclass(kit, AccessDefaultsContract):
        return True
    if issubclass(kit, AccessContract):
        return is_about_answers(kit, test, case)
    return not (issubclass(kit, SchedulerContract) and is_about_connections(test))
