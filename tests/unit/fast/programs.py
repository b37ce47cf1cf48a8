"""The reader programs of all entities, as text that a review can read.

``python -m tests.unit.fast.programs`` writes that text again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.parts.entities import MODULES
from twinstore.fast.nodes import LOWER_KEYS, NO_LIMIT, ListRule, NodeKind, TextFlag
from twinstore.fast.program import Program, program_of
from twinstore.models import json_text
from twinstore.testing.entities import KIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.fast.nodes import Node, NodeField, NodeRule

SNAPSHOT: Final = Path(__file__).with_name("programs.txt")
# More texts than an enumeration has: those of the time zones, which differ from host to host.
MANY: Final = 100
ENTITIES: Final = (
    *(entity for module in MODULES for entity in module.catalog.entities),
    *KIT.entities,
)


def programs() -> dict[str, Program]:
    """Return the programs of the entities that have one, by the name of module and entity."""
    found = {f"{entity.module}.{entity.name}": program_of(entity) for entity in ENTITIES}
    return {name: program for name, program in found.items() if isinstance(program, Program)}


def described() -> str:
    """Return all programs, one line for each node and slot."""
    return "\n".join(line for entity in ENTITIES for line in _lines(entity)) + "\n"


def _lines(entity: Entity) -> Iterator[str]:
    program = program_of(entity)
    yield f"== {entity.module}.{entity.name}"
    if not isinstance(program, Program):
        yield f"no program: {program.reason}"
        return
    key = ", ".join(program.slots[slot].name for slot in program.key)
    owner = "-" if program.tenant is None else program.slots[program.tenant].name
    expires = "-" if program.expires is None else program.slots[program.expires].name
    where = " and ".join(
        f"{program.slots[item.slot].name} in {list(item.numbers)}" for item in program.expiry_conditions
    )
    or_none = " or none" if program.tenant_may_lack else ""
    yield f"key {key}; tenant {owner}{or_none}; expires {expires} {where}".rstrip()
    for number, node in enumerate(program.nodes):
        yield f"  {number}{' root' if number == program.root else ''}: {_node(node)}"
        yield from (f"     {_field(field)}" for field in node.fields)
        yield from (f"     rule {_rule(node, rule)}" for rule in node.rules)
    for marker in program.markers:
        yield f"  marker {marker.name}: {marker.node}{' required' if marker.required else ''}"


def _node(node: Node) -> str:
    texts = [item.text.replace("\x01", "?") for item in node.texts]
    parts = [node.kind.name, *filter(None, _bounds(node))]
    if node.kind is NodeKind.TEXT and node.flags:
        parts.append("|".join(flag.name or "" for flag in TextFlag if flag and flag & node.flags))
    if node.kind is NodeKind.JSON and node.flags & LOWER_KEYS:
        parts.append("lower names")
    if texts:
        parts.append("many texts" if len(texts) > MANY else repr(texts))
    if any(item.rank != position for position, item in enumerate(node.texts)) and len(texts) <= MANY:
        parts.append(f"ranks {[item.rank for item in node.texts]}")
    if any(item.number != position for position, item in enumerate(node.texts)) and len(texts) <= MANY:
        parts.append(f"numbers {[item.number for item in node.texts]}")
    return " ".join(parts)


def _bounds(node: Node) -> Iterator[str]:
    if node.kind is NodeKind.INT:
        yield f"{node.low}..{node.high}"
    elif node.high != NO_LIMIT:
        yield f"at most {node.high}"
    if node.kind is NodeKind.MAP:
        yield f"of {node.low} to {node.item}"
    if node.kind is NodeKind.LIST:
        yield f"of {node.item}"
        if node.list_rule is not ListRule.NONE:
            yield node.list_rule.name
        keys = ", ".join(f"{key.field}{' ranked' if key.ranked else ''}" for key in node.keys)
        yield f"by ({keys}){' descending' if node.descending else ''}" if keys else ""
        yield "unique" if node.unique else ""
        yield f"at most {node.limit}" if node.limit != NO_LIMIT else ""
        yield f"distinct {node.distinct}" if node.distinct >= 0 else ""


def _field(field: NodeField) -> str:
    default = f" {field.default.decode()}" if field.default else ""
    number = f" ({field.number})" if field.number else ""
    left_out = " left out" if field.left_out else ""
    return f"{field.name}: {field.node} {field.presence.name}{default}{number}{left_out}"


def _rule(node: Node, rule: NodeRule) -> str:
    operands = [
        f"{'.'.join([node.fields[item.path[0]].name, *map(str, item.path[1:])])}"
        f"{list(item.numbers) if item.numbers else ''}"
        for item in rule.operands
    ]
    return f"{rule.op.name} {' '.join(operands)}"


class Number:
    """A number as it was written."""

    def __init__(self, text: str) -> None:
        """Take what was written."""
        self.text = text


def as_written(text: bytes, node: Node, nodes: Sequence[Node], *, outside: bool = True) -> bytes:
    """Return canonical JSON of a value as native code writes it; nothing but the order of names changes.

    Args:
        text: the JSON.
        node: what the value is.
        nodes: those of its program.
        outside: whether also the names of the value itself are in that order.
    """
    value: object = json.loads(text, parse_int=Number, parse_float=Number)
    names = None if outside or not isinstance(value, dict) else list(value)
    return _shown(value, node, nodes, names)


def _shown(
    value: object, node: Node | None, nodes: Sequence[Node], names: Sequence[str] | None = None
) -> bytes:
    if isinstance(value, Number):
        return value.text.encode()
    if isinstance(value, list):
        item = None if node is None or node.item < 0 else nodes[node.item]
        return b"[%b]" % b",".join(_shown(entry, item, nodes) for entry in value)
    if not isinstance(value, dict):
        return json_text.dumps(value)
    inner: dict[str, Node] = {}
    if node is not None and node.kind is NodeKind.OBJECT:
        names = names or sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        inner = {field.name: nodes[field.node] for field in node.fields}
    elif node is not None and node.kind is NodeKind.MAP:
        inner = dict.fromkeys(value, nodes[node.item])
    members = [
        json_text.dumps(name) + b":" + _shown(value[name], inner.get(name), nodes) for name in names or value
    ]
    return b"{%b}" % b",".join(members)


if __name__ == "__main__":
    SNAPSHOT.write_text(described(), "utf-8")
