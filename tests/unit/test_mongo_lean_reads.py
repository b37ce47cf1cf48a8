"""Documents are read with our types in one pass, one of them without a cursor, or as the client does it."""

from __future__ import annotations

from datetime import UTC, datetime
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest
from bson import Code
from bson.codec_options import CodecOptions
from pymongo import MongoClient, message
from pymongo.cursor import Cursor
from pymongo.synchronous.pool import Connection

from twinstore_mongo import lean_reads
from twinstore_mongo.connection import open_database
from twinstore_mongo.lean_reads import find, find_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.collection import Collection

    from tests.databases import MongoDatabase

STORED = {"_id": "a", "at": datetime(2024, 5, 6, tzinfo=UTC), "codes": [Code("f()"), Code("g()", {"x": 1})]}
READ = STORED | {"codes": [{"$code": "f()"}, {"$code": "g()", "$scope": {"x": 1}}]}
SECOND = {"_id": "b", "at": datetime(2025, 5, 6, tzinfo=UTC)}


# The lowest releases of pymongo that we take do not, and then do all of it by themselves.
told = pytest.mark.skipif(
    "spec" not in signature(Connection.command).parameters,
    reason="this release of pymongo does not tell what a command takes",
)


@pytest.fixture
def collection(mongo_database: MongoDatabase) -> Iterator[Collection[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        found = open_database(client, mongo_database.name)["read"]
        found.insert_many([dict(STORED), dict(SECOND)])
        yield found


@pytest.fixture(params=[pytest.param("lean", marks=told), "as the client does"])
def way(
    request: pytest.FixtureRequest,
    collection: Collection[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Read in this way, and fail where it is the other one."""
    del collection  # made before anything is refused

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("read the other way")

    if request.param == "lean":
        monkeypatch.setattr(Cursor, "_unpack_response", refuse)
    else:
        monkeypatch.setattr(lean_reads, "KNOWN", False)
        monkeypatch.setattr(lean_reads.WholeAnswer, "with_options", refuse)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_documents_have_our_types_whichever_way_they_are_read(collection: Collection[dict[str, Any]]) -> None:
    assert find_first(collection, {"_id": "a"}, session=None) == READ
    assert find_first(collection, {"_id": "b", "at": SECOND["at"]}, session=None) == SECOND
    assert find_first(collection, {"_id": "A"}, session=None) is None
    assert list(find(collection, {}, session=None).sort("_id", -1)) == [SECOND, READ]
    # The batches after the first one, too.
    assert list(find(collection, {}, session=None).sort("_id", -1).batch_size(1)) == [SECOND, READ]
    assert list(find(collection, {}, ["at"], session=None).limit(1)) == [{"_id": "a", "at": STORED["at"]}]


@pytest.mark.usefixtures("way")
def test_a_session_is_used_and_given_back(collection: Collection[dict[str, Any]]) -> None:
    with collection.database.client.start_session() as session, session.start_transaction():
        collection.insert_one({"_id": "c"}, session=session)
        assert find_first(collection, {"_id": "c"}, session=session) == {"_id": "c"}
        assert find_first(collection, {"_id": "c"}, session=None) is None
        session.abort_transaction()


@told
def test_one_document_is_read_without_a_cursor(
    collection: Collection[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cursor, "__init__", lambda *_, **__: pytest.fail("a cursor is made"))
    assert find_first(collection, {"_id": "a"}, session=None) == READ


def retryable_read(self: object, read_pref: object, func: object, own: object, label: object) -> None:
    """Stand for a method of another release."""


def command(self: object, spec: object) -> None:
    """Stand for a method of another release."""


@told
@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [
        (MongoClient, "_retryable_read", None),
        (MongoClient, "_retryable_read", retryable_read),
        (Connection, "command", command),
        (lean_reads.WholeAnswer, "with_options", CodecOptions.with_options),
        (message, "_OpMsg", None),
    ],
)
def test_a_client_of_another_shape_is_left_to_read_by_itself(
    owner: object, name: str, other: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lean_reads.KNOWN, "this release of pymongo is read lean"
    assert lean_reads.is_known()
    if other is None:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, other)
    assert not lean_reads.is_known()
