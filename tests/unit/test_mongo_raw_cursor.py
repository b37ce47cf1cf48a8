"""Raw batches are those of the client, and are given without an object for each document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bson
import pytest
from pymongo import MongoClient
from pymongo import message as wire

from twinstore_mongo.raw_cursor import LeanCursor, lean_reply

if TYPE_CHECKING:
    from tests.databases import MongoDatabase


def reply(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # parts of an answer
    cursor = {"firstBatch": [{"_id": "a"}, {"_id": "b"}], "id": bson.Int64(7), "ns": "x.y"}
    return {"cursor": cursor, "ok": 1.0, **changes}


def test_an_answer_keeps_its_batch_in_bytes() -> None:
    found = lean_reply(memoryview(bson.encode(reply())))
    assert found is not None
    batch = bson.encode({"0": {"_id": "a"}, "1": {"_id": "b"}})
    assert found == reply(cursor={"firstBatch": batch, "id": 7, "ns": "x.y"})


@pytest.mark.parametrize(
    "payload",
    [
        bson.encode({"ok": 0.0, "errmsg": "no"}),
        bson.encode(reply(cursor={"id": 7})),
        bson.encode(reply(cursor="text")),
        bson.encode(reply(cursor={"firstBatch": "text", "id": 7})),
        b"",
        b"\x05\x00\x00\x00",
        bson.encode(reply())[:-9],
    ],
)
def test_any_other_answer_is_left_to_the_client(payload: bytes) -> None:
    assert lean_reply(memoryview(payload)) is None


def test_batches_are_those_of_the_client(
    mongo_database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        collection = client[mongo_database.name]["raw"]
        collection.insert_many([{"_id": number, "text": "x" * number} for number in range(250)])
        wanted = list(collection.find_raw_batches({}, batch_size=100, sort=[("_id", 1)]))

        def refuse(*_: object, **__: object) -> None:
            pytest.fail("the client makes an object for each document")

        monkeypatch.setattr(wire._OpMsg, "raw_response", refuse)  # noqa: SLF001  # what is avoided
        found: list[Any] = list(LeanCursor(collection, {}, batch_size=100, sort=[("_id", 1)]))
        collection.drop()
    assert found == wanted
    assert len(b"".join(found)) > 250 * 12
