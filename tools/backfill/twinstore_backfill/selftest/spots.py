"""Every place inside a stored row at which something can be changed, with what the description says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from pydantic.alias_generators import to_snake

from twinstore.planting import Doubled, Role
from twinstore.shapes import Kind, ValueShape, shapes_of
from twinstore_backfill.verify.differences import member

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.catalog import Entity
    from twinstore.planting import RawRow, StoredPlace

__all__ = ["Container", "Spot", "doubled", "edited", "put", "shown_place", "spots_of", "take"]

Steps = tuple[str | int, ...]
Container = dict[str, object] | list[object]
Values = Mapping[str, object]
# One list has thousands of items that are all alike.
ITEMS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One place in one row.

    Attributes:
        place: the column, or the name at the top of the document.
        path: the way from the row to it, the place first.
        shown: the path under which a comparison names it.
        pattern: the same without the numbers of items and the keys of free maps: what a field is.
        value: what stands there; nothing where it is not ``present``.
        shape: what the description says of it, ``None`` for free JSON.
        own_name: its Python name, where it stands under a name of the description.
        shown_above: the path of what holds it.
        in_map: whether its name is chosen by users.
    """

    place: StoredPlace
    path: Steps
    shown: str
    pattern: str
    value: object
    present: bool
    shape: ValueShape | None = None
    own_name: str | None = None
    shown_above: str = ""
    in_map: bool = False

    @property
    def name(self) -> str | int:
        """The last step of the path."""
        return self.path[-1]

    @property
    def role(self) -> Role:
        """What it is for; inside of a payload stand the fields."""
        inside = self.place.role is Role.PAYLOAD and not self.at_top
        return Role.FIELD if inside else self.place.role

    @property
    def at_top(self) -> bool:
        """Whether it is a column, or stands at the top of a document."""
        return len(self.path) == 1


def shown_place(place: StoredPlace) -> str:
    """Return the path under which a comparison names a place of a row."""
    return place.part if place.role is Role.PAYLOAD else member(place.part, place.field)


def spots_of(
    entity: Entity, row: RawRow, places: tuple[StoredPlace, ...], *, tabular: bool, wanted: str = ""
) -> Iterator[Spot]:
    """Yield the places of a row from the top down, those that it lacks included.

    Args:
        entity: whose row it is.
        row: the row.
        places: the places of its rows.
        tabular: whether null in a place is the same as none.
        wanted: a pattern; then only the places that have it.
    """
    for place in places:
        value = row.values.get(place.name)
        present = place.name in row.values and not (tabular and value is None)
        shown = shown_place(place)
        if not leads_to(shown, wanted):
            continue
        shape = shape_of(entity, place)
        python_name = own_name(entity, place)
        yield from _walk(
            Spot(
                place=place,
                path=(place.name,),
                shown=shown,
                pattern=shown,
                value=value,
                present=present,
                shape=shape,
                own_name=python_name,
            ),
            wanted,
        )


def shape_of(entity: Entity, place: StoredPlace) -> ValueShape | None:
    """Return what the description says of a place."""
    if place.role is Role.PAYLOAD:
        return ValueShape(Kind.OBJECT, entity.model)
    apart = {item.name: item.kind for item in entity.storage} | {
        item.name: item.kind for item in entity.derived
    }
    if place.field in apart:
        return ValueShape(apart[place.field], object)
    shape = entity.shapes.get(place.field)
    return None if shape is None else shape.value


def own_name(entity: Entity, place: StoredPlace) -> str:
    """Return the Python name of a place."""
    shape = entity.shapes.get(place.field)
    return to_snake(place.name) if shape is None or place.field in entity.markers else shape.name


def leads_to(pattern: str, wanted: str) -> bool:
    """Whether a place with a pattern is the wanted one or may hold it; each is when none is wanted."""
    return not wanted or wanted.startswith(pattern)


def _walk(spot: Spot, wanted: str) -> Iterator[Spot]:
    if wanted in {"", spot.pattern}:
        yield spot
    if not spot.present:
        return
    if isinstance(spot.value, dict):
        yield from _members(spot, cast("dict[str, object]", spot.value), wanted)
    elif isinstance(spot.value, list) and leads_to(f"{spot.pattern}[]", wanted):
        item = None if spot.shape is None else spot.shape.item
        for number, value in enumerate(cast("list[object]", spot.value)[:ITEMS]):
            inner = replace(
                spot,
                path=(*spot.path, number),
                shown=f"{spot.shown}[{number}]",
                pattern=f"{spot.pattern}[]",
                value=value,
                shape=item,
                own_name=None,
                in_map=False,
            )
            yield from _walk(inner, wanted)


def _members(spot: Spot, content: Mapping[str, object], wanted: str) -> Iterator[Spot]:
    """Yield the members of an object, those that the description names and the row lacks last."""
    shape = spot.shape
    free = shape is None or shape.kind is not Kind.OBJECT
    described = {} if free or shape is None else {item.wire: item for item in shapes_of(shape.model)}
    for name in dict.fromkeys((*content, *described)):
        pattern = f"{spot.pattern}.*" if free else member(spot.pattern, name)
        if not leads_to(pattern, wanted):
            continue
        known = described.get(name)
        item = shape.item if shape is not None and free else None
        yield from _walk(
            replace(
                spot,
                path=(*spot.path, name),
                shown=member(spot.shown, name),
                shown_above=spot.shown,
                pattern=pattern,
                value=content.get(name),
                present=name in content,
                shape=item if known is None else known.value,
                own_name=None if known is None else known.name,
                in_map=free,
            ),
            wanted,
        )


def edited(values: Values, path: Steps, change: Callable[[Container], object]) -> dict[str, object]:
    """Return a copy of a row in which the container that holds the end of a path is changed.

    What does not lie on the path is the same object in both.
    """
    copied = dict(values)
    change(apart(copied, path[:-1]))
    return copied


def doubled(values: Values, path: Steps) -> dict[str, object]:
    """Return a copy of a row in which the name at the end of a path stands twice."""
    *above, name = path
    if not above:
        return Doubled(values, str(name))
    copied = dict(values)
    container = apart(copied, above[:-1])
    put(container, above[-1], Doubled(cast("Values", take(container, above[-1])), str(name)))
    return copied


def apart(values: dict[str, object], path: Sequence[str | int]) -> Container:
    """Put copies in place of the containers on a path that was walked before, and return the last one."""
    container: Container = values
    for step in path:
        held = cast("dict[str | int, object]", container)
        held[step] = copy(held[step])
        container = cast("Container", held[step])
    return container


def put(container: Container, at: str | int, value: object) -> None:
    """Put a value into a container."""
    if isinstance(container, list):
        container[cast("int", at)] = value
    else:
        container[cast("str", at)] = value


def take(container: Container, at: str | int) -> object:
    """Take a value out of a container; a list keeps its length."""
    if isinstance(container, list):
        return container[cast("int", at)]
    return container.pop(cast("str", at))
