"""What the description of an entity demands of its fields beside their own constraints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from twinstore.fast.constraints import UnrecognisedError, flagged
from twinstore.fast.nodes import NO_LIMIT, DueWhere, Marked, Node, NodeKind, TextFlag
from twinstore.fields import INT32_MAX, INT64_MAX, INT64_MIN
from twinstore.keys import LONGEST_TEXT, KeyType
from twinstore.query import Equals, IsPresent, OneOf
from twinstore.shapes import Kind
from twinstore.tenancy import LONGEST_LABEL, TenancyKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.catalog import Entity, Marker
    from twinstore.fast.deriving import Deriver
    from twinstore.fast.program import Slot
    from twinstore.query import Condition

__all__ = ["Roles", "conditions", "needed_of"]

INT32_MIN: Final = -(2**31)
# A tenant that stands in a row is also the label under which the row is counted.
TENANT: Final = TextFlag.TENANT | TextFlag.NONEMPTY | TextFlag.NO_CONTROL
MARKERS: Final[Mapping[Kind, Node]] = {
    Kind.TEXT: Node(kind=NodeKind.TEXT, flags=TextFlag.NO_NUL),
    Kind.INTEGER: Node(kind=NodeKind.INT, low=INT64_MIN, high=INT64_MAX),
    Kind.INSTANT: Node(kind=NodeKind.INSTANT),
}


def needed_of(entity: Entity) -> frozenset[str]:
    """Return the fields and markers without which a row has no key, or no owner."""
    owner = {entity.tenant_field} if entity.tenancy.kind is TenancyKind.REQUIRED else set[str]()
    return frozenset(name for name in {*entity.key, *owner} if name is not None)


class Roles:
    """Narrows the nodes of an entity to what its key, its tenant and its table take."""

    def __init__(self, entity: Entity, deriver: Deriver) -> None:
        """Take the entity and where its nodes are."""
        self._entity = entity
        self._deriver = deriver
        self._keys = {part.field: part.type for part in entity.key_parts}

    def root(self, node: Node) -> Node:
        """Return the node of the model of which each field is narrowed to its role.

        Raises:
            UnrecognisedError: a field cannot have its role.
        """
        fields = tuple(replace(field, node=self._narrowed(field.name, field.node)) for field in node.fields)
        return replace(node, fields=fields)

    def marker(self, marker: Marker) -> Marked:
        """Return a storage marker.

        Raises:
            UnrecognisedError: no program knows such a marker, or it cannot have its role.
        """
        if marker.kind not in MARKERS:
            raise UnrecognisedError(f"its storage marker {marker.name} is of a kind that no program knows")
        number = self._deriver.add(MARKERS[marker.kind])
        required = marker.required or marker.name in needed_of(self._entity)
        return Marked(marker.name, self._narrowed(marker.name, number), required)

    def _narrowed(self, name: str, number: int) -> int:
        node = self._deriver.nodes[number]
        if name in self._keys:
            node = _as_key(name, node, self._keys[name])
        if name == self._entity.tenant_field:
            node = _at_most(flagged(_as_text(name, node), TENANT), LONGEST_LABEL)
        if name in self._entity.filled:
            node = _filled(_as_text(name, node))
        return self._deriver.add(self._narrow(node) if name in self._entity.narrow else node)

    def _narrow(self, node: Node) -> Node:
        """Return a whole number, or a list of them, that fits into 32 bits."""
        if node.kind is NodeKind.LIST:
            return replace(node, item=self._deriver.add(self._narrow(self._deriver.nodes[node.item])))
        return replace(node, low=max(node.low, INT32_MIN), high=min(node.high, INT32_MAX))


def _filled(node: Node) -> Node:
    return flagged(node, TextFlag.NONEMPTY) if node.kind is NodeKind.TEXT else node


def _as_key(name: str, node: Node, kind: KeyType) -> Node:
    if kind is KeyType.INT64:
        if node.kind is not NodeKind.INT:
            raise UnrecognisedError(f"{name} of its key is no whole number")
        return node
    return _at_most(_as_text(name, node), LONGEST_TEXT)


def _as_text(name: str, node: Node) -> Node:
    if node.kind not in {NodeKind.TEXT, NodeKind.CONST}:
        raise UnrecognisedError(f"{name} of its key, its tenant or its filled fields is no text")
    return node


def _at_most(node: Node, length: int) -> Node:
    return replace(node, high=length if node.high == NO_LIMIT else min(node.high, length))


def conditions(entity: Entity, slots: Sequence[Slot], nodes: Sequence[Node]) -> tuple[DueWhere, ...] | None:
    """Return the conditions under which a row is due for removal; ``None``: no program evaluates them."""
    found: list[DueWhere] = []
    for condition in () if entity.retention is None else entity.retention.where:
        numbers = {slot.name: number for number, slot in enumerate(slots)}
        positions = _positions(condition, nodes[slots[numbers[condition.field]].node])
        if positions is None:
            return None
        found.append(DueWhere(numbers[condition.field], positions))
    return tuple(found)


def _positions(condition: Condition, node: Node) -> tuple[int, ...] | None:
    """Return the positions in the texts of an enumeration of which a condition admits one; empty for any."""
    match condition:
        case IsPresent():
            return ()
        case OneOf(_, values) if node.kind is NodeKind.ENUM:
            wanted = {*values}
        case Equals(_, str() as value) if node.kind is NodeKind.ENUM:
            wanted = {value}
        case _:
            return None
    # No position at all would mean any value.
    return tuple(position for position, text in enumerate(node.texts) if text.text in wanted) or None
