"""Programs of which one check is removed, each with what was removed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from twinstore.fast.nodes import (
    NO_LIMIT,
    ListRule,
    Node,
    NodeField,
    NodeKind,
    NodeRule,
    Operand,
    Presence,
    RuleOp,
    TextFlag,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.fast.program import Program

__all__ = ["weakened"]

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
# Of these a rule needs so many operands at least.
LEAST_OPERANDS: Final = {RuleOp.SUM_AT_MOST: 2, RuleOp.NOT_BEFORE: 2, RuleOp.ALL_OR_NONE: 2}


def weakened(program: Program) -> Iterator[tuple[str, Program]]:
    """Yield programs without one of the checks of a program."""
    for number, node in enumerate(program.nodes):
        place = f"{number} {node.kind.name}"
        for what, other in _weaker(node):
            nodes = (*program.nodes[:number], other, *program.nodes[number + 1 :])
            slots = tuple(
                replace(slot, kind=other.kind) if slot.node == number else slot for slot in program.slots
            )
            yield f"{place} {what}", replace(program, nodes=nodes, slots=slots)
    for number, marker in enumerate(program.markers):
        if marker.required:
            markers = list(program.markers)
            markers[number] = replace(marker, required=False)
            yield f"marker {marker.name} required", replace(program, markers=tuple(markers))


def _weaker(node: Node) -> Iterator[tuple[str, Node]]:
    match node.kind:
        case NodeKind.TEXT:
            yield from _weaker_text(node)
        case NodeKind.INT:
            if node.low > INT64_MIN:
                yield "least", replace(node, low=INT64_MIN)
            if node.high < INT64_MAX:
                yield "most", replace(node, high=INT64_MAX)
        case NodeKind.ENUM | NodeKind.CONST:
            # What the fuzz tries too.
            others = [replace(text, text=text.text.upper()) for text in node.texts]
            yield "texts", replace(node, texts=(*node.texts[node.kind is NodeKind.CONST :], *others))
        case NodeKind.OBJECT:
            yield from _weaker_object(node)
        case NodeKind.LIST:
            yield from _weaker_list(node)
        case NodeKind.JSON if node.flags:
            yield "lower names", replace(node, flags=0)
        case _:
            pass


def _weaker_text(node: Node) -> Iterator[tuple[str, Node]]:
    for flag in TextFlag(node.flags):
        texts = () if flag in {TextFlag.TEMPLATE, TextFlag.LISTED} else node.texts
        yield flag.name or "", replace(node, flags=node.flags & ~flag, texts=texts)
    if node.high != NO_LIMIT:
        yield "length", replace(node, high=NO_LIMIT)


def _weaker_object(node: Node) -> Iterator[tuple[str, Node]]:
    for number, field in enumerate(node.fields):
        for what, other in _weaker_field(field):
            fields = (*node.fields[:number], other, *node.fields[number + 1 :])
            yield f"{field.name} {what}", replace(node, fields=fields)
    for number, rule in enumerate(node.rules):
        for what, rules in (("", ()), *((what, (other,)) for what, other in _weaker_rule(rule))):
            kept = (*node.rules[:number], *rules, *node.rules[number + 1 :])
            yield f"rule {number} {rule.op.name} {what}", replace(node, rules=kept)


def _weaker_field(field: NodeField) -> Iterator[tuple[str, NodeField]]:
    if field.presence is Presence.REQUIRED:
        yield "required", replace(field, presence=Presence.OPTIONAL)
    if field.presence is Presence.DEFAULT and not field.left_out:
        yield "default", NodeField(name=field.name, node=field.node)
    if field.left_out:
        yield "left out", replace(field, left_out=False)


def _weaker_rule(rule: NodeRule) -> Iterator[tuple[str, NodeRule]]:
    """Yield a rule that looks at one thing less."""
    least = LEAST_OPERANDS.get(rule.op)
    for number in range(1, len(rule.operands)) if least is not None and len(rule.operands) > least else ():
        operands = (*rule.operands[:number], *rule.operands[number + 1 :])
        yield f"operand {number}", NodeRule(rule.op, operands)
    for number, operand in enumerate(rule.operands):
        for position in operand.numbers if len(operand.numbers) > 1 else ():
            fewer = Operand(operand.path, tuple(item for item in operand.numbers if item != position))
            operands = (*rule.operands[:number], fewer, *rule.operands[number + 1 :])
            yield f"member {position}", NodeRule(rule.op, operands)


def _weaker_list(node: Node) -> Iterator[tuple[str, Node]]:
    if node.list_rule is not ListRule.NONE:
        yield node.list_rule.name, replace(node, list_rule=ListRule.NONE, keys=(), unique=False, distinct=-1)
    if node.unique:
        yield "unique", replace(node, unique=False)
    if node.distinct >= 0:
        yield "distinct", replace(node, distinct=-1)
    if node.limit >= 0:
        yield "limit", replace(node, limit=NO_LIMIT)
    if node.list_rule is ListRule.ORDERED:
        yield "direction", replace(node, descending=not node.descending)
    for number in range(1, len(node.keys)):
        yield f"key {number}", replace(node, keys=node.keys[:number])
    if any(key.ranked for key in node.keys):
        yield "ranks", replace(node, keys=tuple(replace(key, ranked=False) for key in node.keys))
