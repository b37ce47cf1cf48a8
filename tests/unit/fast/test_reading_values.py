"""Which single values native code accepts, and which it leaves to the models.

Each declined value is listed with a node that accepts it, so that only the check decides.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from time import thread_time
from typing import TYPE_CHECKING, Final, cast

import bson
import pytest
from bson import Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.dbref import DBRef

from tests.unit.fast.hand_made import ANY_TEXT, node_program, taken
from twinstore.fast.nodes import (
    HEX_DIGIT,
    LOWER_KEYS,
    Node,
    NodeField,
    NodeKind,
    NodeText,
    Presence,
    TextFlag,
)
from twinstore.models.fields import BLANKS
from twinstore.models.json_text import dumps, encodable, normalised_object

if TYPE_CHECKING:
    from collections.abc import Mapping

INT: Final = Node(kind=NodeKind.INT, low=-(2**63), high=2**63 - 1)
FLAG: Final = Node(kind=NodeKind.FLAG)
INSTANT: Final = Node(kind=NodeKind.INSTANT)
NUMBER: Final = Node(kind=NodeKind.NUMBER)
ENUM: Final = Node(kind=NodeKind.ENUM, texts=(NodeText("new"), NodeText("done", 1, 1)))
CONST: Final = Node(kind=NodeKind.CONST, texts=(NodeText("book@1"),))
FREE: Final = Node(kind=NodeKind.JSON)
LIST: Final = Node(kind=NodeKind.LIST, item=1)
MAP: Final = Node(kind=NodeKind.MAP, low=1, item=1)
OBJECT: Final = Node(kind=NodeKind.OBJECT)
NODES: Final = {
    "text": ANY_TEXT,
    "int": INT,
    "flag": FLAG,
    "instant": INSTANT,
    "number": NUMBER,
    "enum": ENUM,
    "const": CONST,
    "object": OBJECT,
    "list": LIST,
    "map": MAP,
    "json": FREE,
}
NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
# A value of each type of BSON, and the nodes that take it.
VALUES: Final[Mapping[str, tuple[object, set[str]]]] = {
    "double": (1.5, {"number"}),
    "text": ("a", {"text"}),
    "member": ("done", {"text", "enum"}),
    "constant": ("book@1", {"text", "const"}),
    "object": ({}, {"object", "map", "json"}),
    "map of texts": ({"a": "b"}, {"map", "json"}),
    "list": ([], {"list"}),
    "binary": (b"a", set()),
    "id": (ObjectId(), set()),
    "true": (True, {"flag"}),
    "instant": (NOON, {"instant"}),
    "pattern": (Regex("a"), set()),
    "reference": (DBRef("a", "b"), set()),
    "code": (Code("a"), set()),
    "code with scope": (Code("a", {}), set()),
    "int": (3, {"int", "number"}),
    "long": (Int64(3), {"int", "number"}),
    "timestamp": (Timestamp(1, 1), set()),
    "decimal": (Decimal128("1"), set()),
    "least": (MinKey(), set()),
    "greatest": (MaxKey(), set()),
}


@pytest.mark.parametrize(("value", "kinds"), VALUES.values(), ids=VALUES)
def test_each_node_takes_the_types_it_is_for_and_no_other(value: object, kinds: set[str]) -> None:
    assert {kind for kind, node in NODES.items() if taken(node, value) is not None} == kinds


def text_node(flags: TextFlag, *texts: str, high: int = -1) -> Node:
    return Node(kind=NodeKind.TEXT, flags=flags, high=high, texts=tuple(map(NodeText, texts)))


TEMPLATE: Final = text_node(TextFlag.TEMPLATE, f"job:{HEX_DIGIT}{HEX_DIGIT}")
LISTED: Final = text_node(TextFlag.LISTED, "Africa/Abidjan", "Europe/Rome", "UTC")
DIGEST: Final = "sha256:" + "0123456789abcdef" * 4
TEXTS: Final[Mapping[str, tuple[Node, list[str], list[str]]]] = {
    "length": (text_node(TextFlag.NONE, high=3), ["", "abc", "äöü", "😀😀😀"], ["abcd", "äöüß", "😀😀😀😀"]),
    "not empty": (text_node(TextFlag.NONEMPTY), [" ", "a"], [""]),
    "trimmed": (
        text_node(TextFlag.TRIM),
        ["", "a", "a b", "ä ö", "😀"],
        [*(f"{blank}a" for blank in BLANKS), *(f"a{blank}" for blank in BLANKS), *BLANKS, "a\x1f", "\u200b"],
    ),
    "control": (
        text_node(TextFlag.NO_CONTROL),
        ["", "a b", "\xa0", "ä"],
        ["a\x01b", "a\nb", "\x1f", "a\x7fb", "a\x80b", "a\x9fb"],
    ),
    "tenant": (text_node(TextFlag.TENANT), ["a", "systems", "System"], ["a:b", ":", "system", ""]),
    "digest": (
        text_node(TextFlag.DIGEST),
        [DIGEST],
        [
            "",
            DIGEST[:-1],
            f"{DIGEST}0",
            DIGEST.upper(),
            DIGEST.replace("a", "g"),
            DIGEST.replace("6", "7", 1),
        ],
    ),
    "identifier": (
        text_node(TextFlag.IDENTIFIER),
        ["a", "0", "a.b_c:d-e9"],
        ["", ".a", "-a", "_a", ":a", "A", "aB", "a b", "ä", "a/b"],
    ),
    "lower": (text_node(TextFlag.LOWER), ["", "a0 -", "@[`{"], ["A", "aZ", "ä", "é"]),
    "template": (TEMPLATE, ["job:0f", "job:a9"], ["", "job:0", "job:0g", "job:0F", "jab:00", "job:000"]),
    "listed": (LISTED, ["Africa/Abidjan", "Europe/Rome", "UTC"], ["", "Europe", "utc", "Zulu", "Africa"]),
}


@pytest.mark.parametrize(("node", "good", "bad"), TEXTS.values(), ids=TEXTS)
def test_a_text_is_what_its_node_asks_for(node: Node, good: list[str], bad: list[str]) -> None:
    rows = node_program(node)
    free = node_program(ANY_TEXT)
    documents = [{"_id": "k", "v": text} for text in (*good, *bad)]
    answers = [None if row is None else row[1][1].decode() for row in rows.read(*documents)]
    assert answers == [*good, *(None for _ in bad)]
    # By nothing else.
    assert None not in free.read(*documents)


@pytest.mark.parametrize("kind", ["text", "list", "map", "json"])
def test_no_text_with_u0000_is_taken(kind: str) -> None:
    for text in ("\0", "a\0b", "abcdefgh\0", "ä\0"):
        value = {"text": text, "list": [text], "map": {"a": text}, "json": {"a": [text]}}[kind]
        assert taken(NODES[kind], value) is None


UTF_8: Final[Mapping[str, tuple[bytes, bool]]] = {
    "ascii": (b"plain text", True),
    "delete": (b"\x7f", True),
    "two bytes": ("\x80\u07ff".encode(), True),
    "three bytes": ("\u0800\ud7ff\ue000\uffff".encode(), True),
    "four bytes": ("\U00010000\U0010ffff".encode(), True),
    "behind eight": ("12345678ä".encode(), True),
    "continuation alone": (b"\x80", False),
    "continuation behind eight": (b"12345678\xbf", False),
    "overlong slash": (b"\xc0\xaf", False),
    "overlong with two": (b"\xc1\xbf", False),
    "overlong with three": (b"\xe0\x9f\xbf", False),
    "overlong with four": (b"\xf0\x8f\xbf\xbf", False),
    "surrogate": (b"\xed\xa0\x80", False),
    "last surrogate": (b"\xed\xbf\xbf", False),
    "beyond the last": (b"\xf4\x90\x80\x80", False),
    "no lead": (b"\xf5\x80\x80\x80", False),
    "never": (b"\xff", False),
    "cut after one": (b"a\xc3", False),
    "cut after two": (b"a\xe2\x82", False),
    "cut after three": (b"a\xf0\x9f\x98", False),
    "not continued": (b"\xe2\x28\xa1", False),
    "not continued at the end": (b"\xe2\x82\x28", False),
}


@pytest.mark.parametrize(("raw", "is_valid"), UTF_8.values(), ids=UTF_8)
@pytest.mark.parametrize("kind", ["text", "list", "map", "json"])
def test_texts_are_strict_utf_8(raw: bytes, is_valid: bool, kind: str) -> None:  # noqa: FBT001  # of the table
    value = {"text": "?" * 7, "list": ["?" * 7], "map": {"a": "?" * 7}, "json": {"a": "?" * 7}}[kind]
    # Of the same length, so that nothing else changes.
    padded = raw.rjust(7, b"a")
    document = bson.encode({"_id": "k", "v": sized(value, len(padded))}).replace(b"?" * len(padded), padded)
    (row,) = node_program(NODES[kind]).read(document)
    assert (row is not None) is is_valid
    assert is_valid is not raises(padded)


def sized(value: object, size: int) -> object:
    """Return the same value with texts of a number of marks."""
    if isinstance(value, dict):
        return {name: sized(item, size) for name, item in value.items()}
    return [sized(item, size) for item in value] if isinstance(value, list) else "?" * size


def raises(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_names_of_maps_are_strict_utf_8() -> None:
    for kind in ("map", "json"):
        document = bson.encode({"_id": "k", "v": {"??": "a"}})
        assert node_program(NODES[kind]).read(document.replace(b"??", "ä".encode())) != [None]
        assert node_program(NODES[kind]).read(document.replace(b"??", b"\xc3(")) == [None]


def test_integers_are_within_their_bounds() -> None:
    small = Node(kind=NodeKind.INT, low=1, high=2**31 - 1)
    values: list[object] = [0, 1, 2**31 - 1, Int64(1), Int64(2**31), -1]
    assert [taken(small, value) for value in values] == [None, 1, 2**31 - 1, 1, None, None]
    assert [taken(INT, Int64(value)) for value in (-(2**63), 2**63 - 1)] == [-(2**63), 2**63 - 1]


def test_instants_are_of_the_years_1_to_9999() -> None:
    least, most = -62135596800000, 253402300799999
    values = [least - 1, least, -1, 0, most, most + 1]
    assert [taken(INSTANT, DatetimeMS(value)) for value in values] == [None, least, -1, 0, most, None]


def test_a_flag_is_0_or_1() -> None:
    document = bson.encode({"_id": "k", "v": True})
    assert document.count(b"\x01") == 1
    for byte, answer in ((b"\x00", (3, False)), (b"\x01", (3, True)), (b"\x02", None), (b"\xc2", None)):
        (row,) = node_program(FLAG).read(document.replace(b"\x01", byte))
        assert (None if row is None else row[1]) == answer


def test_members_are_packed_by_position() -> None:
    assert [taken(ENUM, text) for text in ("new", "done", "DONE", "", "don", "donee")] == [0, 1, *[None] * 4]
    assert taken(CONST, "book@1") == b"book@1"
    assert [taken(CONST, text) for text in ("", "book@2", "Book@1", "book@")] == [None] * 4


def test_numbers_are_whole_or_finite() -> None:
    values: list[object] = [
        0.0,
        -0.0,
        1.0,
        -2.5,
        2**53,
        Int64(-(2**53)),
        Int64(2**53 + 1),
        float("inf"),
        float("nan"),
    ]
    assert [taken(NUMBER, value) for value in values] == [0, None, 1, -2.5, 2**53, -(2**53), None, None, None]


JSON: Final[Mapping[str, Mapping[str, object]]] = {
    "empty": {},
    "scalars": {"a": 1, "b": True, "c": False, "d": None, "e": "x", "f": Int64(2**62)},
    "nested": {"a": {"b": {"c": []}}, "d": [[], [1, [2]], {"e": {}}]},
    "escapes": {'"\\\n\x01\x7f': "\u2028\ufeff/", "a": "".join(map(chr, range(1, 160)))},
    "doubles": {"a": [1.5, 2.0, 1e15, 1e16, 123456789.125, 0.1, 1 / 3, 1e-4, 1.5e-4, -0.000123456789, 1e18]},
    "names": {"": 1, "a": 2, "a.b": 3, "aä": 4, "b": 5, "ä": 6, "\uffff": 7, "😀": 8},
}


@pytest.mark.parametrize("value", JSON.values(), ids=JSON)
def test_free_json_is_written_as_the_models_write_it(value: Mapping[str, object]) -> None:
    assert taken(FREE, value) == dumps(encodable(normalised_object(cast("Mapping[object, object]", value))))


FOREIGN_JSON: Final[Mapping[str, object]] = {
    "names that fall": {"b": 1, "a": 2},
    "names that fall below": {"a": {"b": 1, "a": 2}},
    "names that fall in a list": {"a": [{"b": 1, "a": 2}]},
    "a reference": {"a": {"$ref": "b", "$id": 1}},
    "a mark behind": {"$a": 1},
    "a date as an object": {"a": {"$date": "2025-10-26T12:00:00+00:00"}},
    "an id as an object": {"a": {"$oid": "0" * 24}},
    "a decimal as an object": {"a": [{"$numberDecimal": "1.50"}]},
    "bytes as an object": {"a": {"$binary": {"base64": "", "subType": "00"}}},
    "a decimal": {"a": Decimal128("1.50")},
    "infinite": {"a": float("inf")},
    "no number": {"a": [float("nan")]},
    "minus zero": {"a": -0.0},
    "beyond 64 bits": {"a": 2.0**63},
    "a small double": {"a": 9.9e-5},
    "the least double": {"a": -5e-324},
    "an id": {"a": ObjectId()},
    "binary": {"a": [b"a"]},
    "a date before all": {"a": DatetimeMS(-62135596800001)},
    "a date after all": {"a": [DatetimeMS(253402300800000)]},
}


@pytest.mark.parametrize("value", FOREIGN_JSON.values(), ids=FOREIGN_JSON)
def test_free_json_that_may_be_changed_is_left_to_the_models(value: object) -> None:
    assert taken(FREE, value) is None


def test_dates_in_free_json_are_the_objects_that_stand_for_them() -> None:
    value = {"a": NOON, "b": [NOON + timedelta(milliseconds=7)], "c": {"d": DatetimeMS(-62135596800000)}}
    assert taken(FREE, value) == (
        b'{"a":{"$date":"2025-10-26T12:00:00+00:00"},"b":[{"$date":"2025-10-26T12:00:00.007+00:00"}],'
        b'"c":{"d":{"$date":"0001-01-01T00:00:00+00:00"}}}'
    )


def test_a_date_is_no_free_json_by_itself() -> None:
    assert taken(FREE, NOON) is None


def test_free_json_with_lower_case_names_has_them_at_its_first_level() -> None:
    lower = Node(kind=NodeKind.JSON, flags=LOWER_KEYS)
    values: list[object] = [{"a": {"B": 1}}, {"A": 1}, {"aB": 1}, {"ä": 1}]
    assert [taken(lower, value) is not None for value in values] == [True, False, False, False]
    assert all(taken(FREE, value) is not None for value in values)


def test_names_of_maps_rise_and_are_what_their_node_asks_for() -> None:
    names = text_node(TextFlag.TRIM | TextFlag.NONEMPTY | TextFlag.LOWER)
    strict = Node(kind=NodeKind.MAP, low=3, item=1)
    good = {"a": "1", "b": "", "c d": " "}
    assert taken(strict, good, names) == b'{"a":"1","b":"","c d":" "}'
    for bad in ({"": "a"}, {" a": "a"}, {"A": "a"}):
        assert taken(strict, bad, names) is None
        assert taken(MAP, bad) is not None
    wrongs: list[object] = [{"b": "", "a": ""}, {"a": 1}, {"$a": ""}, {"a": {}}]
    for wrong in wrongs:
        assert taken(MAP, wrong) is None


def test_maps_hold_whatever_their_node_is() -> None:
    holding = Node(kind=NodeKind.MAP, low=1, item=3)
    assert taken(holding, {"a": 1, "b": Int64(2)}, INT) == b'{"a":1,"b":2}'
    assert taken(holding, {"a": 1, "b": "c"}, INT) is None


def test_instants_in_maps_are_left_to_the_models() -> None:
    holding = Node(kind=NodeKind.MAP, low=1, item=3)
    assert taken(holding, {"a": NOON}, INSTANT) is None
    assert taken(holding, {"a": [NOON]}, Node(kind=NodeKind.LIST, item=4), INSTANT) is None
    rows = node_program(Node(kind=NodeKind.LIST, item=3), holding, INSTANT)
    assert rows.read({"_id": "k", "v": [{"a": NOON}]}, {"_id": "k", "v": [{}]}) == [
        None,
        [(1, b"k"), (5, b"[{}]")],
    ]
    # Behind a map they are none in it.
    fields = (NodeField(name="m", node=4), NodeField(name="t", node=5))
    model = Node(kind=NodeKind.OBJECT, fields=fields)
    map_of_texts = Node(kind=NodeKind.MAP, low=1, item=1)
    around = Node(kind=NodeKind.LIST, item=3)
    assert taken(around, [{"m": {"a": "b"}, "t": NOON}], model, map_of_texts, INSTANT) is not None


def test_an_absent_value_is_what_its_presence_says() -> None:
    absent = {"_id": "k"}
    assert node_program(INT).read(absent) == [[(1, b"k"), (0, b"")]]
    assert node_program(INT, presence=Presence.REQUIRED).read(absent) == [None]


def test_what_is_nested_too_deeply_is_left_to_the_models() -> None:
    value: object = 1
    for _ in range(62):
        value = [value]
    assert taken(FREE, {"a": value}) is not None
    assert taken(FREE, {"a": [[[value]]]}) is None
    endless = Node(kind=NodeKind.LIST, item=2)
    lists: object = []
    for _ in range(63):
        lists = [lists]
    assert taken(endless, lists) is not None
    assert taken(endless, [lists]) is None


def test_numbers_of_many_digits_take_no_longer_than_a_few_of_one_digit() -> None:
    """A document of 16 MB holds a million of them; each length of the text tried would take many seconds."""
    rows = node_program(Node(kind=NodeKind.LIST, item=3), NUMBER)
    rng = Random(1)  # not for secrets
    long = [bson.encode({"_id": "k", "v": [rng.uniform(0, 1e6) for _ in range(10_000)]})]
    short = [bson.encode({"_id": "k", "v": [0.5] * 10_000})]

    def seconds(raws: list[bytes]) -> float:
        begin = thread_time()
        assert rows.read(*raws) != [None]
        return thread_time() - begin

    assert min(seconds(long) for _ in range(3)) < 8 * min(seconds(short) for _ in range(3))
