"""Where a stored row can be broken, found from its description: for probes of stores with typed columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pydantic
from pydantic import TypeAdapter

from twinstore.catalog.entity import Layout
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import FieldShape

__all__ = ["BreakingChange", "breaking_change"]

# No model of ours has a property of this name.
FOREIGN: Final = "foreign"
# Added to a text that a field would admit: few texts may hold such a character, and no name is so long.
CONTROL: Final = "\x01"
FILLING: Final = "." * 10_000


@dataclass(frozen=True, slots=True)
class BreakingChange:
    """A change that leaves a row without model, although the types of the columns admit it.

    Attributes:
        field: the wire name; ``None`` for the payload as a whole.
        value: what to put there, as JSON.
        merged: whether it is added to the object that is stored; otherwise it takes the place of what is.
    """

    field: str | None
    value: object
    merged: bool


def breaking_change(entity: Entity, content: str) -> BreakingChange:
    """Return where a row can be broken with a text, outside of what keys, indexes and lists look at.

    Raises:
        LookupError: there is no such place.
    """
    if entity.layout is Layout.PAYLOAD:
        return BreakingChange(None, {FOREIGN: content}, merged=True)
    for spot in _spots(entity, content):
        return spot
    raise LookupError(f"{entity.name} has no field that could be broken")


def _spots(entity: Entity, content: str) -> Iterator[BreakingChange]:
    looked_at: set[str | None] = {name for index in entity.indexes for name in index.names}
    looked_at |= {*entity.key, entity.tenant_field, entity.retention.field if entity.retention else None}
    shapes = [shape for shape in entity.shapes.values() if shape.wire not in looked_at]
    # Optional ones last: rows have a value there after the change only.
    for written in (True, False):
        for kind in (Kind.OBJECT, Kind.MAP, Kind.TEXT):
            for shape in shapes:
                if shape.value.kind is kind and shape.always_written is written:
                    yield from _spots_in(entity, shape, content)


def _spots_in(entity: Entity, shape: FieldShape, content: str) -> Iterator[BreakingChange]:
    if shape.value.kind is Kind.OBJECT:
        yield BreakingChange(shape.wire, {FOREIGN: content}, merged=True)
    elif shape.value.kind is Kind.MAP:
        # A map admits any key, and a free one any value as well; but never a list in its own place.
        yield BreakingChange(shape.wire, [content], merged=False)
    else:
        for text in (content, content + CONTROL, content + FILLING):
            if not _admits(entity, shape, text):
                yield BreakingChange(shape.wire, text, merged=False)


def _admits(entity: Entity, shape: FieldShape, content: str) -> bool:
    """Whether the annotation of a text admits a value."""
    info = entity.model.model_fields[shape.name]
    try:
        TypeAdapter[object](info.rebuild_annotation()).validate_python(content)
    except pydantic.ValidationError:
        return False
    return True
