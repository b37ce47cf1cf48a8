"""What takes a value out of a row by its name, made once for each entity: every call asks for some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

from twinstore.canonical import CanonicalModel
from twinstore.variants import variants_of

if TYPE_CHECKING:
    from twinstore.catalog import Entity

__all__ = ["Read", "readers_of"]

Read = Callable[[CanonicalModel, Mapping[str, object]], object]
"""Takes one value out of a row: out of its model or its storage markers."""


def readers_of(entity: Entity) -> dict[str, Read]:
    """Return what reads each name that a row has; a marker hides a field."""
    # Of several models in one table not each has every field.
    of = of_some_field if variants_of(entity.model) else of_field
    fields = {wire: of(shape.name) for wire, shape in entity.shapes.items()}
    derived: dict[str, Read] = {item.name: item.value for item in entity.derived}
    return derived | fields | {name: of_marker(name) for name in entity.markers}


def of_field(name: str) -> Read:
    """Return what reads a field of the model by its Python name."""
    read: Callable[[CanonicalModel], object] = attrgetter(name)
    return lambda model, _: read(model)


def of_some_field(name: str) -> Read:
    """Return what reads a field that not every model has; a model without it lacks a value."""
    return lambda model, _: getattr(model, name, None)


def of_marker(name: str) -> Read:
    """Return what reads a storage marker; an absent one is ``None``."""
    return lambda _, storage: storage.get(name)
