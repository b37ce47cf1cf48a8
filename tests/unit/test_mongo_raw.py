from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from twinstore_mongo.client.bson import element_of, elements, first_of

VALUES: Final[dict[str, Any]] = {
    "double": 1.5,
    "text": "a\u00e9",
    "empty": "",
    "map": {"tenantId": "inner"},
    "list": ["x", 1],
    "binary": b"\x00\x01",
    "old binary": Binary(b"abc", 2),
    "id": ObjectId(),
    "flag": True,
    "date": datetime(2025, 10, 26, tzinfo=UTC),
    "null": None,
    "pattern": Regex("a.b", "im"),
    "pointer": DBRef("runs", "r"),
    "code": Code("return 1"),
    "scoped": Code("return a", {"a": 1}),
    "int": 5,
    "stamp": Timestamp(1, 2),
    "long": Int64(5),
    "decimal": Decimal128("1.50"),
    "least": MinKey(),
    "most": MaxKey(),
}
# Types that the client writes no more: a symbol, undefined, a pointer to a document.
OLD: Final = {
    "symbol": b"\x0esymbol\x00\x02\x00\x00\x00x\x00",
    "undefined": b"\x06undefined\x00",
    "old pointer": b"\x0cold pointer\x00\x05\x00\x00\x00runs\x00" + b"\x01" * 12,
}


def document(inner: bytes) -> bytes:
    return (len(inner) + 5).to_bytes(4, "little") + inner + b"\x00"


def inner(values: dict[str, Any]) -> bytes:
    return bson.encode(values)[4:-1]


def test_every_type_is_walked_past() -> None:
    raw = document(inner(VALUES) + b"".join(OLD.values()))
    found = list(elements(raw))
    assert [name.decode() for _, name, _, _ in found] == [*VALUES, *OLD]
    assert found[-1][3] == len(raw) - 1


@pytest.mark.parametrize("name", VALUES)
def test_the_first_value_of_a_name_is_found_behind_any_other(name: str) -> None:
    twice = inner({name: VALUES[name]}) + inner({"tenantId": "acme"}) + inner({"tenantId": "globex"})
    assert bson.decode(document(twice))["tenantId"] == "globex"
    assert first_of(document(twice), "tenantId") == "acme"


@pytest.mark.parametrize(
    ("value", "found"), [("acme", "acme"), (5, 5), (Int64(-5), -5), (None, None), (True, b"\x01")]
)
def test_a_text_and_an_integer_are_told_and_an_absent_value_is_none(value: object, found: object) -> None:
    assert first_of(bson.encode({"tenantId": value}), "tenantId") == found
    assert first_of(bson.encode({"other": value}), "tenantId") is None


def test_anything_else_is_told_by_its_bytes() -> None:
    assert first_of(bson.encode({"tenantId": {"a": "acme"}}), "tenantId") == bson.encode({"a": "acme"})
    raw = bson.encode({"tenantId": "acme"}).replace(b"acme", b"\xff\xfe\xff\xfe")
    assert first_of(raw, "tenantId") == b"\x05\x00\x00\x00\xff\xfe\xff\xfe\x00"


def test_an_element_is_taken_with_its_type_and_name() -> None:
    raw = bson.encode({"a": 1, "_id": "x", "b": 2})
    assert element_of(raw, "_id") == inner({"_id": "x"})
