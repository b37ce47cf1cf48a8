"""What the model has at the end of a path, and values of a job file as a store holds them there."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from pydantic_core import PydanticCustomError

from twinstore.bulk.changes import StoredObjectId
from twinstore.catalog.keys import KeyType
from twinstore.models.fields import decimal_number, parse_timestamp
from twinstore.models.shapes import Kind, ValueShape, shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinstore.bulk.changes import StoredValues
    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import FieldShape
    from twinstore_backfill.copy.rules.places import Path
    from twinstore_backfill.rules.model import RenameRule

ID: Final = "_id"


def stored_path(entity: Entity, path: Path) -> Path:
    """Return where documents hold a place of the model."""
    return (ID, *path[1:]) if path[0] == entity.document_id else path


def shape_at(entity: Entity, path: Path, renames: Sequence[RenameRule] = ()) -> ValueShape | None:
    """Return what the model has where a stored value ends, ``None`` if it does not describe the place.

    Lists do not count: it is the shape of their items.
    """
    for rename in renames:
        if path[: len(rename.path)] == rename.path:
            path = (*rename.to, *path[len(rename.path) :])
            break
    name, *rest = path
    marker = next((item for item in entity.storage if name in {item.name, f"_{item.name}"}), None)
    if marker is not None:
        return ValueShape(marker.kind, object)
    wire = entity.document_id if name == ID else name
    return None if wire is None else _shape(entity.shapes, (wire, *rest))


def _shape(fields: Mapping[str, FieldShape], path: Path) -> ValueShape | None:
    field = fields.get(path[0])
    value = None if field is None else field.value
    for number, _ in enumerate(path):
        while value is not None and value.kind is Kind.LIST:
            value = value.item
        if value is None or number == len(path) - 1:
            return value
        if value.kind is Kind.OBJECT:
            return _shape({shape.wire: shape for shape in shapes_of(value.model)}, path[number + 1 :])
        value = value.item if value.kind is Kind.MAP else None
    return value


def _object_id(value: object) -> object:
    return StoredObjectId(value) if isinstance(value, str) and KeyType.OBJECT_ID.admits(value) else value


def _uuid(value: object) -> object:
    return UUID(value) if isinstance(value, str) and KeyType.BINARY_UUID.admits(value) else value


def _decimal(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(repr(value))
    try:
        return decimal_number(value)
    except PydanticCustomError:
        return value


def _instant(value: object) -> object:
    try:
        return parse_timestamp(value)
    except PydanticCustomError:
        return value


TYPED: Final[Mapping[Kind, Callable[[object], object]]] = {
    Kind.OBJECT_ID: _object_id,
    Kind.UUID: _uuid,
    Kind.DECIMAL: _decimal,
    Kind.INSTANT: _instant,
}


def written(value: object, shape: ValueShape | None, values: StoredValues) -> object:
    """Return a value of a job file as a store holds it in a place of the model; each time a new object."""
    if isinstance(value, list):
        return [written(item, shape, values) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        return deepcopy(dict(cast("Mapping[str, object]", value)))
    convert = None if shape is None else TYPED.get(shape.kind)
    return values.write(value if convert is None else convert(value))
