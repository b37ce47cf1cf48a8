from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.contract.deployments.pooler import pooled_deployments
from tests.pgbouncer import pooler_before
from twinstore.testing import (
    AccessDefaultsContract,
    DecodingContract,
    DriverContract,
    KeyedRepositoryContract,
    ModuleContract,
    PagingContract,
    RangeWriterContract,
    UnvalidatedModelContract,
    ValueContract,
)
from twinstore.testing.scheduler import (
    SchedulerContract,
    SchedulerRangeWriterContract,
    SchedulerValueContract,
)

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
    """A server behind pgbouncer in transaction mode, with two connections of the server for all clients.

    What lies in between matters to how a connection is used: sessions, units, locks, rivals, row-level
    security, streams, prepared statements. Every way of using one is in the operations and in the kit of the
    scheduler. What a statement answers does not depend on it; those contracts, and the kits of more modules,
    which use connections in no other way, are left to the full form. So is what does not come this way: what
    is refused before a statement is sent, and the writing of a copy, which has a connection of its own.
    """


# What comes back, whoever is asked through whatever connection.
ANSWERS: Final = (
    DecodingContract,
    KeyedRepositoryContract,
    PagingContract,
    ValueContract,
    SchedulerValueContract,
)

ELSEWHERE: Final = (RangeWriterContract, SchedulerRangeWriterContract, UnvalidatedModelContract)


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether a test of a kit asks for answers alone, or uses connections as others do."""
    del case
    # The defaults of core are made of the operations themselves.
    if issubclass(kit, AccessDefaultsContract):
        return True
    if issubclass(kit, ModuleContract) and not issubclass(kit, SchedulerContract):
        return True
    return any(test in vars(contract) for contract in (*ANSWERS, *ELSEWHERE))
