"""Names of free maps that a model would not keep apart.

A model may write names in lower case, trim them and drop blank ones; of two that become one it keeps the last
value. What a service is given may be normalised so. What is only moved must not lose a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from twinstore.shapes import Kind, shapes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.canonical import CanonicalModel
    from twinstore.shapes import FieldPath, ValueShape

__all__ = ["lossy_map", "names_lost"]


def names_lost(path: str) -> str:
    """Return why a row cannot be moved of whose map :func:`lossy_map` told the path."""
    return (
        f"{path}: names that are blank, or differ only in case or outer blanks, would lose a value; rename "
        "them at the source"
    )


def lossy_map(document: Mapping[str, object], model: CanonicalModel) -> str | None:
    """Return the path of the first map of which the model has fewer names than the document; mostly ``None``.

    Args:
        document: the stored properties by wire name.
        model: what was made of them.
    """
    for wire, names in _maps(type(model)):
        if _stored(document, wire) > _kept(model, names):
            return ".".join(wire)
    return None


@cache
def _maps(model: type[CanonicalModel]) -> tuple[tuple[FieldPath, FieldPath], ...]:
    """Return the paths of all maps of a model: by wire names and by Python names."""
    return tuple(_paths(model))


def _paths(model: type[CanonicalModel]) -> Iterator[tuple[FieldPath, FieldPath]]:
    for shape in shapes_of(model):
        value = _innermost(shape.value)
        if value.kind is Kind.MAP:
            yield (shape.wire,), (shape.name,)
        elif value.kind is Kind.OBJECT:
            for wire, names in _paths(value.model):
                yield (shape.wire, *wire), (shape.name, *names)


def _innermost(value: ValueShape) -> ValueShape:
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    return value


def _stored(value: object, path: FieldPath) -> int:
    """Return how many names stand in the maps at a path; lists on the way may come in any order."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return _stored(members.get(path[0]), path[1:]) if path else len(members)
    if isinstance(value, (list, tuple)):
        return sum(_stored(item, path) for item in cast("Sequence[object]", value))
    return 0


def _kept(value: object, path: FieldPath) -> int:
    """Return the same of a model."""
    if isinstance(value, Mapping):
        return len(cast("Mapping[str, object]", value))
    if isinstance(value, tuple):
        return sum(_kept(item, path) for item in cast("Sequence[object]", value))
    return _kept(getattr(value, path[0]), path[1:]) if path and value is not None else 0
