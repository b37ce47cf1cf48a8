"""Deployments of the MongoDB driver, with a probe that reads documents and the log of the replica set."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any

from bson.codec_options import CodecOptions
from pymongo import MongoClient

import twinstore
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.testing import StoredRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

    from tests.databases import MongoDatabase, MongoServer
    from twinstore.catalog import Entity, Key
    from twinstore.clock import Clock
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing import BackendFactory, Deployment

Document = dict[str, Any]
AWARE: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)
SNAPSHOT_MARKERS = {
    "snapshotId": "_id",
    "tenantId": "_tenantId",
    "runId": "_runId",
    "selectorDigest": "_selectorDigest",
}


def marker_names(entity: Entity) -> dict[str, str]:
    """Return where the storage markers of an entity are stored."""
    return SNAPSHOT_MARKERS if entity is IMPACT_SNAPSHOTS else {name: name for name in entity.markers}


def condition(entity: Entity, key: Key) -> Document:
    """Return the filter of one document."""
    if len(key) == 1:
        return {"_id": key[0]}
    return dict(zip(entity.key, key, strict=True))


class MongoProbe:
    """Reads and breaks documents past the repositories."""

    def __init__(self, client: MongoClient[Document], name: str) -> None:
        self._database = client.get_database(name, codec_options=AWARE)
        self._oplog = client["local"]["oplog.rs"]

    def count(self, entity: Entity, tenant_id: str) -> int:
        field = marker_names(entity).get(entity.tenant_field, entity.tenant_field)
        return self._of(entity).count_documents({field: tenant_id})

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        document = self._of(entity).find_one(condition(entity, key))
        if document is None:
            return None
        markers = {
            name: document[stored] for name, stored in marker_names(entity).items() if stored in document
        }
        names = {"_id": "id"} if entity.key == ("id",) else {}
        wire = {names.get(name, name): value for name, value in document.items()}
        return StoredRow(
            {name: value for name, value in wire.items() if not name.startswith("_") and name not in markers},
            markers,
        )

    def stamp(self, entity: Entity, key: Key) -> object | None:
        found = self._of(entity).find_one(condition(entity, key), {"_id": 1})
        if found is None:
            return None
        space = f"{self._database.name}.{entity.name}"
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
        return self._database[entity.name]


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
