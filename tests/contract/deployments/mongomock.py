"""Deployments of the MongoDB driver over mongomock, which has neither sessions nor transactions."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

from mongomock.codec_options import CodecOptions
from typing_extensions import override

from tests.contract.deployments.mongo import KEPT_DAYS, MongoProbe, condition, module_backend, retention_of
from tests.mongomock_client import MongomockClient
from twinstore.clock import SystemClock
from twinstore.config import load_settings
from twinstore.plugins.resources import SharedResources
from twinstore.testing import DeploymentDefaults
from twinstore_mongo.backend import MongoBackend
from twinstore_mongo.client.connection import Connection
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import Capabilities, ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage
    from twinstore.testing import Deployment
    from twinstore_mongo.bulk.port import MongoBulk

R = TypeVar("R")


class MongomockBackend(MongoBackend[R]):
    """Declares what every server has and mongomock lacks: raw batches, and other processes."""

    @property
    @override
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, bulk=False, cross_process_locks=False)

    @property
    @override
    def bulk(self) -> MongoBulk:
        self.capabilities.require("bulk")
        return super().bulk


class MongomockProbe(MongoProbe):
    """There is no log: a stamp is the document itself, since only another one is a write on MongoDB, too."""

    def __init__(self, client: MongomockClient, name: str, module: str) -> None:
        self._module = module
        self._database = client.mock.get_database(name)

    @override
    def stamp(self, entity: Entity, key: Key) -> object | None:
        document = self._of(entity).find_one(condition(entity, key))
        return None if document is None else repr(document)

    @override
    def changes(self, entity: Entity) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # it has no feed
        del entity

    @override
    def _of(self, entity: Entity) -> Any:
        # Not of the database: mongomock would give the same one to the driver.
        aware: Any = CodecOptions(tz_aware=True)  # type: ignore[no-untyped-call]  # mongomock ships no types
        return self._database.get_collection(entity.collection, codec_options=aware)

    @override
    def _set(self, entity: Entity, key: Key, values: dict[str, Any]) -> None:
        self._of(entity).update_one(condition(entity, key), {"$set": values})


class MongomockDeployment(DeploymentDefaults):
    """A database in this process; without validators, which mongomock does not know."""

    def __init__(self, module: ModuleSpec[object]) -> None:
        client = MongomockClient()
        self._module = module
        self._settings = MongoSettings(
            client=client, database=f"db_{uuid4().hex}", allow_standalone=True, validators=False
        )
        self.probe = MongomockProbe(client, self._settings.database or "", module.name)

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        # Its indexes do remove what is old, and tests finish their rows in the past.
        kept = retention_of(self._module, KEPT_DAYS if expiring else 0)
        options = load_settings({}).with_options({self._module.name: kept}).options(self._module.name)
        resources = SharedResources()
        connection = Connection(self._settings, resources)
        # It knows the few calls that every entity is stored by, and none that one entity has for itself.
        backend = MongomockBackend(self._module, connection, options, validators=False, special=False)
        assert self._module.storage is not None
        storage: ModuleStorage[object, object] = cast("Any", self._module.storage)(
            backend, clock or SystemClock(), resources, options
        )
        return storage

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        del clock  # that of the server judges
        with module_backend(module, self._settings, MongomockBackend) as backend:
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
