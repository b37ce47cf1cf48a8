"""The rules of a model as a reader program has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore import modelrules
from twinstore.fast.constraints import UnrecognisedError
from twinstore.fast.nodes import NodeKind, NodeRule, Operand, RuleOp

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

    from twinstore.fast.nodes import Node
    from twinstore.modelrules import ModelRule

__all__ = ["COUNTED", "Seen", "rule_node", "seen_by"]

Wanted = frozenset[NodeKind]
NUMBER: Final[Wanted] = frozenset({NodeKind.INT})
LISTS: Final[Wanted] = frozenset({NodeKind.LIST})
INSTANTS: Final[Wanted] = frozenset({NodeKind.INSTANT})
ENUMS: Final[Wanted] = frozenset({NodeKind.ENUM})
FLAGS: Final[Wanted] = frozenset({NodeKind.FLAG})
TEXTS: Final[Wanted] = frozenset({NodeKind.TEXT})
ANY: Final[Wanted] = frozenset(NodeKind)
# Of these a rule sees the default by its number alone.
COUNTED: Final[Wanted] = NUMBER | LISTS | ENUMS | FLAGS
KNOWN: Final = frozenset(
    {
        modelrules.FieldAtMost,
        modelrules.SumAtMost,
        modelrules.LengthAtMost,
        modelrules.NotBefore,
        modelrules.PresentExactlyIn,
        modelrules.PresentIn,
        modelrules.AbsentIn,
        modelrules.PresentExactlyWhen,
        modelrules.AllOrNone,
        modelrules.RequiresEntry,
        modelrules.EqualOrAbsent,
        modelrules.EqualExactlyIn,
    }
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A field that a rule looks at: its dotted Python name, and of which kinds it may be.

    ``members`` are those of its enumeration that the rule names.
    """

    name: str
    kinds: Wanted
    members: tuple[Enum, ...] = ()


Sight = tuple[RuleOp, tuple[Seen, ...]]


def seen_by(rule: ModelRule) -> Sight:
    """Return the kind of a rule and what it looks at, in the order of ``NodeRule``.

    Raises:
        UnrecognisedError: no program evaluates such a rule.
    """
    # By the very class: one below it may mean something else.
    if type(rule) not in KNOWN:
        raise UnrecognisedError(f"has the rule {rule.code} ({type(rule).__name__}), which no program knows")
    return _seen_presence(rule) or _seen_numbers(rule) or _seen_values(rule)


def _seen_numbers(rule: ModelRule) -> Sight | None:
    match rule:
        case modelrules.FieldAtMost():
            return RuleOp.FIELD_AT_MOST, (Seen(rule.field, NUMBER), Seen(rule.limit, NUMBER))
        case modelrules.SumAtMost():
            parts = tuple(Seen(name, NUMBER) for name in rule.fields)
            return RuleOp.SUM_AT_MOST, (Seen(rule.limit, NUMBER), *parts)
        case modelrules.LengthAtMost():
            return RuleOp.LENGTH_AT_MOST, (Seen(rule.field, LISTS), Seen(rule.limit, NUMBER))
        case _:
            return None


def _seen_values(rule: ModelRule) -> Sight:
    match rule:
        case modelrules.NotBefore():
            earlier = tuple(Seen(name, INSTANTS) for name in rule.earlier)
            return RuleOp.NOT_BEFORE, (Seen(rule.field, INSTANTS), *earlier)
        case modelrules.RequiresEntry():
            pairs = ((Seen(rule.by, ENUMS, (member,)), Seen(name, LISTS)) for member, name in rule.entries)
            return RuleOp.REQUIRES_ENTRY, tuple(seen for pair in pairs for seen in pair)
        case modelrules.EqualOrAbsent():
            return RuleOp.EQUAL_OR_ABSENT, (Seen(rule.field, TEXTS), Seen(rule.other, TEXTS))
        case modelrules.EqualExactlyIn():
            field = Seen(rule.field, ENUMS, (rule.value,))
            return RuleOp.EQUAL_EXACTLY_IN, (field, Seen(rule.by, ENUMS, rule.members))
        case _:
            raise AssertionError(rule)  # met by programmers only


def _seen_presence(rule: ModelRule) -> Sight | None:
    match rule:
        case modelrules.PresentExactlyIn():
            op = RuleOp.PRESENT_EXACTLY_IN
        case modelrules.PresentIn():
            op = RuleOp.PRESENT_IN
        case modelrules.AbsentIn():
            op = RuleOp.ABSENT_IN
        case modelrules.PresentExactlyWhen():
            return RuleOp.PRESENT_EXACTLY_WHEN, (Seen(rule.field, ANY), Seen(rule.flag, FLAGS))
        case modelrules.AllOrNone():
            return RuleOp.ALL_OR_NONE, tuple(Seen(name, ANY) for name in rule.fields)
        case _:
            return None
    return op, (Seen(rule.field, ANY), Seen(rule.by, ENUMS, rule.members))


def rule_node(rule: ModelRule, find: Callable[[str], tuple[tuple[int, ...], Node]]) -> NodeRule:
    """Return a rule as a program has it.

    Args:
        rule: a rule of a model.
        find: returns the path of a dotted Python name, and the node at its end.

    Raises:
        UnrecognisedError: no program evaluates such a rule, or not about such fields.
    """
    op, seen = seen_by(rule)
    found = [(item, *find(item.name)) for item in seen]
    for item, _, node in found:
        if node.kind not in item.kinds:
            raise UnrecognisedError(f"has the rule {rule.code}, which no program evaluates of {item.name}")
    return NodeRule(op, tuple(Operand(path, _positions(item, node)) for item, path, node in found))


def _positions(seen: Seen, node: Node) -> tuple[int, ...]:
    texts = [item.text for item in node.texts]
    return tuple(texts.index(member.value) for member in seen.members)
