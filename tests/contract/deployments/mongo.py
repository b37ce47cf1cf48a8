"""Deployments of the MongoDB driver, with a probe that reads documents and the log of the replica set."""

from __future__ import annotations

from contextlib import closing, contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar

from bson.codec_options import CodecOptions
from pydantic import SecretStr
from pymongo import MongoClient

import twinstore
from twinstore.backend import SharedResources
from twinstore.testing import StoredRow
from twinstore.testing.entities import KitOptions
from twinstore_mongo.backend import MongoBackend
from twinstore_mongo.connection import Connection
from twinstore_mongo.proposal import proposed_step
from twinstore_mongo.schema import Schema
from twinstore_mongo.settings import MongoSettings
from twinstore_mongo.steps import parse_step
from twinstore_mongo.validators import validator_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

    from tests.databases import MongoDatabase, MongoServer
    from twinstore.backend import ModuleBackend
    from twinstore.catalog import Entity, Key
    from twinstore.clock import Clock
    from twinstore.modules import ModuleSpec
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing import BackendFactory, Deployment

R = TypeVar("R")
Document = dict[str, Any]
AWARE: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)


def marker_names(entity: Entity) -> dict[str, str]:
    """Return where the storage markers of an entity are stored."""
    names = {marker.name: marker.name if marker.plain else f"_{marker.name}" for marker in entity.storage}
    return {name: "_id" if name == entity.single_key else stored for name, stored in names.items()}


def condition(entity: Entity, key: Key) -> Document:
    """Return the filter of one document."""
    if entity.single_key is not None:
        return {"_id": key[0]}
    return dict(zip(entity.key, key, strict=True))


@contextmanager
def module_backend(module: ModuleSpec[R], settings: MongoSettings) -> Iterator[ModuleBackend[R]]:
    """Open a module with the collections that the proposal of its first migration step creates."""
    options = KitOptions()
    with SharedResources() as resources:
        connection = Connection(settings, resources)
        with closing(MongoBackend(module, connection, options)) as backend:
            text = proposed_step(module.catalog, ())
            assert text is not None
            step = parse_step("001_kit", text.encode())
            validators = {entity.collection: validator_of(entity) for entity in module.catalog.entities}
            store = connection.store
            Schema(store, step.collections, validators if store.complete else {}, options).create(
                step.collections
            )
            yield backend


class MongoProbe:
    """Reads and breaks documents past the repositories."""

    def __init__(self, client: MongoClient[Document], name: str) -> None:
        self._database = client.get_database(name, codec_options=AWARE)
        self._oplog = client["local"]["oplog.rs"]

    def count(self, entity: Entity, tenant_id: str) -> int:
        field = entity.tenant_field or ""
        return self._of(entity).count_documents({marker_names(entity).get(field, field): tenant_id})

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        document = self._of(entity).find_one(condition(entity, key))
        if document is None:
            return None
        markers = {
            name: document[stored] for name, stored in marker_names(entity).items() if stored in document
        }
        names = {} if entity.single_key not in entity.identity else {"_id": entity.single_key}
        wire = {names.get(name, name): value for name, value in document.items()}
        return StoredRow(
            {name: value for name, value in wire.items() if not name.startswith("_") and name not in markers},
            markers,
        )

    def stamp(self, entity: Entity, key: Key) -> object | None:
        found = self._of(entity).find_one(condition(entity, key), {"_id": 1})
        if found is None:
            return None
        space = f"{self._database.name}.{entity.collection}"
        written = [{"ns": space, "o._id": found["_id"]}, {"ns": space, "o2._id": found["_id"]}]
        entries = {"$or": [*written, {"o.applyOps": {"$elemMatch": {"$or": written}}}]}
        newest = self._oplog.find_one(entries, sort=[("$natural", -1)])
        return None if newest is None else newest["ts"]

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        self._database.command(
            "update",
            entity.name,
            updates=[{"q": condition(entity, key), "u": {"$set": {"foreign": content}}}],
            bypassDocumentValidation=True,
        )

    def _of(self, entity: Entity) -> Collection[Document]:
        return self._database[entity.collection]


class MongoDeployment:
    """A database on the server of the run."""

    def __init__(self, database: MongoDatabase, client: MongoClient[Document]) -> None:
        self._database = database
        self._client = client
        self.probe = MongoProbe(client, database.name)

    def open(self, *, clock: Clock | None = None) -> SchedulerStorage:
        settings = {**self._database.config, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}
        return twinstore.add_scheduler_mongo_storage(settings, clock=clock)

    @contextmanager
    def open_module(self, module: ModuleSpec[R]) -> Iterator[ModuleBackend[R]]:
        database = self._database
        settings = MongoSettings(connection_string=SecretStr(database.url), database=database.name)
        with module_backend(module, settings) as backend:
            yield backend

    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        with self._client.start_session() as session, session.start_transaction():
            yield session


def mongo_deployments(server: MongoServer) -> BackendFactory:
    """Return the factory of deployments on a server."""

    @contextmanager
    def deployments(*, migrated: bool = True) -> Iterator[Deployment]:
        with server.database() as database:
            deployment = MongoDeployment(database, server.client)
            if migrated:
                with deployment.open() as storage:
                    storage.initializer.ensure_migrations()
            yield deployment

    return deployments
