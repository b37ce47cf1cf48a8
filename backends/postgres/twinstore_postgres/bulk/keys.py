"""Which keys a table can hold; about any other one the server would fail where it should find nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.catalog import KeyType
from twinstore.fields import INT64_MAX, INT64_MIN
from twinstore_postgres.columns import is_uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.catalog import Entity, Key

__all__ = ["storable_keys"]


def storable_keys(entity: Entity, keys: Sequence[Key]) -> list[Key]:
    """Return the keys that rows of an entity can have, in their order."""
    types = [part.type for part in entity.key_parts]
    return [key for key in keys if all(map(can_hold, types, key))]


def can_hold(kind: KeyType, value: object) -> bool:
    """Whether a column of the key can hold a value."""
    if kind is KeyType.UUID:
        return is_uuid(value)
    if kind is KeyType.HEX:
        return kind.admits(value)
    if kind is KeyType.INT64:
        return type(value) is int and INT64_MIN <= value <= INT64_MAX
    return isinstance(value, str) and is_text(value)


def is_text(value: str) -> bool:
    """Whether the server takes a text: one without U+0000 and lone surrogates."""
    return "\x00" not in value and (value.isascii() or value.encode(errors="ignore").decode() == value)
