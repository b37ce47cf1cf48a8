"""Describes the MongoDB driver to twinstore without importing pymongo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.plugins.backend import BACKEND_API_VERSION, BackendSpec
from twinstore.plugins.drivers import hookimpl
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.bulk.corruption import CorruptionWriter
    from twinstore.migrations.migration import MigrationDraft
    from twinstore.plugins.backend import ModuleBackend, OpenRequest
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.plugins.settings import BackendSettings


def open_module(request: OpenRequest) -> ModuleBackend[object]:
    """Open one module on MongoDB; connects on first use."""
    from twinstore_mongo.backend import open_backend

    return open_backend(request)


def draft_migration(module: ModuleSpec[object]) -> MigrationDraft:
    """Return the next step of a module; opens nothing."""
    from twinstore_mongo.schema.proposal import draft_of

    return draft_of(module)


def open_corruption_writer(settings: BackendSettings) -> AbstractContextManager[CorruptionWriter]:
    """Open what changes rows without the driver."""
    from twinstore_mongo.bulk.corruption import open_corruption_writer

    return open_corruption_writer(settings)


@hookimpl
def twinstore_register_backend() -> BackendSpec:
    """Describe the driver."""
    return BackendSpec(
        name="Mongo",
        schemes=("mongodb", "mongodb+srv"),
        api_version=BACKEND_API_VERSION,
        settings=MongoSettings,
        factory=open_module,
        extra="mongo",
        requires=("pymongo",),
        draft=draft_migration,
        corruption_writer=open_corruption_writer,
    )
