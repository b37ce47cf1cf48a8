"""Programs, layouts and buffers that are broken, or too large: refused, never believed."""

from __future__ import annotations

import ctypes
import random
import struct
import threading
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest

from tests.unit.fast.hand_made import ANY_TEXT, native_library, node_program, program_with
from twinstore.fast.library import Buffer
from twinstore.fast.nodes import (
    ExpiryCondition,
    ListRule,
    MarkerNode,
    Node,
    NodeField,
    NodeKind,
    NodeRule,
    NodeText,
    Operand,
    Presence,
    RuleOp,
    SortKey,
    TextFlag,
)
from twinstore.fast.program import encoded, program_handle
from twinstore.fast.records import Identity, StoredSlot, read_layout_of

if TYPE_CHECKING:
    from twinstore.fast.program import Program

INT: Final = Node(kind=NodeKind.INT, low=0, high=9)
ENUM: Final = Node(kind=NodeKind.ENUM, texts=(NodeText("a"), NodeText("b", 1)))
INSTANT: Final = Node(kind=NodeKind.INSTANT)
KEY: Final = NodeField(name="id", node=1, presence=Presence.REQUIRED)


def model(*fields: NodeField, **changes: Any) -> Node:  # noqa: ANN401  # of the node
    return Node(kind=NodeKind.OBJECT, fields=(KEY, *fields), **changes)


def whole_program() -> Program:
    """Return a program that has something of everything."""
    fields = (
        NodeField(name="n", node=2, presence=Presence.DEFAULT, default=b"0"),
        NodeField(name="list", node=5, left_out=True, default=b"[]"),
        NodeField(name="map", node=7),
        NodeField(name="gone", node=4),
    )
    rules = (NodeRule(RuleOp.LENGTH_AT_MOST, (Operand((2,)), Operand((1,)))),)
    entry = Node(
        kind=NodeKind.OBJECT,
        fields=(NodeField(name="e", node=3, presence=Presence.REQUIRED),),
        rules=(NodeRule(RuleOp.EQUAL_EXACTLY_IN, (Operand((0,), (1,)), Operand((0,), (1,)))),),
    )
    nodes = (
        model(*fields, rules=rules),
        ANY_TEXT,
        INT,
        ENUM,
        INSTANT,
        Node(
            kind=NodeKind.LIST,
            item=6,
            list_rule=ListRule.ORDERED,
            keys=(SortKey(0, ranked=True),),
            distinct=0,
        ),
        entry,
        Node(kind=NodeKind.MAP, low=1, item=8),
        Node(kind=NodeKind.JSON),
    )
    markers = (MarkerNode("owner", 1, required=True), MarkerNode("state", 3, required=False))
    return program_with(
        nodes,
        markers=markers,
        tenant=5,
        expires=4,
        expiry_conditions=(ExpiryCondition(6, (1,)), ExpiryCondition(2, ())),
    )


def is_taken(data: bytes) -> bool:
    library = native_library()
    program_handle(library, program_with([model(), ANY_TEXT]))  # declares the functions
    made = library.ts_program_new(data, len(data))
    library.ts_program_free(made)
    return made is not None


def test_a_program_that_is_cut_or_goes_on_is_refused() -> None:
    data = encoded(whole_program())
    assert is_taken(data)
    assert not any(is_taken(data[:size]) for size in range(len(data)))
    assert not is_taken(data + b"\0" * 8)
    assert not is_taken(struct.pack("<q", 2) + data[8:])


def broken_nodes(**changes: Any) -> Node:  # noqa: ANN401  # of the node
    return Node(**({"kind": NodeKind.LIST, "item": 1} | changes))


def rule(op: RuleOp, *operands: Operand) -> Node:
    fields = (NodeField(name="n", node=3), NodeField(name="e", node=4), NodeField(name="s", node=2))
    return model(*fields, rules=(NodeRule(op, operands),))


