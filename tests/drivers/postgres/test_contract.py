from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.drivers.postgres.deployment import postgres_deployments
from tests.drivers.postgres.recording import columns_of, recording
from tests.support.recording import MODULES, Recorded, is_covered
from twinstore.testing import DriverContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresServer
    from tests.support.recording import KitRun
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> BackendFactory:
    return postgres_deployments(postgres_server)


@pytest.fixture(scope="module", autouse=True)
def recorded() -> Iterator[Recorded]:
    """Record what the tests of this file send."""
    found = Recorded("postgres", columns_of(tuple(spec.catalog for spec in MODULES)))
    with recording(found):
        yield found


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether other cases send what a case of a module sends."""
    return is_covered("postgres", kit, test, case)


class TestPostgres(DriverContract):
    """A server with row-level security; tables of the kit as their descriptions propose."""


def test_the_statements_of_the_kit_are_those_of_the_file(recorded: Recorded, kit_run: KitRun) -> None:
    """Must be last, because it checks what all others have sent."""
    recorded.check(kit_run)
