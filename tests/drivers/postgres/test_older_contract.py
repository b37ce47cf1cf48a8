from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.drivers.postgres.deployment import postgres_deployments
from tests.support.recording import is_listed
from twinstore.testing import AccessContract, AccessDefaultsContract, DriverContract
from twinstore.testing.scheduler import GraphJobStoreContract, LockContract, PolicyClaimContract

if TYPE_CHECKING:
    from tests.support.databases import PostgresServer
    from twinstore.testing import BackendFactory

pytestmark = pytest.mark.older_postgres


@pytest.fixture(scope="module")
def backend_factory(older_postgres_server: PostgresServer) -> BackendFactory:
    return postgres_deployments(older_postgres_server)


class TestOlderPostgres(DriverContract):
    """An older server than that of the wheel.

    Statements are generated from descriptions, so one entity of each module represents the others: one with a
    number that the server assigns, one without tenants, one that follows its parent. All hand-written
    statements are executed. The full form is the whole kit.
    """


CHOSEN: Final = ("graph_job_events", "tasks", "pack_run_logs")
WRITTEN_OUT: Final = (GraphJobStoreContract, LockContract, PolicyClaimContract)


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether a case is neither about a chosen entity nor about a statement that is written out."""
    if issubclass(kit, AccessDefaultsContract):
        return True
    if issubclass(kit, AccessContract):
        return bool(case)
    if any(test in vars(contract) for contract in WRITTEN_OUT):
        return False
    return not (case.startswith(CHOSEN) and is_listed("postgres", kit, test, case))
