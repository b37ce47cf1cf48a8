"""Deployments of the MongoDB driver over mongomock, which has neither sessions nor transactions.

To mongomock is added only what most operations of the driver need: updates by a pipeline, and the name of
the index that refuses a write. One lock for all of a client makes each call one step, as it is on a server.
``test_mongomock_contract.py`` lists what is missing.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import uuid4

import mongomock
from bson.int64 import Int64
from mongomock.codec_options import CodecOptions
from mongomock.filtering import filter_applies
from pymongo import MongoClient
from pymongo.errors import BulkWriteError, DuplicateKeyError
from pymongo.results import InsertManyResult, UpdateResult
from typing_extensions import override

from tests.drivers.mongo.deployment import KEPT_DAYS, MongoProbe, condition, module_backend, retention_of
from twinstore.clock import SystemClock
from twinstore.config import load_settings
from twinstore.plugins.resources import SharedResources
from twinstore.testing import DeploymentDefaults
from twinstore_mongo.backend import MongoBackend
from twinstore_mongo.client.connection import Connection
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pymongo import IndexModel
    from pymongo.client_session import ClientSession
    from pymongo.database import Database

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import Capabilities, ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage
    from twinstore.testing import Deployment
    from twinstore_mongo.bulk.port import MongoBulk

Document = dict[str, Any]
# mongomock calls itself 5.0.5; this is the oldest version that the driver takes.
VERSION: Final = (6, 0, 0, 0)
LARGEST: Final = 16 * 1024 * 1024
DUPLICATE_KEY: Final = 11000
NOW: Final = "$$NOW"
# The value of a field that does not exist, and of "$$REMOVE".
ABSENT: Final = object()


class MongomockClient(MongoClient[Document]):
    """A client that never connects; its databases are those of one mongomock server.

    Attributes:
        mock: the client of mongomock, for what a test reads or breaks past the driver.
    """

    def __init__(self) -> None:
        super().__init__(connect=False, timeoutMS=30_000)
        self.mock: Any = mongomock.MongoClient()
        self._one_by_one = RLock()

    @property
    @override
    def address(self) -> tuple[str, int]:
        return "mongomock", 27017

    @property
    @override
    def is_primary(self) -> bool:
        return True

    @override
    def server_info(self, session: ClientSession | None = None) -> dict[str, Any]:
        return {"version": ".".join(map(str, VERSION[:3])), "versionArray": list(VERSION)}

    @override
    def get_database(self, name: str | None = None, *_: object, **__: object) -> Database[Document]:
        mock = self.mock.get_database(name or "test")
        return cast("Database[Document]", MongomockDatabase(self, mock, self._one_by_one))

    @override
    def __getitem__(self, name: str) -> Database[Document]:
        return self.get_database(name)


class Locked:
    """A part of mongomock, whose methods run one at a time."""

    def __init__(self, mock: Any, lock: RLock) -> None:  # noqa: ANN401  # mongomock has no types
        self._mock = mock
        self._lock = lock

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of mongomock."""
        method = getattr(self._mock, name)

        def locked(*values: object, **options: object) -> object:
            with self._lock:
                return method(*values, **known(options))

        return locked


class MongomockDatabase(Locked):
    """A database."""

    def __init__(self, client: MongomockClient, mock: Any, lock: RLock) -> None:  # noqa: ANN401  # mongomock has no types
        super().__init__(mock, lock)
        self.client = client
        self.name = mock.name

    def __getitem__(self, name: str) -> MongomockCollection:
        return MongomockCollection(self._mock[name], self._lock)

    def command(self, command: str, *_: object, **__: object) -> Document:
        if command != "hello":
            raise NotImplementedError(f"the command {command}")
        return {"isWritablePrimary": True, "maxBsonObjectSize": LARGEST, "localTime": server_time()}

    def list_collections(self) -> list[Document]:
        names = self.list_collection_names()
        return [{"name": name, "type": "collection", "options": {}} for name in names]


