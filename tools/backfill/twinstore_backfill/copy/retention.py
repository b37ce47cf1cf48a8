"""Which rows are due for removal and therefore are not copied and not compared."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.bulk import Record
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.options import ModuleOptions

__all__ = ["cutoff", "expiry_test"]


def cutoff(entity: Entity, options: ModuleOptions, as_of: datetime) -> datetime | None:
    """Return the instant up to which rows of an entity are expired, ``None`` when they never expire."""
    if entity.retention is None:
        return None
    days: int = getattr(options, entity.retention.option)
    return as_of - timedelta(days=days) if days else None


def expiry_test(entity: Entity, options: ModuleOptions, as_of: datetime) -> Callable[[Record], bool] | None:
    """Return a test for expired records, ``None`` when no record of the entity can be expired."""
    limit = cutoff(entity, options, as_of)
    if limit is None or entity.retention is None:
        return None
    name = attribute(entity.model, entity.retention.field)

    def expired(record: Record) -> bool:
        instant: datetime | None = getattr(record.model, name)
        return instant is not None and instant <= limit

    return expired


def attribute(model: type[CanonicalModel], wire_name: str) -> str:
    """Return the Python name of a property."""
    for name, field in model.model_fields.items():
        if (field.serialization_alias or field.alias or name) == wire_name:
            return name
    raise LookupError(f"{model.__name__} has no property {wire_name}")
