"""Locks on real servers with the statements of the driver switched off: what core does alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.mongo import mongo_deployments
from tests.contract.deployments.postgres import postgres_deployments
from twinstore.testing.scheduler import LockContract

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from twinstore.testing import BackendFactory


def no_statements(module: str) -> Mapping[str, object]:
    del module
    return {}


@pytest.fixture(scope="module", params=["mongo", "postgres"])
def backend_factory(request: pytest.FixtureRequest) -> Iterator[BackendFactory]:
    server = request.getfixturevalue(f"{request.param}_server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"twinstore_{request.param}.backend.specials_of", no_statements)
        yield mongo_deployments(server) if request.param == "mongo" else postgres_deployments(server)


class TestGeneral(LockContract):
    """A row that ``Access.change`` decides about, by the clock of the server."""
