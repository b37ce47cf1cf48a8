"""Deployments of the MongoDB driver over mongomock, which has neither sessions nor transactions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import mongomock
from mongomock.codec_options import CodecOptions

from tests.contract.deployments.mongo import MongoProbe, condition, module_backend
from twinstore.storage import open_module
from twinstore.testing import DeploymentDefaults
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo import MongoClient

    from twinstore.backend import ModuleBackend
    from twinstore.catalog import Entity, Key
    from twinstore.clock import Clock
    from twinstore.module_storage import ModuleStorage
    from twinstore.modules import ModuleSpec
    from twinstore.testing import Deployment

R = TypeVar("R")


class MongomockProbe(MongoProbe):
    """There is no log: a stamp is the document itself, since only another one is a write on MongoDB, too."""

    def __init__(self, client: Any, name: str, module: str) -> None:  # noqa: ANN401  # mongomock is no pymongo client by type
        self._module = module
        aware = CodecOptions(tz_aware=True)  # type: ignore[no-untyped-call]  # mongomock ships no types
        self._database = client.get_database(name, codec_options=aware)

    def stamp(self, entity: Entity, key: Key) -> object | None:
        document = self._of(entity).find_one(condition(entity, key))
        return None if document is None else repr(document)

    def changes(self, entity: Entity) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # it has no feed
        del entity

    def _set(self, entity: Entity, key: Key, values: dict[str, Any]) -> None:
        self._of(entity).update_one(condition(entity, key), {"$set": values})


class MongomockDeployment(DeploymentDefaults):
    """A database in this process."""

    def __init__(self, module: ModuleSpec[object]) -> None:
        self._module = module
        self._client: MongoClient[dict[str, Any]] = mongomock.MongoClient()
        self._name = f"db_{uuid4().hex}"
        self.probe = MongomockProbe(self._client, self._name, module.name)

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        del expiring
        mongo = {"Client": self._client, "Database": self._name, "AllowStandalone": True}
        return open_module(self._module.name, "Mongo", {"Persistence": {"Mongo": mongo}}, clock=clock)

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        settings = MongoSettings(client=self._client, database=self._name, allow_standalone=True)
        with module_backend(module, settings, clock) as backend:
            yield backend

    def handle(self, tenant_id: str) -> None:
        del tenant_id


@contextmanager
def mongomock_deployments(module: ModuleSpec[object], *, migrated: bool = True) -> Iterator[Deployment]:
    """Make a database of its own."""
    deployment = MongomockDeployment(module)
    if migrated:
        with deployment.open() as storage:
            storage.initializer.ensure_migrations()
    yield deployment