MALFORMED: Final[dict[str, Program]] = {
    "no node": program_with([]),
    "a root that is no node": program_with([model(), ANY_TEXT], root=2),
    "a root that is a text": program_with([model(), ANY_TEXT], root=1),
    "a field of no node": program_with([model(NodeField(name="v", node=2)), ANY_TEXT]),
    "a name with a quote": program_with([model(NodeField(name='v"', node=1)), ANY_TEXT]),
    "no key": program_with([model(), ANY_TEXT], key=()),
    "a key that is no slot": program_with([model(), ANY_TEXT], key=(1,)),
    "a key that is an instant": program_with(
        [model(NodeField(name="v", node=2)), ANY_TEXT, INSTANT], key=(1,)
    ),
    "a tenant that is a number": program_with([model(NodeField(name="v", node=2)), ANY_TEXT, INT], tenant=1),
    "a removal that is a number": program_with(
        [model(NodeField(name="v", node=2)), ANY_TEXT, INT], expires=1
    ),
    "a condition on no slot": program_with([model(), ANY_TEXT], expiry_conditions=(ExpiryCondition(1, ()),)),
    "a condition on a text": program_with([model(), ANY_TEXT], expiry_conditions=(ExpiryCondition(0, (1,)),)),
    "a marker of no node": program_with([model(), ANY_TEXT], markers=(MarkerNode("m", 2, required=False),)),
    "a list of no node": program_with([model(), ANY_TEXT, broken_nodes(item=3)]),
    "a list of nothing": program_with([model(), ANY_TEXT, broken_nodes(item=-1)]),
    "a set of instants": program_with(
        [model(), ANY_TEXT, broken_nodes(item=3, list_rule=ListRule.SET), INSTANT]
    ),
    "an order of texts": program_with(
        [model(), ANY_TEXT, broken_nodes(list_rule=ListRule.ORDERED, keys=(SortKey(0),))]
    ),
    "an order by no field": program_with(
        [model(), ANY_TEXT, broken_nodes(item=0, list_rule=ListRule.ORDERED, keys=(SortKey(1),))]
    ),
    "an order by the rank of a text": program_with(
        [model(), ANY_TEXT, broken_nodes(item=0, list_rule=ListRule.ORDERED, keys=(SortKey(0, ranked=True),))]
    ),
    "an order without keys": program_with(
        [model(), ANY_TEXT, broken_nodes(item=0, list_rule=ListRule.ORDERED)]
    ),
    "a map without names": program_with([model(), ANY_TEXT, broken_nodes(kind=NodeKind.MAP, low=-1)]),
    "a map named by numbers": program_with([model(), ANY_TEXT, broken_nodes(kind=NodeKind.MAP, low=3), INT]),
    "an enumeration of nothing": program_with([model(), ANY_TEXT, Node(kind=NodeKind.ENUM)]),
    "an enumeration of too many": program_with(
        [model(), ANY_TEXT, Node(kind=NodeKind.ENUM, texts=tuple(NodeText(str(item)) for item in range(257)))]
    ),
    "a constant of two texts": program_with([model(), ANY_TEXT, Node(kind=NodeKind.CONST, texts=ENUM.texts)]),
    "a flag of texts that is not known": program_with([model(), Node(kind=NodeKind.TEXT, flags=2048)]),
    "a template without a text": program_with([model(), Node(kind=NodeKind.TEXT, flags=TextFlag.TEMPLATE)]),
    "a list of texts that falls": program_with(
        [model(), Node(kind=NodeKind.TEXT, flags=TextFlag.LISTED, texts=(NodeText("b"), NodeText("a")))]
    ),
    **{
        f"a rule with {name}": program_with([rule(op, *operands), ANY_TEXT, broken_nodes(), INT, ENUM])
        for name, op, operands in (
            ("no operand", RuleOp.ALL_OR_NONE, ()),
            ("an empty path", RuleOp.ALL_OR_NONE, (Operand(()),)),
            ("no such field", RuleOp.ALL_OR_NONE, (Operand((4,)),)),
            ("a path through a text", RuleOp.ALL_OR_NONE, (Operand((0, 0)),)),
            ("one operand too few", RuleOp.FIELD_AT_MOST, (Operand((1,)),)),
            ("one operand too many", RuleOp.FIELD_AT_MOST, (Operand((1,)),) * 3),
            ("a text as a number", RuleOp.FIELD_AT_MOST, (Operand((0,)), Operand((1,)))),
            ("a number as a limit of a text", RuleOp.LENGTH_AT_MOST, (Operand((0,)), Operand((1,)))),
            ("a text as an enumeration", RuleOp.PRESENT_IN, (Operand((1,)), Operand((0,), (0,)))),
            ("half an entry", RuleOp.REQUIRES_ENTRY, (Operand((2,), (0,)),) * 3),
            ("a text and a number", RuleOp.EQUAL_OR_ABSENT, (Operand((0,)), Operand((1,)))),
            ("a list that is compared", RuleOp.EQUAL_OR_ABSENT, (Operand((3,)), Operand((3,)))),
            ("the first of a text", RuleOp.FIRST_OF, (Operand((0,)), Operand((0,)))),
        )
    },
}


