"""What makes a description wrong: contradictions, and what two stores would understand differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.query import IsNull
from twinstore.tenancy import TenancyKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog import Entity
    from twinstore.query import Condition

__all__ = ["is_present", "problems"]


def problems(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with a description, as the end of a sentence about the entity."""
    unknown = sorted(set(_named(entity)) - entity.known.keys())
    if unknown:
        yield f"has no field {', '.join(unknown)}"
    yield from _problems_of_parent(entity)
    parent = None if entity.parent is None else entity.parent.entity
    if entity.sequence is not None and (parent is None or not parent.versioned):
        # Two appends wait for each other because both write the parent.
        yield "is an ordered log, but names no parent that is versioned"
    for index in entity.uniques:
        # Some stores hold two absent values to be equal, others do not.
        absent = [name for name in index.names if not is_present(entity, name, index.where)]
        if absent:
            yield f"may lack {', '.join(absent)} of {index.name}; narrow it with IsPresent"


def _problems_of_parent(entity: Entity) -> Iterator[str]:
    if entity.parent is None:
        if entity.tenancy.kind is TenancyKind.PARENT:
            yield "belongs to the tenant of a parent, but names none"
        return
    if len(entity.parent.entity.key_parts) != 1:
        yield f"has the parent {entity.parent.entity.name}, whose key has several parts"
    if entity.tenancy.kind is TenancyKind.PARENT and not is_present(entity, entity.parent.field):
        yield f"belongs to the tenant of a parent, but may lack {entity.parent.field}"
    if entity.tenancy.kind is TenancyKind.PARENT and entity.parent.field not in entity.key:
        # A key alone must tell which parent decides who sees the row.
        yield f"belongs to the tenant of a parent, but {entity.parent.field} is not part of its key"


def _named(entity: Entity) -> Iterator[str]:
    """Yield every field that a description names."""
    yield from (*entity.key, *entity.beside, *entity.narrow, *entity.filled)
    for index in entity.indexes:
        yield from (*index.names, *(condition.field for condition in index.where))
    if entity.retention is not None:
        yield from (entity.retention.field, *(condition.field for condition in entity.retention.where))
    if entity.parent is not None:
        yield entity.parent.field
    yield from (name for name in (entity.tenancy.field, entity.sequence) if name is not None)


def is_present(entity: Entity, name: str, where: tuple[Condition, ...] = ()) -> bool:
    """Whether every row that satisfies some conditions has a field."""
    if any(item.field == name and not isinstance(item, IsNull) for item in where):
        return True
    for marker in entity.storage:
        if marker.name == name:
            return marker.required
    shape = entity.shapes.get(name)
    return shape is None or shape.always_written
