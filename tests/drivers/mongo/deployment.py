"""Deployments of the MongoDB driver, with a probe that reads documents and the log of the replica set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from bson import Binary, Decimal128, ObjectId, json_util
from bson.binary import UUID_SUBTYPE
from bson.codec_options import CodecOptions
from pydantic import SecretStr
from pymongo import MongoClient
from typing_extensions import override

from tests.support.databases import without_retention
from tests.support.proxies import proxy_to
from tests.support.servers import mongo_config
from twinstore.catalog.keys import KeyType
from twinstore.plugins.resources import SharedResources
from twinstore.storage.open import open_module
from twinstore.testing import ProbeDefaults, StoredRow
from twinstore.testing.entities import KitOptions
from twinstore_mongo.backend import MongoBackend
from twinstore_mongo.client.connection import Connection
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.free_json import map_converters, references, within
from twinstore_mongo.schema.comparison import Schema
from twinstore_mongo.schema.proposal import proposed_step
from twinstore_mongo.schema.steps import parse_step
from twinstore_mongo.schema.validators import validator_of
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

    from tests.support.databases import MongoDatabase, MongoServer
    from tests.support.servers import Settings
    from twinstore.catalog.entity import Entity, Module
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage
    from twinstore.testing import BackendFactory, Deployment

R = TypeVar("R")
Document = dict[str, Any]
AWARE: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)
TAMPERED = "tampered"
KEPT_DAYS = 30


def marker_names(entity: Entity) -> dict[str, str]:
    """Return where the storage markers of an entity are stored."""
    names = {marker.name: marker.name if marker.plain else f"_{marker.name}" for marker in entity.storage}
    return {name: "_id" if name == entity.document_id else stored for name, stored in names.items()}


def condition(entity: Entity, key: Key) -> Document:
    """Return the filter of one document."""
    stored = [
        KEY_VALUES.get(part.type, str_or_int)(value)
        for part, value in zip(entity.key_parts, key, strict=True)
    ]
    if entity.document_id in entity.key:
        return {"_id": stored[0]}
    if entity.key_as_id:
        return {"_id": dict(zip(entity.key, stored, strict=True))}
    derived = {item.name: f"_{item.name}" for item in entity.derived}
    return dict(zip([derived.get(name, name) for name in entity.key], stored, strict=True))


def shown(value: object) -> object:
    """Return a stored value as models hold it."""
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE:
        return str(value.as_uuid())
    if isinstance(value, Decimal128):
        return value.to_decimal()
    return str(value) if isinstance(value, ObjectId) else value


def str_or_int(value: str | int) -> object:
    """Return a part of a key that documents hold as it is."""
    return value


KEY_VALUES: Mapping[KeyType, Callable[[Any], object]] = {
    KeyType.OBJECT_ID: ObjectId,
    KeyType.BINARY_UUID: lambda text: Binary.from_uuid(UUID(text)),
}


def typed_objects(value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Return free JSON with ids, decimals and bytes as extended JSON writes them."""
    if isinstance(value, dict):
        return {name: typed_objects(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(typed_objects, value))
    is_typed = isinstance(value, bytes | Decimal128 | ObjectId)
    return json_util.default(value, json_util.CANONICAL_JSON_OPTIONS) if is_typed else value


@contextmanager
def module_backend(
    module: ModuleSpec[R], settings: MongoSettings, backend_class: type[MongoBackend[R]] = MongoBackend
) -> Iterator[ModuleBackend[R]]:
    """Open a module with the collections that the proposal of its first migration step creates."""
    options = KitOptions()
    with SharedResources() as resources:
        connection = Connection(settings, resources)
        with closing(backend_class(module, connection, options)) as backend:
            if not module.migrations("mongo").is_dir():
                create_collections(module.catalog, connection, options)
            yield backend


def create_collections(catalog: Module, connection: Connection, options: KitOptions) -> None:
    """Create what the first migration step of a module would, which has none."""
    text = proposed_step(catalog, ())
    assert text is not None
    step = parse_step("001_kit", text.encode())
    entities = catalog.entities if connection.validators else ()
    validators = {entity.collection: validator_of(entity) for entity in entities}
    Schema(connection.store, step.collections, validators, options).create(step.collections)


def retention_of(module: ModuleSpec[object], days: int) -> dict[str, object]:
    """Return the options of a module that keep its rows for this many days; 0: for ever."""
    kept_by = (entity.retention for entity in module.catalog.entities)
    return {retention.option: days for retention in kept_by if retention is not None and retention.option}


class MongoProbe(ProbeDefaults):
    """Reads and breaks documents past the repositories."""

    def __init__(self, client: MongoClient[Document], name: str, module: str) -> None:
        self._module = module
        self._database = client.get_database(name, codec_options=AWARE)
        self._oplog = client["local"]["oplog.rs"]

    def count(self, entity: Entity, tenant_id: str) -> int:
        return self._of(entity).count_documents(self._owned(entity, tenant_id))

    def _owned(self, entity: Entity, tenant_id: str) -> Document:
        """Return the filter of the documents of a tenant."""
        if entity.tenant_field is not None:
            return {marker_names(entity).get(entity.tenant_field, entity.tenant_field): tenant_id}
        if entity.parent is None:
            return {}
        above = entity.parent.entity
        name = "_id" if above.document_id == above.key[0] else above.key[0]
        parents = self._of(above).find(self._owned(above, tenant_id), {name: 1})
        field = f"_id.{entity.parent.field}" if entity.key_as_id else entity.parent.field
        return {field: {"$in": [parent[name] for parent in parents]}}

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        document = self._of(entity).find_one(condition(entity, key))
        if document is None:
            return None
        markers = {
            name: document[stored] for name, stored in marker_names(entity).items() if stored in document
        }
        own = entity.document_id
        names = {"_id": own} if own is not None and own in entity.shapes and own not in entity.markers else {}
        # The client turns a map that only looks like a reference into its own type.
        wire = {names.get(name, name): references(value) for name, value in document.items()}
        within(map_converters(entity.model, typed_objects), wire)
        if entity.key_as_id and own is None:
            wire |= document["_id"]
        wire = {name: shown(value) for name, value in wire.items()}
        known = entity.shapes if entity.key_as_id else ()
        return StoredRow(
            {
                name: value
                for name, value in wire.items()
                if (name in known or not name.startswith("_")) and name not in markers
            },
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
        # Where unknown properties are kept, the last field has a value that no model takes.
        place = (
            "foreign"
            if entity.extra is None
            else [name for name in entity.shapes if name != entity.extra][-1]
        )
        self._set(entity, key, {place: content if entity.extra is None else {"foreign": content}})

    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        names = marker_names(entity)
        stored = {names.get(name, name): value for name, value in values.items()}
        # The one text or number under a name of the description is stored in the type of that.
        self._set(
            entity,
            key,
            stored
            | {
                name: codec_of(entity).stored_value(name, values[name])
                for name in values.keys() & entity.shapes.keys() - names.keys()
            },
        )

    @override
    def garble(self, entity: Entity, key: Key) -> bool:
        without_retention = {*entity.identity, *(name for index in entity.indexes for name in index.names)}
        document = self._of(entity).find_one(condition(entity, key)) or {}
        self._set(
            entity,
            key,
            {
                name: [value]
                for name, value in document.items()
                if name in entity.shapes and name not in without_retention | entity.unpathed
            },
        )
        return True

    @override
    def objects(self) -> frozenset[str]:
        return frozenset(
            f"{collection}.{index}"
            for collection in self._database.list_collection_names()
            for index in self._database[collection].index_information()
        )

    @override
    def tamper_migration(self, name: str) -> None:
        ledger = self._database["_migrations"]
        recorded = ledger.find_one({"migration_name": name})
        if recorded is None:
            # The collection also has the lease of the migrations, and the steps of other modules.
            example = ledger.find_one({"_id": {"$regex": f"^{self._module}:"}}) or {}
            ledger.insert_one(
                {**example, "_id": f"{self._module}:{name}", "migration_name": name, "checksum": TAMPERED}
            )
        elif recorded["checksum"] == TAMPERED:
            ledger.delete_one({"_id": recorded["_id"]})
        else:
            changed = {"$set": {"checksum": recorded["checksum"][::-1]}}
            ledger.update_one({"_id": recorded["_id"]}, changed)

    @override
    def removes_expired(self, entity: Entity) -> bool:
        indexes = self._of(entity).index_information().values()
        return any("expireAfterSeconds" in index for index in indexes)

    @contextmanager
    def changes(self, entity: Entity) -> Iterator[Callable[[], Key]]:
        assert entity.single_key is not None, f"a change of {entity.name} does not tell its key"
        with self._of(entity).watch() as stream:
            if entity.generated_id:  # of an existing row: its document contains the key, its id does not
                yield lambda: (cast("str", shown(stream.next()["fullDocument"][entity.single_key])),)
            else:
                yield lambda: (cast("str", shown(stream.next()["documentKey"]["_id"])),)

    def _set(self, entity: Entity, key: Key, values: Document) -> None:
        """Set fields, whatever a validator says."""
        self._database.command(
            "update",
            entity.collection,
            updates=[{"q": condition(entity, key), "u": {"$set": values}}],
            bypassDocumentValidation=True,
        )

    def _of(self, entity: Entity) -> Collection[Document]:
        return self._database[entity.collection]


WRITE: Document = {
    "$or": [{"op": {"$in": ["update", "remove"]}}, {"command.findAndModify": {"$exists": True}}]
}


class MongoDeployment:
    """A database on the server of the run."""

    remote = True

    def __init__(
        self, module: ModuleSpec[object], database: MongoDatabase, client: MongoClient[Document]
    ) -> None:
        self._module = module
        self._database = database
        self._client = client
        self.probe = MongoProbe(client, database.name, module.name)

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        options = retention_of(self._module, KEPT_DAYS if expiring else 0)
        return open_module(self._module.name, "Mongo", self.settings(), clock=clock, options=options)

    def settings(self) -> Settings:
        return without_retention(self._database.config)

    def waiting(self) -> bool:
        """Whether the server works on a write: one that meets the row of a unit goes on until that ends."""
        stages: list[Document] = [
            {"$currentOp": {}},
            {"$match": {"active": True, "ns": {"$regex": f"^{self._database.name}\\."}, **WRITE}},
        ]
        return bool(list(self._client.admin.aggregate(stages)))

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        del clock  # that of the server judges
        database = self._database
        settings = MongoSettings(connection_string=SecretStr(database.url), database=database.name)
        with module_backend(module, settings) as backend:
            yield backend

    @contextmanager
    def break_connection(self) -> Iterator[ModuleStorage[object, object]]:
        ((host, port),) = self._client.nodes
        with proxy_to((host, port or 27017)) as line:
            # Directly, because a replica set reports the addresses of its members, which bypass the line.
            # A call before the client has noticed the outage is repeated as long as any call may take. A call
            # after it waits for the server as long as the very first call, which a busy server may delay.
            options = "directConnection=true&serverSelectionTimeoutMS=1500&timeoutMS=3000"
            url = f"mongodb://127.0.0.1:{line.port}/?{options}"
            settings = without_retention(mongo_config(url, self._database.name))
            with open_module(self._module.name, "Mongo", settings) as storage:
                storage.check_ready()
                line.cut()
                yield storage

    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        with self._client.start_session() as session, session.start_transaction():
            yield session


def mongo_deployments(server: MongoServer) -> BackendFactory:
    """Return the factory of deployments on a server."""

    @contextmanager
    def deployments(module: ModuleSpec[object], *, migrated: bool = True) -> Iterator[Deployment]:
        options = retention_of(module, 0)
        with server.migrated_database(module.name, options) if migrated else server.database() as database:
            yield MongoDeployment(module, database, server.client)

    return deployments
