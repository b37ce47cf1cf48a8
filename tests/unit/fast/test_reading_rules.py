"""The rules between fields, as native code evaluates them: for all values the same as the models do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final, cast

import pytest

from tests.unit.fast.hand_made import ANY_TEXT, NativeRows, program_with
from twinstore.fast.nodes import Node, NodeField, NodeKind, NodeRule, NodeText, Operand, Presence, RuleOp

START: Final = datetime(2025, 1, 1, tzinfo=UTC)
INT, FLAG, INSTANT, ENUM, LIST, INNER, INNERS = range(2, 9)
NODES: Final = (
    Node(kind=NodeKind.INT, low=-(2**63), high=2**63 - 1),
    Node(kind=NodeKind.FLAG),
    Node(kind=NodeKind.INSTANT),
    Node(kind=NodeKind.ENUM, texts=(NodeText("low"), NodeText("mid", 1), NodeText("high", 2))),
    Node(kind=NodeKind.LIST, item=1),
    Node(kind=NodeKind.OBJECT, fields=(NodeField(name="p", node=INT), NodeField(name="q", node=ENUM))),
    Node(kind=NodeKind.LIST, item=INNER),
)
NUMBERS: Final = (None, 0, 1, 2)
INSTANTS: Final = (None, *(START + timedelta(milliseconds=step) for step in range(3)))
MEMBERS: Final = (None, "low", "mid", "high")
TEXTS: Final = (None, "", "a", "b")
LISTS: Final = ((), ("a",), ("b", "a"))
OBJECTS: Final[tuple[dict[str, object], ...]] = ({}, {"p": 0}, {"p": 1, "q": "low"}, {"q": "low"})

Kept = Callable[..., bool]
# The rule, the nodes of the fields a, b and c, the values of each, and what the rule means.
RULES: Final[dict[str, tuple[RuleOp, tuple[Operand, ...], tuple[int, ...], tuple[Any, ...], Kept]]] = {
    "field at most": (
        RuleOp.FIELD_AT_MOST,
        (Operand((1,)), Operand((2,))),
        (INT, INT),
        (NUMBERS[1:], NUMBERS[1:]),
        lambda a, b: a <= b,
    ),
    "sum at most": (
        RuleOp.SUM_AT_MOST,
        (Operand((1,)), Operand((2,)), Operand((3,))),
        (INT, INT, INT),
        ((-1, 0, 3, 2**63 - 1), (-(2**63), 1, 2, 2**63 - 1), (0, 1, 2, 2**63 - 1)),
        # A sum beyond 64 bits is left to the models.
        lambda a, b, c: b + c <= a,
    ),
    "length at most": (
        RuleOp.LENGTH_AT_MOST,
        (Operand((1,)), Operand((2,))),
        (LIST, INT),
        (LISTS, NUMBERS[1:]),
        lambda a, b: len(a) <= b,
    ),
    "not before": (
        RuleOp.NOT_BEFORE,
        (Operand((1,)), Operand((2,)), Operand((3,))),
        (INSTANT, INSTANT, INSTANT),
        (INSTANTS, INSTANTS, INSTANTS),
        lambda a, b, c: a is None or all(it is None or a >= it for it in (b, c)),
    ),
    "present exactly in": (
        RuleOp.PRESENT_EXACTLY_IN,
        (Operand((1,)), Operand((2,), (0, 2))),
        (1, ENUM),
        (TEXTS, MEMBERS),
        lambda a, b: (a is not None) is (b in {"low", "high"}),
    ),
    "present in": (
        RuleOp.PRESENT_IN,
        (Operand((1,)), Operand((2,), (1,))),
        (1, ENUM),
        (TEXTS, MEMBERS),
        lambda a, b: a is not None or b != "mid",
    ),
    "absent in": (
        RuleOp.ABSENT_IN,
        (Operand((1,)), Operand((2,), (0, 1))),
        (1, ENUM),
        (TEXTS, MEMBERS),
        lambda a, b: a is None or b not in {"low", "mid"},
    ),
    "present exactly when": (
        RuleOp.PRESENT_EXACTLY_WHEN,
        (Operand((1,)), Operand((2,))),
        (1, FLAG),
        (TEXTS, (False, True)),
        lambda a, b: (a is not None) is b,
    ),
    "all or none": (
        RuleOp.ALL_OR_NONE,
        (Operand((1,)), Operand((2,)), Operand((3,))),
        (1, INT, INSTANT),
        (TEXTS, NUMBERS, INSTANTS),
        lambda *values: len({value is None for value in values}) == 1,
    ),
    "requires entry": (
        RuleOp.REQUIRES_ENTRY,
        (Operand((1,), (0,)), Operand((2,)), Operand((1,), (1,)), Operand((3,))),
        (ENUM, LIST, LIST),
        (MEMBERS, LISTS, LISTS),
        lambda a, b, c: bool((a != "low" or b) and (a != "mid" or c)),
    ),
    "equal or absent, texts": (
        RuleOp.EQUAL_OR_ABSENT,
        (Operand((1,)), Operand((2,))),
        (1, ENUM),
        ((*TEXTS, "mid"), MEMBERS),
        lambda a, b: a is None or a == b,
    ),
    "equal or absent, numbers": (
        RuleOp.EQUAL_OR_ABSENT,
        (Operand((1,)), Operand((2,))),
        (INT, INT),
        (NUMBERS, NUMBERS),
        lambda a, b: a is None or a == b,
    ),
    "equal exactly in": (
        RuleOp.EQUAL_EXACTLY_IN,
        (Operand((1,), (2,)), Operand((2,), (0, 1))),
        (ENUM, ENUM),
        (MEMBERS, MEMBERS),
        lambda a, b: (a == "high") is (b in {"low", "mid"}),
    ),
    "first of": (
        RuleOp.FIRST_OF,
        (Operand((1,)), Operand((2,))),
        (1, LIST),
        (TEXTS, LISTS),
        lambda a, b: a == (b[0] if b else None),
    ),
    "first of, objects": (
        RuleOp.FIRST_OF,
        (Operand((1,)), Operand((2,))),
        (INNER, INNERS),
        ((None, *OBJECTS), ((), *((each, {}) for each in OBJECTS))),
        lambda a, b: a == (b[0] if b else None),
    ),
    "a path": (
        RuleOp.FIELD_AT_MOST,
        (Operand((1, 0)), Operand((2,))),
        (INNER, INT),
        (({"p": 0}, {"p": 2}), NUMBERS[1:]),
        lambda a, b: a["p"] <= b,
    ),
    "a path that may lead nowhere": (
        RuleOp.PRESENT_EXACTLY_IN,
        (Operand((1, 0)), Operand((2, 1), (1,))),
        (INNER, INNER),
        ((None, {}, {"p": 0}), (None, {}, {"q": "mid"}, {"q": "low"})),
        lambda a, b: ("p" in (a or {})) is ((b or {}).get("q") == "mid"),
    ),
}


@pytest.mark.parametrize(("op", "operands", "nodes", "values", "kept"), RULES.values(), ids=RULES)
def test_a_rule_means_the_same_as_in_python(
    op: RuleOp,
    operands: tuple[Operand, ...],
    nodes: tuple[int, ...],
    values: tuple[tuple[object, ...], ...],
    kept: Kept,
) -> None:
    names = "abc"[: len(nodes)]
    fields = (
        NodeField(name="id", node=1, presence=Presence.REQUIRED),
        *(NodeField(name=name, node=node) for name, node in zip(names, nodes, strict=True)),
    )
    combinations = list(product(*values))
    documents = [
        {"_id": "k"} | {name: item for name, item in zip(names, each, strict=True) if item is not None}
        for each in combinations
    ]
    answers = list[list[bool]]()
    for rules in ((NodeRule(op, operands),), ()):
        model = Node(kind=NodeKind.OBJECT, fields=fields, rules=rules)
        rows = NativeRows(program_with([model, ANY_TEXT, *NODES]), ["", *names])
        answers.append([row is not None for row in rows.read(*documents)])
    expected = [kept(*each) for each in combinations]
    overflows = [
        op is RuleOp.SUM_AT_MOST and not -(2**63) <= sum(cast("tuple[int, ...]", each[1:])) < 2**63
        for each in combinations
    ]
    assert answers[0] == [wanted and not beyond for wanted, beyond in zip(expected, overflows, strict=True)]
    # Without the rule all of them are taken, and the values are such that it matters.
    assert all(answers[1])
    assert len(set(expected)) == 2


def test_rules_see_the_defaults() -> None:
    fields = (
        NodeField(name="id", node=1, presence=Presence.REQUIRED),
        NodeField(name="a", node=INT, presence=Presence.DEFAULT, default=b"5", number=5),
        NodeField(name="b", node=INT, presence=Presence.DEFAULT, left_out=True, default=b"6", number=6),
        NodeField(name="c", node=ENUM, presence=Presence.DEFAULT, default=b'"mid"', number=1),
        NodeField(name="d", node=1),
    )
    rules = (
        NodeRule(RuleOp.FIELD_AT_MOST, (Operand((1,)), Operand((2,)))),
        NodeRule(RuleOp.PRESENT_EXACTLY_IN, (Operand((4,)), Operand((3,), (1,)))),
    )
    model = Node(kind=NodeKind.OBJECT, fields=fields, rules=rules)
    rows = NativeRows(program_with([model, ANY_TEXT, *NODES]), ["", *"abcd"])
    taken = {"_id": "k", "d": "x"}
    found = rows.read(
        taken,
        taken | {"a": 6},
        taken | {"a": 7},
        taken | {"b": 4},
        {"_id": "k"},
        taken | {"c": "low"},
        rewritten=True,
    )
    assert [row is not None for row in found] == [True, True, False, False, False, False]


def test_nothing_is_known_inside_of_a_default() -> None:
    inner = NodeField(name="a", node=INNER, presence=Presence.DEFAULT, default=b'{"p":1}')
    fields = (NodeField(name="id", node=1, presence=Presence.REQUIRED), inner)
    for rules, expected in (((), True), ((NodeRule(RuleOp.ALL_OR_NONE, (Operand((1, 0)),)),), False)):
        model = Node(kind=NodeKind.OBJECT, fields=fields, rules=rules)
        (row,) = NativeRows(program_with([model, ANY_TEXT, *NODES]), ["", "a"]).read(
            {"_id": "k"}, rewritten=True
        )
        assert (row is not None) is expected


def test_the_first_entry_of_a_default_is_not_known() -> None:
    fields = (
        NodeField(name="id", node=1, presence=Presence.REQUIRED),
        NodeField(name="a", node=1),
        NodeField(name="b", node=LIST, presence=Presence.DEFAULT, default=b'[""]', number=1),
    )
    rules = (NodeRule(RuleOp.FIRST_OF, (Operand((1,)), Operand((2,)))),)
    model = Node(kind=NodeKind.OBJECT, fields=fields, rules=rules)
    rows = NativeRows(program_with([model, ANY_TEXT, *NODES]), ["", "a", "b"])
    answers = rows.read({"_id": "k", "a": ""}, {"_id": "k", "a": "", "b": [""]})
    assert [row is not None for row in answers] == [False, True]
