"""The order in which native code writes names of JSON: those of models as PostgreSQL keeps them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from twinstore.fast.nodes import NodeKind
from twinstore.models import json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.fast.nodes import Node

__all__ = ["as_written"]


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
