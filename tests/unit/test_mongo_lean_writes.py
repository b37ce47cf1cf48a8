"""One document is written with the answers and errors of the client, or by the client where need be."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient, helpers_shared
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, WriteError
from pymongo.synchronous.pool import Connection

from twinstore_mongo import lean_writes
from twinstore_mongo.connection import open_database, untyped
from twinstore_mongo.lean_writes import insert_first, write_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase
    from twinstore_mongo.connection import Untyped

BY_CLIENT = ("insert_one", "replace_one", "update_one")
SHAPE = {"$jsonSchema": {"properties": {"number": {"bsonType": "int"}}}}
ONE_MORE = [{"$set": {"number": {"$add": ["$number", 1]}}}]


# The lowest releases of pymongo that we take do not, and then do all of it by themselves.
told = pytest.mark.skipif(
    "spec" not in signature(Connection.command).parameters,
    reason="this release of pymongo does not tell what a command takes",
)


@pytest.fixture
def collection(mongo_database: MongoDatabase) -> Iterator[Untyped]:
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        database = open_database(client, mongo_database.name)
        found = database.create_collection("written", validator=SHAPE)
        found.insert_one({"_id": "a", "number": 1})
        yield untyped(found)


@pytest.fixture(params=[pytest.param("lean", marks=told), "as the client does"], autouse=True)
def way(request: pytest.FixtureRequest, collection: Untyped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write in this way, and fail where it is the other one."""
    del collection  # made before anything is refused

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("written the other way")

    if request.param == "lean":
        for name in BY_CLIENT:
            monkeypatch.setattr(Collection, name, refuse)
    else:
        monkeypatch.setattr(lean_writes, "KNOWN", False)
        monkeypatch.setattr(lean_writes, "send", refuse)


def numbers(collection: Untyped) -> dict[str, int]:
    return {document["_id"]: document["number"] for document in collection.find()}


def test_it_is_told_whether_there_was_a_document(collection: Untyped) -> None:
    insert_first(collection, {"_id": "b", "number": 2}, session=None)
    assert write_first(collection, {"_id": "a"}, {"_id": "a", "number": 5}, session=None)
    # One that is the same already counts.
    assert write_first(collection, {"_id": "a"}, {"_id": "a", "number": 5}, session=None)
    assert write_first(collection, {"number": {"$gt": 0}, "_id": "b"}, ONE_MORE, session=None)
    assert not write_first(collection, {"_id": "c"}, ONE_MORE, session=None)
    assert numbers(collection) == {"a": 5, "b": 3}


def test_one_that_is_inserted_was_not_there(collection: Untyped) -> None:
    assert not write_first(collection, {"_id": "c"}, {"_id": "c", "number": 1}, upsert=True, session=None)
    assert write_first(collection, {"_id": "c"}, {"_id": "c", "number": 2}, upsert=True, session=None)
    assert numbers(collection) == {"a": 1, "c": 2}


def test_a_refused_write_raises_what_the_client_raises(collection: Untyped) -> None:
    with pytest.raises(DuplicateKeyError) as caught:
        insert_first(collection, {"_id": "a", "number": 2}, session=None)
    assert caught.value.details is not None
    assert caught.value.details["keyPattern"] == {"_id": 1}
    with pytest.raises(DuplicateKeyError):
        write_first(collection, {"_id": "a", "number": 7}, {"_id": "a"}, upsert=True, session=None)
    for write in (
        lambda: insert_first(collection, {"_id": "b", "number": "1"}, session=None),
        lambda: write_first(collection, {"_id": "a"}, {"_id": "a", "number": "1"}, session=None),
    ):
        with pytest.raises(WriteError) as refused:
            write()
        assert refused.value.code == 121  # DocumentValidationFailure
    assert numbers(collection) == {"a": 1}


def test_a_write_belongs_to_its_transaction(collection: Untyped) -> None:
    with collection.database.client.start_session() as session, session.start_transaction():
        insert_first(collection, {"_id": "b", "number": 1}, session=session)
        assert write_first(collection, {"_id": "b"}, ONE_MORE, session=session)
        assert not write_first(collection, {"_id": "b"}, ONE_MORE, session=None)
        session.abort_transaction()
    assert numbers(collection) == {"a": 1}


def retryable_write(self: object, func: object, retryable: object, own: object, label: object) -> None:
    """Stand for a method of another release."""


def command(
    self: object, dbname: object, spec: object, read_preference: object, codec_options: object
) -> None:
    """Stand for a method of another release."""


@told
@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [
        (MongoClient, "_retryable_write", None),
        (MongoClient, "_retryable_write", retryable_write),
        (Connection, "command", command),
        (helpers_shared, "_check_write_command_response", None),
    ],
)
def test_a_client_of_another_shape_is_left_to_write_by_itself(
    owner: object, name: str, other: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lean_writes.is_known(), "this release of pymongo is known"
    if other is None:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, other)
    assert not lean_writes.is_known()
