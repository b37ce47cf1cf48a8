"""Which rows have expired and therefore are not copied and not compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast

from twinstore.access.query import holds
from twinstore.errors import ValidationError
from twinstore.models import json_text
from twinstore.models.fields import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from twinstore.bulk.port import BulkPort, Record
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity, Retention
    from twinstore.plugins.options import ModuleOptions
    from twinstore_backfill.subset import Subset


def resolve_as_of(port: BulkPort, given: datetime | None) -> datetime:
    """Return the instant that retention is judged by: the given one, or now by the clock of the store.

    Raises:
        ValidationError: the given one has not come yet: rows that nothing has removed would count as expired.
    """
    # Of the server, because with a client clock that is ahead rows would pass for expired too early.
    now = port.now()
    if given is not None and given > now:
        raise ValidationError(
            f"--as-of {json_text.format_timestamp(given)} is in the future: the clock of {port.place} says "
            f"{json_text.format_timestamp(now)}. Give an instant that has passed, or leave it out."
        )
    return given or now


def age_limit(entity: Entity, options: ModuleOptions) -> timedelta | None:
    """Return the age at which rows of an entity expire, ``None`` when they never do."""
    retention = entity.retention
    return None if retention is None else retention.unit.age(getattr(options, retention.option))


def cutoff(entity: Entity, options: ModuleOptions, as_of: datetime) -> datetime | None:
    """Return the instant up to which rows of an entity are expired, ``None`` when they never expire."""
    age = age_limit(entity, options)
    return None if age is None else as_of - age


@dataclass(frozen=True, slots=True)
class ExpiryTest:
    """A test for records that retention has due for removal.

    Attributes:
        retention: what says so.
        limit: the instant up to which they are.
    """

    entity: Entity
    retention: Retention
    limit: datetime

    def __call__(self, record: Record) -> bool:
        """Whether a record is due; one that cannot be read has no instant to judge by."""
        if record.model is None:
            return False
        instant = self.entity.value(record.model, record.storage, self.retention.field)
        return (
            isinstance(instant, datetime)
            and instant <= self.limit
            and all(
                holds(item, self.entity.value(record.model, record.storage, item.field))
                for item in self.retention.where
            )
        )


def expiry_test(entity: Entity, options: ModuleOptions, as_of: datetime) -> ExpiryTest | None:
    """Return a test for expired records, ``None`` when no record of the entity can be expired."""
    limit, retention = cutoff(entity, options, as_of), entity.retention
    return None if limit is None or retention is None else ExpiryTest(entity, retention, limit)


def is_expired(entity: Entity, row: ScanRow, limit: datetime | None) -> bool:
    """Return whether retention removes a stored row whose instant is at or before ``limit``.

    The instant is read from the stored content: a row that cannot be decoded expires all the same.
    """
    if limit is None or row.expires is None or row.expires > limit or entity.retention is None:
        return False
    where = entity.retention.where
    if not where:
        return True
    content = cast("Mapping[str, object]", json_text.loads(row.content))
    return all(holds(item, stored_value(content, item)) for item in where)


def stored_value(content: Mapping[str, object], condition: Condition) -> object:
    """Return what a row holds in the field of a condition; an instant as one where instants are compared."""
    for part in ("storage", "doc"):
        values = content.get(part)
        if isinstance(values, dict) and condition.field in values:
            value = cast("Mapping[str, object]", values)[condition.field]
            compared = isinstance(getattr(condition, "value", None), datetime)
            return instant_in(value) if compared else value
    return None


def instant_in(value: object) -> datetime | None:
    """Return the instant of a stored text, ``None`` if it is not an instant."""
    try:
        return parse_timestamp(value) if isinstance(value, str) else None
    except ValueError:
        return None


def is_meant(entity: Entity, subset: Subset, record: Record) -> bool:
    """Whether a record belongs to a part by its date; one that cannot be read belongs to each."""
    if not subset.by_time or entity.dated is None or record.model is None:
        return True
    instant = entity.value(record.model, record.storage, entity.dated)
    return not isinstance(instant, datetime) or subset.admits(instant)
