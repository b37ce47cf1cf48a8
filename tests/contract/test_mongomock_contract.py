from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.contract.deployments.mongomock import mongomock_deployments
from twinstore.testing import InitializerContract, KeyedRepositoryContract, SessionContract
from twinstore.testing.scheduler import (
    DueScheduleContract,
    FiringContract,
    RunRepositoryContract,
    SchedulerContract,
    ScheduleRepositoryContract,
    SchedulerSessionContract,
    TriggerRepositoryContract,
    WorkerRepositoryContract,
)

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return mongomock_deployments


class TestMongomock(SchedulerContract):
    """A client without sessions and transactions.

    It is for speed and never for proof: the same driver passes the whole kit on a real MongoDB in every run.
    What stays of it in the bounded form shows that the driver still works with such a client.
    """


BOUNDED: Final = (
    InitializerContract,
    KeyedRepositoryContract,
    SessionContract,
    SchedulerSessionContract,
    DueScheduleContract,
    FiringContract,
    RunRepositoryContract,
    ScheduleRepositoryContract,
    TriggerRepositoryContract,
    WorkerRepositoryContract,
)


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether a test asks for more than the calls of a few repositories."""
    del kit, case
    return not any(test in vars(contract) for contract in BOUNDED)
