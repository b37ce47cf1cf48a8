from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.drivers.mongo.deployment import mongo_deployments
from tests.drivers.mongo.recording import recording
from tests.support.recording import Recorded, is_covered
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoServer
    from tests.support.recording import KitRun
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory(mongo_server: MongoServer) -> BackendFactory:
    return mongo_deployments(mongo_server)


@pytest.fixture(scope="module", autouse=True)
def recorded() -> Iterator[Recorded]:
    """Record what the tests of this file send."""
    found = Recorded("mongo", {})
    with recording(found):
        yield found


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether other cases send what a case of a module sends."""
    return is_covered("mongo", kit, test, case)


class TestMongo(DriverContract):
    """A replica set."""


def test_the_statements_of_the_kit_are_those_of_the_file(recorded: Recorded, kit_run: KitRun) -> None:
    """Must be last, because it checks what all others have sent."""
    recorded.check(kit_run)
