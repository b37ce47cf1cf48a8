"""Deployments of the PostgreSQL driver behind a pooler in transaction mode, which few connections serve."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import psycopg
from pydantic import SecretStr
from typing_extensions import override

from tests.contract.deployments.postgres import PostgresDeployment, address_of, postgres_deployments, through
from tests.contract.deployments.wire import line_to
from twinstore.storage.open import open_module
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import PostgresDatabase, PostgresServer
    from tests.pgbouncer import Pooler
    from tests.servers import Settings
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage
    from twinstore.testing import BackendFactory


class PooledDeployment(PostgresDeployment):
    """A database whose requests go through a pooler."""

    def __init__(self, pooler: Pooler, module: ModuleSpec[object], database: PostgresDatabase) -> None:
        super().__init__(module, database)
        self._pooler = pooler
        self._settings = PostgresSettings(
            connection_string=SecretStr(pooler.url(database.app_url)),
            direct_connection_string=SecretStr(database.app_url),
            transaction_pooler=True,
        )

    @override
    def settings(self) -> Settings:
        return self._pooler.config(self._database)

    @override
    @contextmanager
    def break_connection(self) -> Iterator[ModuleStorage[object, object]]:
        direct, pooled = self._database.app_url, self._pooler.url(self._database.app_url)
        with line_to(address_of(pooled)) as requests, line_to(address_of(direct)) as beside:
            settings = self._pooler.config(
                self._database,
                ConnectionString=through(requests, pooled),
                DirectConnectionString=through(beside, direct),
            )
            with open_module(self._module.name, "Postgres", settings) as storage:
                storage.check_ready()
                requests.cut()
                beside.cut()
                yield storage

    @override
    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        with psycopg.connect(self._pooler.url(self._database.app_url)) as connection:
            yield connection


def pooled_deployments(server: PostgresServer, pooler: Pooler) -> BackendFactory:
    """Return the factory of deployments behind a pooler."""
    return postgres_deployments(server, partial(PooledDeployment, pooler))
