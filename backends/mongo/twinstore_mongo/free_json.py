"""Free JSON in documents: where it stands in those of a model, and what of it BSON holds in another way.

A date object of :mod:`twinstore.jsondates` is a date of BSON, and a map that looks like a database reference
is read by the client as an object of its own class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bson import DBRef
from bson.int64 import Int64

from twinstore.jsondates import DATE, date_in, date_object
from twinstore.jsontext import dumps
from twinstore.shapes import Kind, shapes_of

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel
    from twinstore.shapes import ValueShape

__all__ = [
    "EPOCH",
    "NAIVE_EPOCH",
    "Walk",
    "dates_written",
    "free_map",
    "references",
    "walk_of",
    "walks_of",
    "within",
]

Walk = Callable[[Any], Any]
"""Returns what stands in place of a value."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH: Final = EPOCH.replace(tzinfo=None)
# What free JSON mostly holds; anything else may hide a reference or a date.
PLAIN: Final = frozenset({str, bool, int, float, type(None), Int64})
NAMED: Final = dumps(DATE)


def walks_of(
    model: type[CanonicalModel], free: Walk, described: Walk | None = None
) -> tuple[tuple[str, Walk], ...]:
    """Return the fields of a model in which there are maps, each with what changes those.

    Args:
        model: any model.
        free: is called with every object of free JSON that is the value of a field, or an item of one.
        described: is called with every map of which the description says what it holds.
    """
    found = ((shape.wire, walk_of(shape.value, free, described)) for shape in shapes_of(model))
    return tuple((name, walk) for name, walk in found if walk is not None)


def walk_of(value: ValueShape, free: Walk, described: Walk | None) -> Walk | None:
    """Return what changes the maps in a value of some shape, ``None`` where there are none."""
    if value.kind is Kind.OBJECT:
        fields = walks_of(value.model, free, described)
        return partial(within, fields) if fields else None
    if value.item is None:
        # What may be of several types is no free JSON: one of them may be a model with instants of its own.
        return None if value.kind is not Kind.MAP else free if value.cls is dict else described
    below = walk_of(value.item, free, described)
    if value.kind is Kind.LIST:
        return None if below is None else partial(each_item, below)
    return described if below is None else partial(each_member, described, below)


def within(fields: Sequence[tuple[str, Walk]], value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Change fields of an object in place; return it."""
    if type(value) is dict:
        for name, walk in fields:
            if (found := value.get(name)) is not None:
                value[name] = walk(found)
    return value


def each_item(walk: Walk, value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a list with each item changed."""
    return [walk(item) for item in value] if isinstance(value, list | tuple) else value


def each_member(around: Walk | None, walk: Walk, value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a map with each member changed."""
    value = value if around is None else around(value)
    return {name: walk(item) for name, item in value.items()} if type(value) is dict else value


def dates_written(value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Put dates in place of the objects that stand for them in a map of a wire form; return the map.

    The map itself stays one, whatever it holds: the field has room for nothing else.
    """
    # To look into the JSON costs a tenth of a walk, and hardly any has the name.
    if type(value) is dict and not PLAIN.issuperset(map(type, value.values())) and NAMED in dumps(value):
        return {name: written(item) for name, item in value.items()}
    return value


def written(value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Return a member of free JSON as a document holds it."""
    if type(value) is dict:
        instant = date_in(value)
        return {name: written(item) for name, item in value.items()} if instant is None else instant
    return list(map(written, value)) if type(value) is list else value


def free_map(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return an object of free JSON as models read it; of anything else nothing is known."""
    if type(value) is dict:
        if PLAIN.issuperset(map(type, value.values())):  # as nearly all of them
            return value
        return {name: item if type(item) in PLAIN else restored(item) for name, item in value.items()}
    return free_map(dict(value.as_doc())) if isinstance(value, DBRef) else value


def restored(value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Return free JSON with every reference in it as a map, and every date as the object of one."""
    if type(value) is list:
        return value if PLAIN.issuperset(map(type, value)) else list(map(restored, value))
    if type(value) is datetime:
        return date_object(value if value.tzinfo is not None else EPOCH + (value - NAIVE_EPOCH))
    return free_map(value)


def references(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a value with every reference in it as a map."""
    if type(value) is dict:
        if PLAIN.issuperset(map(type, value.values())):
            return value
        return {name: references(item) for name, item in value.items()}
    if isinstance(value, DBRef):
        return references(dict(value.as_doc()))
    return [references(item) for item in value] if isinstance(value, list) else value
