"""The conditions of the statements alone separate tenants: no policy binds the role of these cases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from pydantic import SecretStr

from tests.drivers.postgres.deployment import PostgresDeployment, postgres_deployments
from twinstore.testing import AccessContract
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from tests.support.databases import PostgresDatabase, PostgresServer
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing import BackendFactory

ABOUT_OWNERS: Final = re.compile("foreign|scope|everybody|somebody_else|another_owner")


class UnboundDeployment(PostgresDeployment):
    """A database that is used as a superuser."""

    def __init__(self, module: ModuleSpec[object], database: PostgresDatabase) -> None:
        super().__init__(module, database)
        self._settings = PostgresSettings(
            connection_string=SecretStr(database.superuser_url), allow_unsafe_role=True
        )


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> BackendFactory:
    return postgres_deployments(postgres_server, UnboundDeployment)


class TestUnboundRole(AccessContract):
    """What the operations promise about rows of others."""


for name in dir(TestUnboundRole):
    if name.startswith("test_") and not ABOUT_OWNERS.search(name):
        setattr(TestUnboundRole, name, None)  # pytest collects no test of that name
