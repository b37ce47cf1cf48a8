"""Whether the key and the tenant of a row that a model does not hold, or not alone, are in normal form.

A model normalises its fields. If key or tenant are storage markers, nothing normalises them, and a service
that queries the normal form would never find the row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from twinstore.access.scope import id_argument, tenant_argument
from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel


def marker_not_normal(entity: Entity, storage: Mapping[str, object], model: CanonicalModel) -> str | None:
    """Return the first part of key or tenant among the storage markers that is not in normal form."""
    for name in entity.markers:
        value = storage.get(name)
        if name == entity.tenant_field and isinstance(value, str) and not is_tenant(value):
            return name
        if name in entity.key and name in entity.shapes:
            own = getattr(model, entity.shapes[name].name)
            if not (is_id(value) if own is None else own == value):
                return name
    return None


def is_id(value: object) -> bool:
    """Whether a value is an id as calls take it."""
    try:
        return isinstance(value, str) and id_argument(value, "id") == value
    except TwinstoreError:
        return False


@lru_cache(maxsize=1024)
def is_tenant(text: str) -> bool:
    """Whether a text is the id of a tenant as calls take it; there are few tenants and many rows."""
    try:
        return tenant_argument(text) == text
    except TwinstoreError:
        return False
