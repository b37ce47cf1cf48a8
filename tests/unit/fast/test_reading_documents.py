"""What native code takes of whole documents: names, frames, lists, objects, identities and markers."""

from __future__ import annotations

import ctypes
import struct
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson import Int64, ObjectId

from tests.unit.fast.fuzz import mutants
from tests.unit.fast.hand_made import ANY_TEXT, NativeRows, native_library, node_program, program_with, taken
from tests.unit.fast.programs import programs
from twinstore.fast.library import Buffer
from twinstore.fast.nodes import ListRule, MarkerNode, Node, NodeField, NodeKind, NodeText, Presence, SortKey
from twinstore.fast.records import Identity, NativeDocuments, StoredSlot
from twinstore_mongo.bulk.records import documents_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
INT: Final = Node(kind=NodeKind.INT, low=-(2**63), high=2**63 - 1)
FLAG: Final = Node(kind=NodeKind.FLAG)
NUMBER: Final = Node(kind=NodeKind.NUMBER)
FREE: Final = Node(kind=NodeKind.JSON)
TEXTS: Final = Node(kind=NodeKind.LIST, item=1)
ENUM: Final = Node(
    kind=NodeKind.ENUM, texts=(NodeText("low", 0, 2), NodeText("high", 1, 0), NodeText("mid", 2, 1))
)


def element(kind: int, name: bytes, value: bytes) -> bytes:
    return bytes([kind]) + name + b"\0" + value


def document(*elements: bytes, end: bytes = b"\0", more: int = 0) -> bytes:
    body = b"".join(elements)
    return struct.pack("<i", len(body) + 4 + len(end) + more) + body + end


def text(value: bytes) -> bytes:
    return struct.pack("<i", len(value) + 1) + value + b"\0"


KEY: Final = element(2, b"_id", text(b"k"))
ONE: Final = element(16, b"v", struct.pack("<i", 1))


def test_documents_are_identified_by_their_offsets() -> None:
    rows = node_program(INT)
    good, bad = bson.encode({"_id": "k", "v": 1}), bson.encode({"_id": "k", "v": "no"})
    found = rows.documents.read(good + bad + good + bad + bad)
    assert found is not None
    size, small, large = len(found.rows) // 2, len(good), len(bad)
    assert struct.unpack("<6I", found.places) == (0, 0, small, size, small + large, small)
    third = 2 * small + large
    assert found.declined == ((small, large, 1), (third, large, 2), (third + large, large, 2))


BROKEN_FRAMES: Final[Mapping[str, bytes]] = {
    "a length alone": b"\x05\0\0\0",
    "no length": b"\x05",
    "a length that is too large": document(KEY, ONE, more=1),
    "a length that is too small": struct.pack("<i", 4) + b"\0",
    "a length that is negative": struct.pack("<i", -1) + KEY + b"\0",
    "no end": document(KEY, ONE, end=b"\1"),
}


