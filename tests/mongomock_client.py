"""A client of pymongo over mongomock, for the tests that need no server.

It answers what the MongoDB driver asks of a standalone server, and says so in its ``hello``: without a
replica set there are neither transactions nor sessions. What mongomock does not know is done here (updates by
a pipeline, the name of the index that refuses a write, the limit of a document) or refused by it (validators,
raw batches). One lock for all of a client makes each call one step, as it is on a server.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, cast

import bson
import mongomock
from bson.codec_options import CodecOptions
from mongomock.codec_options import CodecOptions as MockOptions
from mongomock.filtering import filter_applies
from pymongo import IndexModel, MongoClient
from pymongo.collation import Collation
from pymongo.errors import BulkWriteError, DocumentTooLarge, DuplicateKeyError
from pymongo.results import InsertManyResult, UpdateResult
from typing_extensions import override

from tests.mongomock_pipelines import NOW, piped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pymongo.client_session import ClientSession
    from pymongo.database import Database
    from pymongo.results import DeleteResult, InsertOneResult

__all__ = ["MongomockClient"]

Document = dict[str, Any]

# mongomock calls itself 5.0.5; this is the oldest version that the driver takes.
VERSION: Final = (6, 0, 0, 0)
LARGEST: Final = 16 * 1024 * 1024
DUPLICATE_KEY: Final = 11000
SIMPLE: Final = Collation("simple")
AWARE: Final = CodecOptions[Document](tz_aware=True, tzinfo=UTC)


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
        return cast(
            "Database[Document]", MongomockDatabase(self, self.mock, name or "test", self._one_by_one)
        )

    @override
    def __getitem__(self, name: str) -> Database[Document]:
        return self.get_database(name)

    @override
    def start_session(self, *_: object, **__: object) -> ClientSession:
        raise NotImplementedError("mongomock has no sessions")


class MongomockDatabase:
    """What the driver asks of a database."""

    def __init__(self, client: MongomockClient, mock: Any, name: str, lock: RLock) -> None:  # noqa: ANN401  # mongomock has no types
        self.client = client
        self.name = name
        self.codec_options = AWARE
        aware = MockOptions(tz_aware=True)  # type: ignore[no-untyped-call]  # mongomock ships no types
        self._mock = mock.get_database(name, codec_options=aware)
        self._lock = lock

    def __getitem__(self, name: str) -> MongomockCollection:
        return MongomockCollection(self._mock[name], self._lock)

    def command(self, command: str, *values: object, **options: Any) -> Document:  # noqa: ANN401  # any option
        match command, values:
            case "hello", ():
                return {"isWritablePrimary": True, "maxBsonObjectSize": LARGEST, "localTime": server_time()}
            case "collMod", (str(collection),):
                return self[collection].change_age(**options["index"])
            case _:
                raise NotImplementedError(f"the command {command}")

    def list_collection_names(self) -> list[str]:
        with self._lock:
            return list(self._mock.list_collection_names())

    def list_collections(self) -> list[Document]:
        return [{"name": name, "type": "collection", "options": {}} for name in self.list_collection_names()]

    def create_collection(self, name: str, **options: object) -> None:
        with self._lock:
            self._mock.create_collection(name, **options)


class MongomockCollection:
    """What the driver asks of a collection."""

    def __init__(self, mock: Any, lock: RLock) -> None:  # noqa: ANN401  # mongomock has no types
        self._mock = mock
        self._lock = lock

    # ------------------------------------------------------------------------------------- reading

    def with_options(self, *_: object) -> MongomockCollection:
        """Return the same, which has no wire and so no way to read it."""
        return self

    def find_one(self, condition: Document, *fields: object, **options: object) -> Document | None:
        return next(iter(self.find(condition, *fields, **options).limit(1)), None)

    def find(self, condition: Document, *fields: object, **options: object) -> MongomockCursor:
        cursor = self._mock.find(with_now(condition), *fields, **known(options))
        return MongomockCursor(cursor, self._lock)

    def aggregate(self, pipeline: Sequence[Document], **options: object) -> list[Document]:
        with self._lock:
            return list(self._mock.aggregate(pipeline, **known(options)))

    def count_documents(self, condition: Document, **options: object) -> int:
        with self._lock:
            return int(self._mock.count_documents(condition, **known(options)))

    # ------------------------------------------------------------------------------------- writing

    def insert_one(self, document: Document, **options: object) -> InsertOneResult:
        with self._lock:
            return cast("InsertOneResult", self._written(document, self._mock.insert_one, **options))

    def insert_many(self, documents: Iterable[Document], **options: object) -> InsertManyResult:
        """Insert one after the other, up to the first that is refused, and say which it was."""
        ids: list[object] = []
        for index, document in enumerate(documents):
            try:
                ids.append(self.insert_one(document, **options).inserted_id)
            except DuplicateKeyError as error:
                refused = {**(error.details or {}), "index": index, "code": error.code}
                raise BulkWriteError({"writeErrors": [refused]}) from error
        return InsertManyResult(ids, acknowledged=True)

    def replace_one(self, condition: Document, document: Document, **options: object) -> UpdateResult:
        with self._lock:
            replace = partial(self._mock.replace_one, condition)
            return cast("UpdateResult", self._written(document, replace, **options))

    def update_one(
        self,
        condition: Document,
        update: Document | list[Document],
        *,
        upsert: bool = False,
        **options: object,
    ) -> UpdateResult:
        with self._lock:
            if isinstance(update, dict):
                found = self._mock.update_one(with_now(condition), update, upsert=upsert, **known(options))
                return cast("UpdateResult", found)
            found = self.find_one(condition)
            if found is None and not upsert:
                return UpdateResult({"n": 0, "nModified": 0}, acknowledged=True)
            new = piped(equalities(condition) if found is None else found, update, server_time())
            if found is not None:
                return self.replace_one({"_id": found["_id"]}, new, **options)
            upserted = self.insert_one(new, **options).inserted_id
            return UpdateResult({"n": 1, "nModified": 0, "upserted": upserted}, acknowledged=True)

    def find_one_and_update(
        self,
        condition: Document,
        update: list[Document],
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        return_document: bool,
        upsert: bool = False,
        **options: object,
    ) -> Document | None:
        assert return_document, "the driver wants the document as it is then"
        assert not known(options), "the driver asks for nothing else"
        with self._lock:
            found = self.find_one(condition, sort=sort)
            if found is not None:
                self.update_one({"_id": found["_id"]}, update)
                return self.find_one({"_id": found["_id"]})
            if not upsert:
                return None
            return self.find_one({"_id": self.update_one(condition, update, upsert=True).upserted_id})

    def delete_one(self, condition: Document, **options: object) -> DeleteResult:
        with self._lock:
            return cast("DeleteResult", self._mock.delete_one(condition, **known(options)))

    def delete_many(self, condition: Document, **options: object) -> DeleteResult:
        with self._lock:
            return cast("DeleteResult", self._mock.delete_many(condition, **known(options)))

    def _written(self, document: Document, write: Any, **options: object) -> object:  # noqa: ANN401  # of mongomock
        """Write a whole document; refuse a large one, and say which index refuses it, as a server does."""
        if len(bson.encode(document)) > LARGEST:
            raise DocumentTooLarge("the document is too large")
        try:
            return write(document, **known(options))
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
                    return name
        return "_id_"

    # ------------------------------------------------------------------------------------- indexes

    def index_information(self) -> dict[str, Document]:
        with self._lock:
            return dict(self._mock.index_information())

    def list_indexes(self) -> list[Document]:
        with self._lock:
            return list(self._mock.list_indexes())

    def create_indexes(self, models: Sequence[IndexModel]) -> list[str]:
        return [self.create_index(list(given.pop("key").items()), **given) for given in map(of_model, models)]

    def create_index(self, key: list[tuple[str, int]], **options: object) -> str:
        with self._lock:
            return str(self._mock.create_index(key, **known(options)))

    def drop_index(self, name: str) -> None:
        with self._lock:
            self._mock.drop_index(name)

    def change_age(self, name: str, **age: object) -> Document:
        """Change the age at which an index removes documents."""
        with self._lock:
            index = self.index_information()[name]
            self.drop_index(name)
            options = {option: value for option, value in index.items() if option not in {"key", "v"}}
            self.create_index(index["key"], name=name, **{**options, **age})
            return {"ok": 1.0}


class MongomockCursor:
    """The documents that a query finds, at the moment when the first one is asked for."""

    def __init__(self, mock: Any, lock: RLock) -> None:  # noqa: ANN401  # mongomock has no types
        self._mock = mock
        self._lock = lock

    def sort(self, order: Sequence[tuple[str, int]]) -> MongomockCursor:
        return MongomockCursor(self._mock.sort(order), self._lock)

    def limit(self, number: int) -> MongomockCursor:
        return MongomockCursor(self._mock.limit(number), self._lock)

    def __iter__(self) -> Iterator[Document]:
        with self._lock:
            return iter(list(self._mock))


def server_time() -> datetime:
    """Return the time as a server tells it, in whole milliseconds."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def known(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that mongomock knows; it compares by code point, as the driver asks for."""
    kept = {name: value for name, value in options.items() if value is not None}
    collation = kept.pop("collation", SIMPLE)
    if collation not in (SIMPLE, SIMPLE.document):
        raise NotImplementedError(f"{collation}")
    return kept


def equalities(condition: Document) -> Document:
    """Return what an upsert takes over from its filter."""
    return {name: value for name, value in condition.items() if not isinstance(value, dict)}


def with_now(condition: Any) -> Any:  # noqa: ANN401  # a filter, or a part of one
    """Return a filter with the time of the server in place of its variable."""
    if isinstance(condition, dict):
        return {name: with_now(item) for name, item in condition.items()}
    if isinstance(condition, list):
        return [with_now(item) for item in condition]
    return server_time() if condition == NOW else condition


def of_model(model: IndexModel) -> Document:
    """Return key and options of an index."""
    return {**model.document}
