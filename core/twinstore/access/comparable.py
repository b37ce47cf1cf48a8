"""What a list may compare with an ObjectId, a UUID or a decimal: what every driver compares alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic_core import PydanticCustomError

from twinstore.access.paging import malformed_token
from twinstore.catalog.conditions import Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.keys import KeyType
from twinstore.errors import ValidationError
from twinstore.models.fields import decimal_number
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity

COMPARABLE: Final[Mapping[Kind, str]] = {
    Kind.OBJECT_ID: "name one or several texts that it is",
    Kind.UUID: "name one or several texts that it is",
    Kind.DECIMAL: "name one finite Decimal or integer",
}
ID_TYPES: Final[Mapping[Kind | None, KeyType]] = {
    Kind.OBJECT_ID: KeyType.OBJECT_ID,
    Kind.UUID: KeyType.BINARY_UUID,
}


def check_values(entity: Entity, query: Query, by: Sequence[str]) -> None:
    """Refuse what some driver cannot compare with an ObjectId, a UUID or a decimal, or count by it.

    Raises:
        ValidationError: names the field.
    """
    kinds = entity.typed_queried
    for condition in query.where:
        kind = kinds.get(condition.field)
        if kind is None or isinstance(condition, IsNull | IsPresent):
            continue
        values = condition.values if isinstance(condition, OneOf) else (condition.value,)
        is_bound = not isinstance(condition, Equals | OneOf)
        if not all(is_comparable(kind, value) for value in values) or (is_bound and kind is not Kind.DECIMAL):
            raise ValidationError(
                f"{entity.name} cannot compare {condition.field!r}, which is {kind.value!r}, in this way; "
                f"{COMPARABLE[kind]}.",
                entity=entity.name,
            )
    for key, value in zip(query.order, query.after or (), strict=False):
        kind = kinds.get(key.field)
        if value is not None and kind in ID_TYPES and not ID_TYPES[kind].admits(value):
            raise malformed_token()
    for field in by:
        if kinds.get(field) is Kind.DECIMAL:
            raise ValidationError(
                f"{entity.name} cannot be counted by {field!r}: 1.0 and 1.00 are one value and two texts.",
                entity=entity.name,
            )


def is_comparable(kind: Kind, value: object) -> bool:
    """Whether every driver can compare a value of some kind with this one."""
    if kind is not Kind.DECIMAL or isinstance(value, str):
        return kind is not Kind.DECIMAL and isinstance(value, str)
    try:
        decimal_number(value)
    except PydanticCustomError:
        return False
    return True
