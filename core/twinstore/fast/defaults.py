"""What a reader program does where a field is not there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pydantic_core import PydanticUndefined

from twinstore import jsontext
from twinstore.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.fast.constraints import UnrecognisedError
from twinstore.fast.nodes import NodeKind, Presence
from twinstore.fields import INT64_MAX, INT64_MIN, is_empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic.fields import FieldInfo

    from twinstore.fast.nodes import Node
    from twinstore.jsontext import JsonValue

__all__ = ["Absence", "absence_of", "as_written"]


@dataclass(frozen=True, slots=True)
class Absence:
    """What it means that a field is not there; see :class:`~twinstore.fast.nodes.NodeField`."""

    presence: Presence
    default: bytes = b""
    number: int = 0
    left_out: bool = False


# Also where the model would fill in something that no program knows: then it decides.
MUST_BE_THERE = Absence(Presence.REQUIRED)


def absence_of(info: FieldInfo, node: Node, cls: type, *, optional: bool) -> Absence:
    """Return what it means that a field is not there.

    Args:
        info: the field.
        node: the node of its value.
        cls: the class of its value.
        optional: whether its value may be ``None``.

    Raises:
        UnrecognisedError: it may be left out of the wire form by a function that no program knows.
    """
    found = _absence(info, node, cls, optional=optional)
    if info.exclude_if is None:
        return found
    # What else the function would leave out must not be written either, so it must be the one that is known.
    if info.exclude_if is not is_empty or not _is_empty(found, node):
        raise UnrecognisedError(
            "is left out of the wire form by a function that no program knows; "
            "take twinstore.fields.is_empty, with an empty default"
        )
    return Absence(Presence.DEFAULT, found.default, found.number, left_out=True)


def as_written(default: bytes, node: Node, nodes: Sequence[Node]) -> bytes:
    """Return the JSON of a default with the fields of models as native code orders them."""
    if node.kind is not NodeKind.OBJECT or not default:
        return default
    return jsontext.dumps(_as_written(jsontext.loads(default), node, nodes))


def _as_written(value: JsonValue, node: Node, nodes: Sequence[Node]) -> JsonValue:
    if node.kind is NodeKind.OBJECT and isinstance(value, dict):
        fields = {field.name: nodes[field.node] for field in node.fields}
        # As PostgreSQL orders names; native code takes models whose names are ASCII.
        names = sorted(value, key=lambda name: (len(name), name))
        return {name: _as_written(value[name], fields[name], nodes) for name in names}
    if node.kind is NodeKind.LIST and isinstance(value, list):
        return [_as_written(item, nodes[node.item], nodes) for item in value]
    return value


def _is_empty(absence: Absence, node: Node) -> bool:
    emptiable = {NodeKind.LIST, NodeKind.MAP, NodeKind.JSON, NodeKind.INT}
    is_default = absence.presence is Presence.DEFAULT
    return is_default and node.kind in emptiable and absence.default in {b"[]", b"{}", b"0"}


def _absence(info: FieldInfo, node: Node, cls: type, *, optional: bool) -> Absence:
    if info.validate_default:
        return MUST_BE_THERE
    if info.default_factory is not None:
        is_map = info.default_factory is dict and node.kind in {NodeKind.MAP, NodeKind.JSON}
        return Absence(Presence.DEFAULT, b"{}") if is_map else MUST_BE_THERE
    default: object = info.default
    if default is PydanticUndefined:
        return MUST_BE_THERE
    if default is None:
        return Absence(Presence.OPTIONAL) if optional else MUST_BE_THERE
    return _with_default(default, node, cls)


def _with_default(default: object, node: Node, cls: type) -> Absence:
    """Return what a default means, as the model writes it; pydantic does not look at defaults."""
    if type(default) is not cls:
        return MUST_BE_THERE
    if isinstance(default, CanonicalModel):
        return Absence(Presence.DEFAULT, CanonicalJsonSerializer.serialize(default))
    number = _number(default, node)
    return MUST_BE_THERE if number is None else Absence(Presence.DEFAULT, jsontext.dumps(default), number)


def _number(default: object, node: Node) -> int | None:
    """Return what rules see of a default, ``None`` where no program knows such a default."""
    match default:
        case Enum():
            return [text.text for text in node.texts].index(str(default.value))
        case bool():
            return int(default)
        case int() if INT64_MIN <= default <= INT64_MAX:
            return default
        case str() if "\x00" not in default:
            return 0
        case ():
            return 0
        case _:
            return None
