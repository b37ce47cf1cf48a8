"""The errors of a row: missing, doubled, too large, changed meanwhile, named without its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from twinstore.catalog.tenancy import TenancyKind
from twinstore.errors import (
    ConcurrencyError,
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
)

if TYPE_CHECKING:
    from enum import StrEnum

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key

__all__ = [
    "NumberTakenError",
    "duplicate",
    "duplicate_id",
    "duplicate_value",
    "invalid_transition",
    "lost_race",
    "not_found",
    "required",
    "sequence_exhausted",
    "sequence_taken",
]


T = TypeVar("T")


class NumberTakenError(DuplicateError):
    """Another writer stored the insertion number first; the same write succeeds with the next one."""


def not_found(entity: Entity, key: str, driver: str) -> NotFoundError:
    """Return the error of a required key that is missing or belongs to another tenant."""
    whose = " for this tenant" if entity.tenancy.kind is not TenancyKind.NONE else ""
    return NotFoundError(
        f"The {entity.singular} {key!r} does not exist{whose}.",
        **entity.located(key, driver=driver),
    )


def required(found: T | None, entity: Entity, key: str, driver: str) -> T:
    """Return what was found, or raise ``NotFoundError``."""
    if found is None:
        raise not_found(entity, key, driver)
    return found


def duplicate_id(entity: Entity, key: str, driver: str) -> DuplicateError:
    """Return the error of an id that exists; it does not name the owner."""
    return DuplicateError(
        f"The {entity.singular} id {key!r} already exists; choose another id.",
        **entity.located(key, driver=driver),
    )


def duplicate(
    entity: Entity, key: Key, driver: str, index: Index | None = None, value: object = None
) -> DuplicateError:
    """Return the error of a row whose key, or whose value of a unique index, another row has."""
    if index is not None and index.names == (entity.assigned,):
        return NumberTakenError(
            f"The insertion number {value} of a {entity.singular} was taken by another writer; try again.",
            **entity.located(entity.key_text(key), driver=driver),
        )
    if index is None or index.noun is None:
        return duplicate_id(entity, entity.key_text(key), driver)
    return duplicate_value(entity, index.noun, str(value), entity.key_text(key), driver)


def lost_race(entity: Entity, key: str, driver: str) -> ConcurrencyError:
    """Return the error of a compare-and-set that lost against another writer."""
    return ConcurrencyError(
        f"The {entity.singular} {key!r} was changed by other writers at every attempt; try again.",
        **entity.located(key, driver=driver),
    )


def duplicate_value(entity: Entity, noun: str, value: str, key: str, driver: str) -> DuplicateError:
    """Return the error of a unique value, such as a name, that another row has."""
    return DuplicateError(
        f"The {entity.singular} {noun} {value!r} is taken; choose another {noun}.",
        **entity.located(key, driver=driver),
    )


def invalid_transition(
    entity: str, singular: str, key: str, move: tuple[StrEnum, StrEnum], why: str
) -> InvalidTransitionError:
    """Return the error of a move that a state machine forbids; ``entity`` is the plural name."""
    start, end = move
    return InvalidTransitionError(
        f"{singular.capitalize()} {key!r} cannot go from {start} to {end}: {why}.",
        from_state=start.value,
        to_state=end.value,
        entity=entity,
        key=key,
    )


def sequence_taken(entity: Entity, key: str, driver: str) -> ConflictError:
    """Return the error of a log entry whose place is taken by other content."""
    return ConflictError(
        f"The {entity.singular} {key!r} exists with different content; log entries never change.",
        **entity.located(key, driver=driver),
    )


def sequence_exhausted(entity: Entity, driver: str) -> ConflictError:
    """Return the error of a log whose last entry has the highest number there is."""
    return ConflictError(
        f"The last {entity.singular} of this log has the highest number there is, so none can follow it.",
        **entity.located(driver=driver),
    )
