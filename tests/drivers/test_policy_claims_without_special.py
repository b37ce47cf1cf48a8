"""With every statement of their own switched off, the drivers keep what the kit asks of claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import twinstore_mongo.backend
import twinstore_postgres.backend
from tests.drivers.mongo.deployment import MongoDeployment, mongo_deployments
from tests.drivers.postgres.deployment import postgres_deployments
from twinstore.scheduler.repositories.policy_jobs import CLAIM
from twinstore.testing.scheduler import ClaimContract, PolicyClaimContract, PolicyJobContract

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.databases import MongoServer, PostgresServer
    from twinstore.testing import BackendFactory


def nothing(module: str) -> Mapping[str, object]:
    """Return no statement for any module."""
    del module
    return {}


@pytest.fixture(scope="module", autouse=True)
def general_ways_only() -> Iterator[None]:
    """Take the statements of their own from both drivers."""
    with pytest.MonkeyPatch.context() as patch:
        for backend in (twinstore_mongo.backend, twinstore_postgres.backend):
            assert CLAIM in backend.specials_of("scheduler")
            patch.setattr(backend, "specials_of", nothing)
        # No write waits in the server then: the steps of core lose at once and are repeated.
        patch.setattr(MongoDeployment, "waiting", None)
        yield


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether core decides before it asks the driver."""
    del kit, case
    return test == "test_a_status_changes_as_the_state_machine_allows_in_either_way"


class TestMongoInGeneral(PolicyJobContract, PolicyClaimContract, ClaimContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend_factory(cls, mongo_server: MongoServer) -> BackendFactory:
        return mongo_deployments(mongo_server)


class TestPostgresInGeneral(PolicyJobContract, PolicyClaimContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend_factory(cls, postgres_server: PostgresServer) -> BackendFactory:
        return postgres_deployments(postgres_server)
