"""Which rows are due for removal and therefore are not copied and not compared."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from twinstore.query import holds

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.bulk import Record
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
    limit, retention = cutoff(entity, options, as_of), entity.retention
    if limit is None or retention is None:
        return None

    def expired(record: Record) -> bool:
        if record.model is None:
            return False
        instant = entity.value(record.model, record.storage, retention.field)
        return (
            isinstance(instant, datetime)
            and instant <= limit
            and all(
                holds(item, entity.value(record.model, record.storage, item.field))
                for item in retention.where
            )
        )

    return expired