@pytest.mark.parametrize("program", MALFORMED.values(), ids=MALFORMED)
def test_a_program_that_does_not_fit_together_is_refused(program: Program) -> None:
    assert not is_taken(encoded(program))


def test_the_programs_above_are_refused_for_what_their_names_say() -> None:
    fields = (NodeField(name="v", node=2), NodeField(name="e", node=3))
    assert is_taken(encoded(program_with([model(*fields), ANY_TEXT, INT, ENUM])))
    both = (Operand((0,)), Operand((2,)))
    assert is_taken(
        encoded(program_with([rule(RuleOp.EQUAL_OR_ABSENT, *both), ANY_TEXT, broken_nodes(), INT, ENUM]))
    )


def test_changed_programs_are_refused_or_work_within_their_bounds() -> None:
    seeded = random.Random(13)  # no secret
    library = native_library()
    data = encoded(whole_program())
    node_program(INT)
    layout = read_layout_of(
        Identity.SLOT,
        [StoredSlot(""), *map(StoredSlot, ("n", "list", "map", "gone", "_owner", "_state"))],
        versioned=True,
    )
    document = bson.encode(
        {
            "_id": "k",
            "n": 3,
            "list": [{"e": "a"}, {"e": "b"}],
            "map": {"a": {"b": 1}},
            "_owner": "o",
            "_state": "b",
        }
    )
    rows, places, declined = (Buffer(library) for _ in range(3))
    used = 0
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(seeded.randrange(1, 4)):
            at = seeded.randrange(len(data) // 8) * 8
            changed[at : at + 8] = struct.pack(
                "<q", seeded.choice((-1, 0, 1, 2, 3, 7, 8, 255, 2**31, 2**63 - 1))
            )
        program = library.ts_program_new(bytes(changed), len(changed))
        documents = library.ts_documents_new(program, layout, len(layout)) if program else None
        if documents:
            used += 1
            library.ts_read_documents(
                documents, document, len(document), rows.handle, places.handle, declined.handle
            )
        library.ts_documents_free(documents)
        library.ts_program_free(program)
    assert used > 100


def test_a_buffer_that_has_no_memory_stays_so_until_it_is_cleared() -> None:
    library = native_library()

    class Bytes(ctypes.Structure):
        _fields_ = (
            ("bytes", ctypes.c_void_p),
            ("size", ctypes.c_size_t),
            ("room", ctypes.c_size_t),
            ("failed", ctypes.c_int),
        )

    rows = node_program(INT)
    document = bson.encode({"_id": "k", "v": 1})
    for which in range(3):
        buffers = [Buffer(library) for _ in range(3)]
        inside = Bytes.from_address(buffers[which].handle or 0)
        # The bytes to add do not fit after so many.
        real, inside.size, inside.room = inside.size, 2**64 - 9, 2**64 - 9
        handles = [buffer.handle for buffer in buffers]
        address = rows.documents.handle.address
        answer = library.ts_read_documents(address, document + bson.encode({}), len(document) + 5, *handles)
        inside.size = inside.room = real
        assert answer in {-1, -2}
        if which:
            assert answer == -2
            assert library.ts_buffer_failed(handles[which])
            assert library.ts_read_documents(address, document, len(document), *handles) == -2
        buffers[which].clear()
        assert library.ts_read_documents(address, document, len(document), *handles) == 1


def test_every_thread_may_use_the_same_documents() -> None:
    rows = node_program(Node(kind=NodeKind.JSON))
    documents = [{"_id": str(number), "v": {"a": [number, {"b": str(number)}]}} for number in range(200)]
    expected = rows.read(*documents)
    found = list[object]()
    threads = [threading.Thread(target=lambda: found.append(rows.read(*documents))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
