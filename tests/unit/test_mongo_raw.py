from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from twinstore_mongo.raw import elements, first_text

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
    assert first_text(document(twice), "tenantId") == "acme"


@pytest.mark.parametrize("value", [5, None, {"a": "acme"}])
def test_what_is_no_text_is_none(value: object) -> None:
    assert first_text(bson.encode({"tenantId": value}), "tenantId") is None
    assert first_text(bson.encode({"other": "acme"}), "tenantId") is None


def test_a_text_that_is_not_utf_8_is_none() -> None:
    raw = bson.encode({"tenantId": "acme"}).replace(b"acme", b"\xff\xfe\xff\xfe")
    assert first_text(raw, "tenantId") is None
