"""The rows of a number, of which the lists of the kit are made, and keys that no row has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.catalog.keys import KeyType
from twinstore.models.canonical import CanonicalModel
from twinstore.models.shapes import Kind
from twinstore.testing.instants import at
from twinstore.testing.scalars import EDGE_TEXTS

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.models.shapes import FieldShape

__all__ = ["TIES", "absent_key", "numbered_key", "varied"]

M = TypeVar("M", bound=CanonicalModel)

# So many rows of a list share an instant, so that the id decides; the next lie a millisecond later.
TIES: Final = 3
ABSENT: Final[Mapping[KeyType, str | int]] = {
    KeyType.TEXT: "absent",
    KeyType.INT64: -(2**63),
    KeyType.UUID: "00000000-0000-4000-8000-000000000000",
    KeyType.HEX: "00000000000040008000000000000000",
}


def absent_key(entity: Entity) -> Key:
    """Return a key that no row of the kit has."""
    return tuple(ABSENT[part.type] for part in entity.key_parts)


def numbered_key(tenant: str, number: int) -> str:
    """Return the id of the row of a number; its first characters try the order of text."""
    return f"{EDGE_TEXTS[number % len(EDGE_TEXTS)]}{number:03}@{tenant}"


def varied(
    entity: Entity[M], small: Callable[[str, str], M], orders: Mapping[str, str]
) -> Callable[[str, str, int], M]:
    """Return what builds the models of the lists: small ones that differ where lists sort."""
    names = {name.removeprefix("-") for order in orders.values() for name in order.split()}
    shapes = [entity.shapes[name] for name in names - set(entity.key) if name in entity.shapes]

    def vary(tenant: str, key: str, number: int) -> M:
        changes = {shape.name: value_of_number(shape, number) for shape in shapes}
        return small(tenant, key).evolve(**changes)

    return vary


def value_of_number(shape: FieldShape, number: int) -> object:
    """Return a value for a field by which a list sorts; texts are all different, other values tie."""
    match shape.value.kind:
        case Kind.INSTANT:
            return at(number // TIES / 1000)
        case Kind.INTEGER | Kind.NUMBER:
            return number // TIES
        case Kind.NUMBERED | Kind.NAMED:
            members = shape.value.members
            return members[number // TIES % len(members)]
        case _:
            return f"{EDGE_TEXTS[-(number % len(EDGE_TEXTS)) - 1]}{number}"
