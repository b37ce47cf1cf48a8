"""Describes the driver without importing psycopg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.plugins.backend import BACKEND_API_VERSION, BackendSpec
from twinstore.plugins.drivers import hookimpl
from twinstore_postgres.settings import DRIVER, PostgresSettings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.bulk.corruption import CorruptionWriter
    from twinstore.migrations.migration import MigrationDraft
    from twinstore.plugins.backend import ModuleBackend, OpenRequest
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.plugins.settings import BackendSettings


@hookimpl
def twinstore_register_backend() -> BackendSpec:
    """Return the description of the driver."""
    return BackendSpec(
        name=DRIVER,
        schemes=("postgresql", "postgres"),
        api_version=BACKEND_API_VERSION,
        settings=PostgresSettings,
        factory=open_backend,
        extra="postgres",
        requires=("psycopg", "psycopg_pool"),
        draft=draft_migration,
        corruption_writer=open_corruption_writer,
    )


def open_backend(request: OpenRequest) -> ModuleBackend[object]:
    """Open a module; psycopg is imported here and nowhere earlier."""
    from twinstore_postgres.backend import PostgresBackend

    return PostgresBackend(request.module, request)


def draft_migration(module: ModuleSpec[object]) -> MigrationDraft:
    """Return the next migration of a module; psycopg is imported here, too."""
    from twinstore_postgres.schema.proposal import draft_of

    return draft_of(module)


def open_corruption_writer(settings: BackendSettings) -> AbstractContextManager[CorruptionWriter]:
    """Open what changes rows without the driver."""
    from twinstore_postgres.bulk.corruption import open_corruption_writer

    return open_corruption_writer(settings)
