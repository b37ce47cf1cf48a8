"""What the model says of a stored place: its type, and what a value of a rule is in that type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pydantic_core import PydanticCustomError

from twinstore.bulk.changes import StoredObjectId
from twinstore.catalog.keys import KeyType
from twinstore.models.fields import decimal_number, parse_timestamp
from twinstore.models.shapes import Kind, shapes_of
from twinstore_backfill.rules.model import RenameRule

if TYPE_CHECKING:
    from twinstore.bulk.changes import StoredValues
    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import ValueShape

ID: Final = "_id"
KEYS: Final[Mapping[KeyType, Kind]] = {
    KeyType.INT64: Kind.INTEGER,
    KeyType.HEX: Kind.HEX,
    KeyType.OBJECT_ID: Kind.OBJECT_ID,
    KeyType.BINARY_UUID: Kind.UUID,
}


def renamed(path: Sequence[str], renames: Sequence[RenameRule]) -> tuple[str, ...]:
    """Return where a stored place lies after the renames of its entity."""
    for rule in renames:
        if tuple(path[: len(rule.path)]) == rule.path:
            return (*rule.to, *path[len(rule.path) :])
    return tuple(path)


def kind_at(entity: Entity, path: Sequence[str]) -> Kind | None:
    """Return the type of a place of the model, of a list that of its members; ``None`` where it says none."""
    name, *rest = path
    if name == ID and not rest and entity.own_id is not None:
        name = entity.own_id
    elif name == ID and not rest and len(entity.key_parts) == 1:
        return KEYS.get(entity.key_parts[0].type, Kind.TEXT)
    marker = next((item for item in entity.storage if name in {item.name, f"_{item.name}"}), None)
    if marker is not None:
        return marker.kind
    shape = entity.shapes.get(name)
    return None if shape is None else _kind_in(shape.value, rest)


def _kind_in(value: ValueShape, path: Sequence[str]) -> Kind | None:
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    if not path:
        return value.kind
    name, *rest = path
    if value.kind is Kind.MAP:
        return None if value.item is None else _kind_in(value.item, rest)
    if value.kind is not Kind.OBJECT:
        return None
    shape = next((shape for shape in shapes_of(value.model) if shape.wire == name), None)
    return None if shape is None else _kind_in(shape.value, rest)


def stored_path(entity: Entity, path: tuple[str, ...], *, own_key: bool) -> tuple[str, ...]:
    """Return where documents have a place of the model; ``own_key`` if the key is not ``_id``."""
    return (ID, *path[1:]) if path[0] == entity.document_id and not own_key else path


def in_type(value: object, kind: Kind | None, values: StoredValues) -> object:
    """Return what a store holds for a value of a rule in a field of some type."""
    if isinstance(value, list):
        return [in_type(item, kind, values) for item in value]
    if isinstance(value, dict):
        return deepcopy(value)
    return values.write(_typed(value, kind))


def _typed(value: object, kind: Kind | None) -> object:
    try:
        if kind is Kind.DECIMAL and type(value) in {int, float}:
            return Decimal(str(value))
        if isinstance(value, str):
            read = None if kind is None else TYPES.get(kind)
            return value if read is None else read(value)
    except PydanticCustomError:
        pass  # not of this type, which the model says better
    return value


TYPES: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.INSTANT: parse_timestamp,
    Kind.DECIMAL: decimal_number,
    # Of each of these there is one form.
    Kind.UUID: lambda text: UUID(text) if KeyType.BINARY_UUID.admits(text) else text,
    Kind.OBJECT_ID: lambda text: StoredObjectId(text) if KeyType.OBJECT_ID.admits(text) else text,
}
