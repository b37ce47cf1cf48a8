from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from pydantic import SecretStr
from typing_extensions import override

from tests.drivers.postgres.deployment import PostgresDeployment, postgres_deployments
from tests.support.recording import is_about_answers, is_about_connections
from twinstore.testing import AccessContract, AccessDefaultsContract, DriverContract
from twinstore.testing.tracking import TrackingContract
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from tests.support.databases import PostgresDatabase, PostgresServer
    from tests.support.servers import Settings
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing import BackendFactory

OFF: Final = {"Pipeline": False}


class PlainDeployment(PostgresDeployment):
    """A database to which statements travel by the cursors of psycopg."""

    def __init__(self, module: ModuleSpec[object], database: PostgresDatabase) -> None:
        super().__init__(module, database)
        self._settings = PostgresSettings(connection_string=SecretStr(database.app_url), pipeline=False)

    @override
    def settings(self) -> Settings:
        persistence = cast("dict[str, Any]", super().settings()["Persistence"])
        return {"Persistence": {**persistence, "Postgres": {**persistence["Postgres"], **OFF}}}


@pytest.fixture(scope="module")
def backend_factory(postgres_server: PostgresServer) -> BackendFactory:
    return postgres_deployments(postgres_server, PlainDeployment)


class TestPlainPostgres(DriverContract):
    """The same server, reached as psycopg documents it.

    What is sent is the same, and only how a connection sends and reads differs. So on a push each operation
    runs without variants, and of one module what is about connections; the full form is the whole kit.
    """


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether a case asks for answers only that others ask for, too."""
    if issubclass(kit, AccessContract):
        return issubclass(kit, AccessDefaultsContract) or is_about_answers(kit, test, case)
    return not (issubclass(kit, TrackingContract) and is_about_connections(test))
