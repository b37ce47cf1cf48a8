"""What the rules of sessions, tasks and machines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from twinstore.errors import ConflictError, ValidationError
from twinstore.tracking.machines import TrackingMachine
from twinstore.tracking.records import AUTOMATIC
from twinstore.tracking.sessions import TrackingSession
from twinstore.tracking.tasks import TrackingTask

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from enum import StrEnum

    from twinstore.catalog.entity import Entity

R = TypeVar("R", TrackingSession, TrackingTask, TrackingMachine)


def created(record: R, now: datetime) -> R:
    """Return a new record with the instants that the store sets."""
    return record.evolve(created_at=now, updated_at=now)


def touched(stored: R, changed: R, now: datetime) -> R:
    """Return a changed record with the instant of its change, which never goes back.

    An equal one is returned as it is stored.
    """
    return stored if changed == stored else changed.evolve(updated_at=max(now, stored.updated_at))


def with_stored_fields(stored: R, record: R, *more: str) -> R:
    """Return a caller's record with what is not the caller's as it is stored."""
    return record.evolve(**{name: getattr(stored, name) for name in (*AUTOMATIC, *more)})


def check_expected(entity: Entity, key: str, stored: StrEnum, expected: StrEnum | None) -> None:
    """Refuse a caller who expects another status.

    Raises:
        ConflictError: the stored status is another one.
    """
    if expected is not None and stored is not expected:
        raise ConflictError(
            f"{entity.singular.capitalize()} {key!r} is {stored}, not {expected} as expected; read it again.",
            **entity.located(key),
        )


def check_unchanged(entity: Entity[R], stored: R, record: R, names: Iterable[str], how: str) -> None:
    """Refuse a record that changes what an update leaves alone.

    Raises:
        ValidationError: names the fields, and how they change.
    """
    changed = [name for name in names if getattr(stored, name) != getattr(record, name)]
    if changed:
        (key,) = entity.key_of(stored, {})
        raise ValidationError(
            f"{entity.singular.capitalize()} {key!r}: an update cannot change {', '.join(changed)}; {how}.",
            **entity.located(str(key)),
        )