class MongomockCollection(Locked):
    """A collection."""

    def find(self, condition: Document, *fields: object, **options: object) -> MongomockCursor:
        cursor = self._mock.find(with_now(condition), *fields, **known(options))
        return MongomockCursor(cursor, self._lock)

    def find_one(self, condition: Document, *fields: object, **options: object) -> Document | None:
        return next(iter(self.find(condition, *fields, **options).limit(1)), None)

    def insert_one(self, document: Document, **options: object) -> object:
        return self._written(document, self._mock.insert_one, document, **options)

    def replace_one(self, condition: Document, document: Document, **options: object) -> object:
        return self._written(document, self._mock.replace_one, condition, document, **options)

    def insert_many(self, documents: Iterable[Document], **options: object) -> InsertManyResult:
        """Insert one after the other, up to the first that is refused, and say which it was."""
        ids: list[object] = []
        for index, document in enumerate(documents):
            try:
                self.insert_one(document, **options)
            except DuplicateKeyError as error:
                refused = {**(error.details or {}), "index": index, "code": error.code}
                raise BulkWriteError({"writeErrors": [refused]}) from error
            ids.append(document["_id"])
        return InsertManyResult(ids, acknowledged=True)

    def update_one(
        self, condition: Document, update: Document | list[Document], *, upsert: bool = False, **_: object
    ) -> object:
        with self._lock:
            if isinstance(update, dict):
                return self._mock.update_one(with_now(condition), update, upsert=upsert)
            changed = self.find_one_and_update(condition, update, upsert=upsert)
            return UpdateResult({"n": int(changed is not None)}, acknowledged=True)

    def find_one_and_update(
        self,
        condition: Document,
        update: list[Document],
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        upsert: bool = False,
        **_: object,
    ) -> Document | None:
        """Update by a pipeline; return the document as it is then."""
        with self._lock:
            found = self.find_one(condition, sort=sort)
            if found is None and not upsert:
                return None
            equalities = {name: value for name, value in condition.items() if not isinstance(value, dict)}
            changed = piped(equalities if found is None else found, update)
            if found is None:
                self.insert_one(changed)
            elif changed != found:
                self.replace_one({"_id": found["_id"]}, changed)
            return self.find_one({"_id": changed["_id"]})

    def create_indexes(self, models: Sequence[IndexModel]) -> None:
        for given in ({**model.document} for model in models):
            self.create_index(list(given.pop("key").items()), **given)

    def _written(
        self, document: Document, write: Callable[..., object], *values: object, **options: object
    ) -> object:
        """Write a whole document; say which index refuses it, as a server does."""
        try:
            with self._lock:
                return write(*values, **known(options))
        except DuplicateKeyError as error:
            text = f"E11000 duplicate key error index: {self._taken(document)} dup key"
            raise DuplicateKeyError(text, DUPLICATE_KEY, {"errmsg": text}) from error

    def _taken(self, document: Document) -> str:
        """Return the name of the index under which another document has the values of this one."""
        others = {"_id": {"$ne": document["_id"]}}
        for name, index in self.index_information().items():
            partial_filter = index.get("partialFilterExpression", {})
            if index.get("unique") and filter_applies(partial_filter, document):  # type: ignore[no-untyped-call]  # mongomock ships no types
                values = {field: document.get(field) for field, _ in index["key"]}
                if self.find_one({"$and": [others, partial_filter, values]}) is not None:
                    return str(name)
        return "_id_"


class MongomockCursor(Locked):
    """The documents that a query finds, at the moment when the first one is read."""

    def sort(self, order: Sequence[tuple[str, int]]) -> MongomockCursor:
        return MongomockCursor(self._mock.sort(order), self._lock)

    def limit(self, number: int) -> MongomockCursor:
        return MongomockCursor(self._mock.limit(number), self._lock)

    def __iter__(self) -> Iterator[Document]:
        with self._lock:
            return iter(list(self._mock))


def server_time() -> datetime:
    """Return the time as a server has it, in whole milliseconds."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def known(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that mongomock knows; it compares by code point, as the driver asks for."""
    return {name: value for name, value in options.items() if value is not None and name != "collation"}


def with_now(condition: Any) -> Any:  # noqa: ANN401  # a filter, or a part of one
    """Return a filter with the time of the server in place of its variable."""
    if isinstance(condition, dict):
        return {name: with_now(item) for name, item in condition.items()}
    if isinstance(condition, list):
        return [with_now(item) for item in condition]
    return server_time() if condition == NOW else condition


def piped(document: Document, pipeline: Sequence[Document]) -> Document:
    """Return what the stages of an update make of a document."""
    for stage in pipeline:
        names = {"$$ROOT": document, NOW: server_time(), "$$REMOVE": ABSENT}
        ((name, expression),) = stage.items()
        changed = evaluated(expression, names)
        document = {**document, **changed} if name == "$set" else changed
    return {name: value for name, value in document.items() if value is not ABSENT}


def evaluated(expression: Any, names: Mapping[str, Any]) -> Any:  # noqa: ANN401, C901, PLR0911  # any value of BSON
    """Return the value of an expression of those that the driver uses, which mongomock mostly lacks."""
    match expression:
        case {"$literal": value}:
            return value
        case {"$mergeObjects": objects}:
            return {name: item for each in objects for name, item in evaluated(each, names).items()}
        case {"$ifNull": [first, last]}:
            value = evaluated(first, names)
            return evaluated(last, names) if value is None or value is ABSENT else value
        case {"$add": [first, second]}:
            return added(evaluated(first, names), evaluated(second, names))
        case {"$cond": [condition, then, otherwise]}:
            return evaluated(then if evaluated(condition, names) else otherwise, names)
        case {"$eq": [one, other]}:
            return evaluated(one, names) == evaluated(other, names)
        case {"$let": {"vars": variables, "in": inner}}:
            new = {f"$${name}": evaluated(item, names) for name, item in variables.items()}
            return evaluated(inner, {**names, **new})
        case dict():
            return {name: evaluated(item, names) for name, item in expression.items()}
        case str() if expression.startswith("$$"):
            variable, _, field = expression.partition(".")
            return names[variable].get(field, ABSENT) if field else names[variable]
        case str() if expression.startswith("$"):
            return names["$$ROOT"].get(expression[1:], ABSENT)
        case _:
            return expression


def added(one: Any, other: Any) -> Any:  # noqa: ANN401  # a number or an instant
    """Return a sum; an instant grows by milliseconds, and 64 bits stay 64 bits."""
    if isinstance(one, datetime):
        return one + timedelta(milliseconds=other)
    return Int64(one + other) if isinstance(one, Int64) or isinstance(other, Int64) else one + other


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
    """Create a separate database."""
    deployment = MongomockDeployment(module)
    if migrated:
        with deployment.open() as storage:
            storage.initializer.ensure_migrations()
    yield deployment