@pytest.mark.parametrize("raw", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
def test_bytes_that_are_no_documents_are_refused_as_a_whole(raw: bytes) -> None:
    rows = node_program(INT)
    good = document(KEY, ONE)
    assert rows.documents.read(good) is not None
    assert rows.documents.read(good + raw) is None
    assert not rows.documents.accepts(raw)


BROKEN: Final[Mapping[str, bytes]] = {
    "a name twice": document(KEY, ONE, ONE),
    "an id twice": document(KEY, KEY, ONE),
    "no id": document(ONE),
    "an id behind": document(ONE, KEY),
    "a skipped name twice": document(KEY, ONE, *[element(16, b"_a", b"\0" * 4)] * 2),
    "a name with an underscore that is not known": document(KEY, ONE, element(16, b"_b", b"\0" * 4)),
    "an unknown name": document(KEY, ONE, element(16, b"w", b"\0" * 4)),
    "an empty name": document(KEY, ONE, element(16, b"", b"\0" * 4)),
    "a name in another case": document(KEY, element(16, b"V", b"\0" * 4)),
    "the name of the id in the model": document(KEY, ONE, element(2, b"id", text(b"k"))),
    "a name without end": document(KEY, b"\x10v", end=b"\0"),
    "a value that is cut": document(KEY, element(16, b"v", b"\0" * 3)),
    "a type that is not known": document(KEY, element(0x14, b"v", b"")),
    "a document that ends early": document(KEY, b"\0", ONE),
    "a skipped text that is not UTF-8": document(KEY, ONE, element(2, b"_note", text(b"\xff"))),
    "a skipped null twice": document(KEY, ONE, *[element(10, b"_note", b"")] * 2),
    "a null twice": document(KEY, *[element(10, b"v", b"")] * 2),
    "a null and a value": document(KEY, element(10, b"v", b""), ONE),
    "a skipped flag of another value": document(KEY, ONE, element(8, b"_note", b"\x02")),
    "a skipped value that is cut": document(KEY, ONE, element(16, b"_note", b"\0" * 3)),
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_a_document_that_is_not_regular_is_declined(raw: bytes) -> None:
    rows = node_program(INT)
    good = document(KEY, ONE)
    assert rows.read(good, raw, good) == [[(1, b"k"), (2, 1)], None, [(1, b"k"), (2, 1)]]


def test_known_names_are_skipped() -> None:
    raw = bson.encode({"_id": "k", "_version": Int64(3), "_note": {"a": [1.5, {}]}, "v": 1, "_a": 7})
    assert node_program(INT).read(raw) == [[(1, b"k"), (2, 1)]]


TEXT_VALUES: Final[Mapping[str, bytes]] = {
    "a length of 0": struct.pack("<i", 0) + b"\0",
    "a length below 0": struct.pack("<i", -2) + b"a\0",
    "a length beyond the end": struct.pack("<i", 40) + b"a\0",
    "a length of all bits": struct.pack("<I", 2**32 - 1) + b"a\0",
    "no zero at the end": struct.pack("<i", 2) + b"ab",
}


@pytest.mark.parametrize("value", TEXT_VALUES.values(), ids=TEXT_VALUES)
def test_a_text_with_a_broken_frame_is_declined(value: bytes) -> None:
    rows = node_program(ANY_TEXT)
    assert rows.read(document(KEY, element(2, b"v", text(b"a")))) != [None]
    assert rows.read(document(KEY, element(2, b"v", value))) == [None]


LISTS: Final[Mapping[str, bytes]] = {
    "a length below 5": struct.pack("<i", 4) + b"\0",
    "a length beyond the end": document(more=40),
    "no zero at the end": document(end=b"\1"),
    "names from 1 on": document(element(2, b"1", text(b"a"))),
    "a name with a zero in front": document(element(2, b"00", text(b"a"))),
    "no names": document(element(2, b"", text(b"a"))),
    "names that are not in order": document(element(2, b"1", text(b"a")), element(2, b"0", text(b"b"))),
    "a name twice": document(element(2, b"0", text(b"a")), element(2, b"0", text(b"b"))),
    "an entry that is cut": document(element(2, b"0", text(b"a")[:-1])),
}


@pytest.mark.parametrize("value", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("is_free", [False, True])
def test_a_list_that_is_not_regular_is_declined(value: bytes, is_free: bool) -> None:  # noqa: FBT001  # both forms
    rows = node_program(FREE if is_free else TEXTS)
    good = document(element(2, b"0", text(b"a")), element(2, b"1", text(b"b")))

    def around(entries: bytes) -> bytes:
        found = document(element(4, b"v", entries)) if is_free else entries
        return document(KEY, element(3 if is_free else 4, b"v", found))

    assert rows.read(around(good)) != [None]
    assert rows.read(around(value)) == [None]


def test_the_names_of_long_lists_are_counted() -> None:
    assert taken(TEXTS, ["a"] * 1234) == b"[" + b",".join([b'"a"'] * 1234) + b"]"


def list_node(rule: ListRule, item: int = 1, **changes: Any) -> Node:  # noqa: ANN401  # of the node
    return Node(kind=NodeKind.LIST, item=item, list_rule=rule, **changes)


def test_lists_are_in_the_order_of_their_rule() -> None:
    values = [[], ["a"], ["a", "b"], ["", "a"], ["b", "a"], ["a", "a"], ["a", "c", "b"], ["z", "ä", "😀"]]
    found = {
        rule: [taken(list_node(rule), value) is not None for value in values]
        for rule in (ListRule.NONE, ListRule.SET, ListRule.RISING, ListRule.DISTINCT)
    }
    assert found == {
        ListRule.NONE: [True] * 8,
        ListRule.SET: [True, True, True, False, False, False, False, True],
        ListRule.RISING: [True, True, True, True, False, False, False, True],
        ListRule.DISTINCT: [True, True, True, True, True, False, True, True],
    }


def test_numbers_in_lists_rise_as_numbers() -> None:
    rising = list_node(ListRule.RISING, 3)
    assert [taken(rising, value, INT) for value in ([9, 10], [10, 9], [9, 9])] == [b"[9,10]", None, None]
    distinct = list_node(ListRule.DISTINCT, 3)
    assert [taken(distinct, value, INT) for value in ([10, 9], [9, 10, 9])] == [b"[10,9]", None]


def test_very_long_lists_in_which_each_value_stands_once_are_left_to_the_models() -> None:
    distinct = list_node(ListRule.DISTINCT, 3)
    assert taken(distinct, list(range(200)), INT) is not None
    assert taken(distinct, list(range(201)), INT) is None


def test_a_list_has_at_most_as_many_entries_as_its_limit() -> None:
    limited = list_node(ListRule.NONE, limit=2)
    assert [taken(limited, ["a"] * count) is not None for count in range(4)] == [True, True, True, False]


def entries(*pairs: tuple[str, int]) -> list[dict[str, object]]:
    return [{"rank": rank, "n": number} for rank, number in pairs]


ENTRY: Final = Node(
    kind=NodeKind.OBJECT,
    fields=(
        NodeField(name="rank", node=4, presence=Presence.REQUIRED),
        NodeField(name="n", node=5, presence=Presence.REQUIRED),
    ),
)


def ordered(*pairs: tuple[str, int], **changes: Any) -> bool:  # noqa: ANN401  # of the node
    node = list_node(ListRule.ORDERED, 3, **changes)
    return taken(node, entries(*pairs), ENTRY, ENUM, INT) is not None


def test_entries_are_in_the_order_of_their_keys() -> None:
    ranked = (SortKey(0, ranked=True), SortKey(1))
    assert ordered(("high", 5), ("mid", 2), ("mid", 3), ("low", 1), keys=ranked)
    assert not ordered(("high", 5), ("low", 1), ("mid", 2), keys=ranked)
    assert not ordered(("mid", 3), ("mid", 2), keys=ranked)
    assert ordered(("mid", 2), ("mid", 2), keys=ranked)


def test_entries_may_be_in_the_order_of_texts_or_descending() -> None:
    by_text = (SortKey(0),)
    assert ordered(("high", 1), ("low", 1), ("mid", 1), keys=by_text)
    assert not ordered(("high", 1), ("mid", 1), ("low", 1), keys=by_text)
    assert ordered(("mid", 1), ("low", 1), ("high", 1), keys=by_text, descending=True)
    assert not ordered(("low", 1), ("mid", 1), keys=by_text, descending=True)


def test_unique_entries_differ_in_the_first_key() -> None:
    by_number = (SortKey(1),)
    assert ordered(("low", 1), ("low", 1), keys=by_number)
    assert ordered(("low", 1), ("low", 2), keys=by_number, unique=True)
    assert not ordered(("low", 1), ("mid", 1), keys=by_number, unique=True)


def test_distinct_entries_differ_wherever_they_stand() -> None:
    by_rank = (SortKey(0, ranked=True),)
    pairs = (("high", 1), ("mid", 2), ("low", 1))
    assert ordered(*pairs, keys=by_rank)
    assert not ordered(*pairs, keys=by_rank, distinct=1)
    assert ordered(*pairs[:2], keys=by_rank, distinct=1)


def test_entries_are_compared_with_the_one_before_also_after_nested_values() -> None:
    # A nested value needs separate memory, which must not overlap the entry that is kept.
    inner = Node(kind=NodeKind.OBJECT, fields=(NodeField(name="x", node=4), NodeField(name="y", node=4)))
    outer = Node(
        kind=NodeKind.OBJECT,
        fields=(
            NodeField(name="n", node=4, presence=Presence.REQUIRED),
            NodeField(name="in", node=5),
            NodeField(name="more", node=6),
        ),
    )
    inners = list_node(ListRule.ORDERED, 5, keys=(SortKey(0),))
    node = list_node(ListRule.ORDERED, 3, keys=(SortKey(0),))
    value = [{"n": number, "in": {"x": 9, "y": 8}, "more": [{"x": 1}, {"x": 2}]} for number in (1, 2, 3)]
    assert taken(node, value, outer, INT, inner, inners) is not None
    assert taken(node, [*value, {"n": 2}], outer, INT, inner, inners) is None
    value[1]["more"] = [{"x": 2}, {"x": 1}]
    assert taken(node, value, outer, INT, inner, inners) is None


DEFAULTS: Final = Node(
    kind=NodeKind.OBJECT,
    fields=(
        NodeField(name="a", node=1, presence=Presence.DEFAULT, default=b'"x"'),
        NodeField(name="b", node=4, presence=Presence.DEFAULT, default=b"7", number=7),
        NodeField(name="c", node=5, presence=Presence.DEFAULT, default=b"true", number=1),
        NodeField(name="d", node=6, presence=Presence.DEFAULT, default=b'"mid"', number=2),
        NodeField(name="e", node=7, presence=Presence.DEFAULT, default=b'["p"]', number=1),
        NodeField(name="f", node=8, presence=Presence.DEFAULT, default=b"0"),
        NodeField(name="g", node=4),
    ),
)


def test_an_absent_value_with_a_default_is_emitted() -> None:
    nodes = (DEFAULTS, INT, FLAG, ENUM, TEXTS, NUMBER)
    (row,) = node_program(Node(kind=NodeKind.LIST, item=3), *nodes).read(
        {"_id": "k", "v": [{}, {"g": 1, "a": "y"}]}, rewritten=True
    )
    assert row is not None
    filled = b'"b":7,"c":true,"d":"mid","e":["p"],"f":0'
    assert row[1] == (5, b'[{"a":"x",%b},{"a":"y",%b,"g":1}]' % (filled, filled))


def test_an_absent_slot_with_a_default_holds_it() -> None:
    fields = (NodeField(name="id", node=1, presence=Presence.REQUIRED), *DEFAULTS.fields)
    model = Node(kind=NodeKind.OBJECT, fields=fields)
    program = program_with([model, ANY_TEXT, ANY_TEXT, ANY_TEXT, INT, FLAG, ENUM, TEXTS, NUMBER])
    assert NativeRows(program, ["", *"abcdefg"]).read({"_id": "k"}, rewritten=True) == [
        [(1, b"k"), (1, b"x"), (2, 7), (3, True), (6, 2), (5, b'["p"]'), (7, 0.0), (0, b"")]
    ]


def test_a_null_that_a_copy_leaves_out_is_read_and_does_not_count_as_accepted() -> None:
    model = Node(kind=NodeKind.OBJECT, fields=(NodeField(name="a", node=1), NodeField(name="b", node=1)))
    found = node_program(model).read({"_id": "k", "v": {"a": None, "b": "x"}}, rewritten=True)
    assert found == [[(1, b"k"), (5, b'{"b":"x"}')]]


def test_a_default_that_is_not_known_makes_the_value_required() -> None:
    for default, node in ((b'"a\\n"', ANY_TEXT), (b"0.5", NUMBER), (b'"2025"', Node(kind=NodeKind.INSTANT))):
        field = NodeField(name="a", node=4, presence=Presence.DEFAULT, default=default)
        model = Node(kind=NodeKind.OBJECT, fields=(field,))
        assert taken(Node(kind=NodeKind.LIST, item=3), [{}], model, node) is None


LEFT_OUT: Final = Node(
    kind=NodeKind.OBJECT,
    fields=(
        NodeField(name="a", node=1, presence=Presence.DEFAULT, left_out=True, default=b'"x"'),
        NodeField(name="b", node=4, presence=Presence.DEFAULT, left_out=True, default=b"7", number=7),
        NodeField(name="c", node=5, presence=Presence.DEFAULT, left_out=True, default=b"[]"),
    ),
)


def test_a_value_that_the_wire_form_omits_is_not_there() -> None:
    node = Node(kind=NodeKind.LIST, item=3)
    assert taken(node, [{}], LEFT_OUT, INT, TEXTS) == b"[{}]"
    full = {"a": "y", "b": 8, "c": ["z"]}
    assert taken(node, [full], LEFT_OUT, INT, TEXTS) == b'[{"a":"y","b":8,"c":["z"]}]'
    for name, default in (("a", "x"), ("b", 7), ("c", [])):
        assert taken(node, [full | {name: default}], LEFT_OUT, INT, TEXTS) is None


def test_a_slot_that_the_wire_form_omits_is_absent() -> None:
    fields = (NodeField(name="id", node=1, presence=Presence.REQUIRED), *LEFT_OUT.fields)
    program = program_with(
        [Node(kind=NodeKind.OBJECT, fields=fields), ANY_TEXT, ANY_TEXT, ANY_TEXT, INT, TEXTS]
    )
    rows = NativeRows(program, ["", *"abc"])
    full: dict[str, object] = {"_id": "k", "a": "y", "b": 8, "c": ["z"]}
    assert rows.read({"_id": "k"}, full) == [
        [(1, b"k"), (0, b""), (0, b""), (0, b"")],
        [(1, b"k"), (1, b"y"), (2, 8), (5, b'["z"]')],
    ]
    assert rows.read(full | {"a": "x"}, full | {"b": 7}, full | {"c": []}) == [None] * 3


def with_identity(identity: Identity) -> NativeRows:
    model = Node(kind=NodeKind.OBJECT, fields=(NodeField(name="a", node=1, presence=Presence.REQUIRED),))
    return NativeRows(program_with([model, ANY_TEXT]), ["a"], identity)


def test_an_id_that_is_no_slot_is_one_that_a_driver_writes() -> None:
    ids = ["a:b", ObjectId(), 1, {}]
    for identity, index in ((Identity.JOINED, 0), (Identity.GENERATED, 1)):
        found = with_identity(identity).read(*({"_id": value, "a": "x"} for value in ids))
        assert [number for number, row in enumerate(found) if row is not None] == [index]
    assert with_identity(Identity.GENERATED).read({"a": "x"}) == [None]
    raw = bson.encode({"_id": "??", "a": "x"})
    assert with_identity(Identity.JOINED).read(raw, raw.replace(b"??", b"\xc3(")) == [[(1, b"x")], None]


def test_markers_stand_behind_the_fields() -> None:
    model = Node(kind=NodeKind.OBJECT, fields=(NodeField(name="id", node=1, presence=Presence.REQUIRED),))
    markers = (MarkerNode("owner", 1, required=True), MarkerNode("seq", 2, required=False))
    program = program_with([model, ANY_TEXT, INT], markers=markers)
    rows = NativeRows(program, ["", "_owner", "seq"])
    owned: dict[str, object] = {"_id": "k", "_owner": "o"}
    good = [[(1, b"k"), (1, b"o"), (2, 5)], [(1, b"k"), (1, b"o"), (0, b"")]]
    assert rows.read(owned | {"seq": Int64(5)}, owned) == good
    assert rows.read({"_id": "k", "seq": 5}, owned | {"_owner": 3}, owned | {"seq": "5"}) == [None] * 3


def test_a_key_that_is_too_long_or_missing_is_left_to_the_models() -> None:
    model = Node(kind=NodeKind.OBJECT, fields=(NodeField(name="id", node=1), NodeField(name="v", node=1)))
    rows = NativeRows(program_with([model, ANY_TEXT], key=(0, 1)), ["", "v"])
    assert rows.read({"_id": "k", "v": "a" * 4096}, {"_id": "k", "v": "a" * 4097}, {"_id": "k"})[1:] == [
        None,
        None,
    ]
    assert rows.read({"_id": "k", "v": "a" * 4096}) != [None]


def test_a_tenant_is_there_unless_it_may_lack() -> None:
    model = Node(kind=NodeKind.OBJECT, fields=(NodeField(name="id", node=1), NodeField(name="v", node=1)))
    for may_lack in (False, True):
        program = program_with([model, ANY_TEXT], tenant=1, tenant_may_lack=may_lack)
        (row,) = NativeRows(program, ["", "v"]).read({"_id": "k"})
        assert (row is not None) is may_lack


LAYOUTS: Final[Mapping[str, tuple[Identity, list[StoredSlot]]]] = {
    "too few slots": (Identity.SLOT, [StoredSlot("")]),
    "too many slots": (Identity.SLOT, [StoredSlot(""), StoredSlot("v"), StoredSlot("w")]),
    "no slot for the id": (Identity.SLOT, [StoredSlot("id"), StoredSlot("v")]),
    "two slots for the id": (Identity.SLOT, [StoredSlot(""), StoredSlot("")]),
    "a slot for an id that is joined": (Identity.JOINED, [StoredSlot(""), StoredSlot("v")]),
}


@pytest.mark.parametrize(("identity", "slots"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_layout_that_does_not_fit_its_program_is_refused(
    identity: Identity, slots: list[StoredSlot]
) -> None:
    program = node_program(INT).program
    with pytest.raises(ValueError, match="ts_documents"):
        NativeDocuments(native_library(), program, identity, slots, versioned=False)


# The bytes of lengths and of types of values, and those that end or continue a text.
TELLING = (0, 1, 2, 3, 4, 5, 7, 8, 9, 0x0A, 0x10, 0x12, 0x30, 0x5F, 0x7F, 0x80, 0xC2, 0xE0, 0xF0, 0xFF)


def test_no_bytes_lead_beyond_their_end(*, long_form: bool) -> None:
    library = native_library()
    buffers = [Buffer(library) for _ in range(3)]
    handles = [buffer.handle for buffer in buffers]
    answers = set[int]()
    for documents, raw in spoilt_documents(library, 20_000 if long_form else 40):
        # A copy of exactly this size, so that a sanitizer sees each byte behind it.
        copy = (ctypes.c_char * len(raw)).from_buffer_copy(raw)
        answers.add(library.ts_read_documents(documents.handle.address, copy, len(raw), *handles))
        for buffer in buffers:
            buffer.clear()
    assert answers == {-1, 0, 1}


def spoilt_documents(library: ctypes.CDLL, each: int) -> Iterator[tuple[NativeDocuments, bytes]]:
    """Yield bytes that begin as documents of an entity may, and what reads those."""
    for name, program in programs().items():
        seeded, documents = Random(name), documents_of(library, program)
        assert documents is not None
        for raw in mutants(program, seeded, each):
            yield documents, spoilt(raw, seeded)


def spoilt(raw: bytes, seeded: Random) -> bytes:
    """Return a document of which some bytes are others, or that ends early."""
    found = bytearray(raw)
    for _ in range(seeded.randrange(8)):
        found[seeded.randrange(len(found))] = seeded.choice((*TELLING, seeded.randrange(256)))
    fate = seeded.randrange(4)
    if fate == 0:
        del found[seeded.randrange(1, len(found)) :]
        found[-1] = 0
    if fate < 3:  # mostly
        # Otherwise the first length makes the reader skip all of it.
        found[:4] = len(found).to_bytes(4, "little")
    return bytes(found)
