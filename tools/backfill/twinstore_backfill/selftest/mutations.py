"""How each kind of corruption looks at a place: the least change of that kind, and where it must be named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Final, cast
from unicodedata import normalize

from twinstore import jsontext
from twinstore.enums import NumberedEnum
from twinstore.fields import parse_timestamp
from twinstore.jsondates import DATE
from twinstore.planting import STORED_NULL, Role
from twinstore.shapes import Kind as Shape
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.spots import Container, doubled, edited, put, take
from twinstore_backfill.verify.differences import member

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from twinstore.planting import Planter
    from twinstore_backfill.selftest.spots import Spot

__all__ = ["Mutation", "mutations_of"]

Values = Mapping[str, object]
ADDED: Final = "zzAdded"
MILLISECOND: Final = timedelta(milliseconds=1)
# A tenth of the millisecond would round up to none.
PART: Final = timedelta(microseconds=499)
EMPTY: Final[Mapping[Shape, object]] = {
    Shape.TEXT: "",
    Shape.NAMED: "",
    Shape.INTEGER: 0,
    Shape.NUMBER: 0,
    Shape.FLAG: False,
    Shape.OBJECT: {},
    Shape.MAP: {},
    Shape.LIST: [],
}
# The counter may have any value from 1 on, so a step is no corruption of it; what is none is planted too.
FIRST: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One corruption of one row that is not planted yet.

    Attributes:
        kind: what it is.
        form: which of several of that kind.
        pattern: the field.
        role: what the field is for.
        paths: where a comparison may name it.
        build: makes the corrupted row.
        free: the definition leaves the value open, so that nothing must be named.
    """

    kind: Kind
    pattern: str
    role: Role
    paths: tuple[str, ...]
    build: Callable[[Values], dict[str, object]]
    form: str = ""
    free: bool = False

    @property
    def identity(self) -> tuple[str, str, str]:
        """What tells it from the others of its entity."""
        return self.pattern, self.kind.value, self.form


def mutations_of(spot: Spot, planter: Planter, taken: AbstractSet[object]) -> Iterator[Mutation]:
    """Yield every corruption of the value at a place.

    Args:
        spot: the place.
        planter: knows the types of the store.
        taken: values that other rows have there, which a step avoids.
    """
    if spot.place.role is Role.COUNTER:
        yield from _of_counter(spot, planter)
    elif spot.place.role is Role.GENERATED:
        yield from _of_generated(spot, planter)
    elif spot.present:
        yield from _of_value(spot, planter, taken)
        if isinstance(spot.name, str) and not (spot.at_top and planter.tabular):
            yield from _of_name(spot)
    elif isinstance(spot.name, str):
        yield from _of_absence(spot, planter)


def _of_counter(spot: Spot, planter: Planter) -> Iterator[Mutation]:
    value = spot.value
    if not spot.present or not isinstance(value, int):
        return
    counter = type(value)
    yield _set(spot, Kind.STEP, counter(value + 1), form="counted on", free=True)
    yield _set(spot, Kind.STEP, counter(FIRST - 1), form="below the first number")
    yield _set(spot, Kind.NULL, None)
    if not planter.tabular:
        yield _removed(spot)
    for form, other in planter.forms(spot.place, value):
        yield _set(spot, Kind.FORM, other, form=form)


def _of_generated(spot: Spot, planter: Planter) -> Iterator[Mutation]:
    """Yield what may stand in place of a generated identity; another one is as good, whoever made it."""
    yield _set(spot, Kind.NULL, None)
    yield replace(_removed(spot), form="made anew", free=True)
    for form, other in planter.forms(spot.place, spot.value):
        yield _set(spot, Kind.FORM, other, form=form)
    yield from _of_name(spot)


def _of_value(spot: Spot, planter: Planter, taken: AbstractSet[object]) -> Iterator[Mutation]:
    yield from _of_presence(spot, planter)
    value = spot.value
    for form, other in planter.forms(spot.place, value):
        yield _set(spot, Kind.FORM, other, form=form)
    if isinstance(value, str):
        yield from _of_text(spot, value, taken)
    elif isinstance(value, datetime):
        yield from _of_instant(spot, value, planter)
    elif isinstance(value, bool | int | float):
        yield _set(spot, Kind.STEP, next_number(spot, value))
    elif isinstance(value, list):
        yield from _of_list(spot, cast("list[object]", value))
    elif isinstance(value, dict):
        content = {**cast("dict[str, object]", value), ADDED: "x"}
        yield replace(_set(spot, Kind.KEY_ADDED, content), paths=(member(spot.shown, ADDED),))


def _of_presence(spot: Spot, planter: Planter) -> Iterator[Mutation]:
    """Yield the ways in which a value may be no more; in a table nothing but null says so."""
    yield _set(spot, Kind.NULL, None)
    if spot.at_top and planter.tabular:
        if spot.place.nests:
            yield _set(spot, Kind.NULL, STORED_NULL, form="of JSON")
    elif isinstance(spot.name, str):
        yield _removed(spot)


def _of_instant(spot: Spot, value: datetime, planter: Planter) -> Iterator[Mutation]:
    # Under other names of the same map there are values of other kinds.
    yield _set(spot, Kind.STEP, value + MILLISECOND, form="of a date" if spot.in_map else "")
    yield _set(spot, Kind.PART_OF_MILLISECOND, value + PART)
    if not planter.tabular:
        text = f"{(value + PART).isoformat(timespec='microseconds')}+00:00"
        yield _set(spot, Kind.PART_OF_MILLISECOND, text, form="as text")


def _of_text(spot: Spot, value: str, taken: AbstractSet[object]) -> Iterator[Mutation]:
    is_date = spot.in_map and spot.name == DATE
    is_instant = is_date or (spot.shape is not None and spot.shape.kind is Shape.INSTANT)
    instant = instant_of(value) if is_instant else None
    if instant is not None:
        later = jsontext.format_timestamp(instant + MILLISECOND)
        yield _set(spot, Kind.STEP, later, form="of a date" if is_date else "")
        yield _set(spot, Kind.PART_OF_MILLISECOND, (instant + PART).isoformat())
    else:
        yield _set(spot, Kind.STEP, next_text(spot, value, taken))
    yield _set(spot, Kind.BLANK, f"{value} ")
    if (other := other_case(value)) is not None:
        yield _set(spot, Kind.CASE, other)
    for form in ("NFD", "NFC"):
        if normalize(form, value) != value:
            yield _set(spot, Kind.UNICODE, normalize(form, value))
            return


def _of_list(spot: Spot, items: list[object]) -> Iterator[Mutation]:
    for place in range(len(items) - 1):
        if items[place] != items[place + 1]:
            swapped = [*items[:place], items[place + 1], items[place], *items[place + 2 :]]
            yield _set(spot, Kind.ORDER, swapped)
            return


def _of_name(spot: Spot) -> Iterator[Mutation]:
    """Yield what can be done to the name of a member of an object."""
    name = cast("str", spot.name)
    yield _mutation(spot, Kind.KEY_DOUBLED, lambda values: doubled(values, spot.path), (spot.shown,))
    if spot.in_map and (other := other_case(name)) is not None:
        yield _renamed(spot, Kind.KEY_CASE, other)
    if spot.own_name is not None and spot.own_name != name:
        yield _renamed(spot, Kind.KEY_RENAMED, spot.own_name)


def _of_absence(spot: Spot, planter: Planter) -> Iterator[Mutation]:
    if not (spot.at_top and planter.tabular):
        yield _set(spot, Kind.NULL_FOR_MISSING, None)
    elif spot.place.nests:
        yield _set(spot, Kind.NULL_FOR_MISSING, STORED_NULL)
    if spot.shape is not None and spot.shape.kind in EMPTY:
        yield _set(spot, Kind.EMPTY_FOR_MISSING, EMPTY[spot.shape.kind])


def next_number(spot: Spot, value: float) -> object:
    """Return the next number, flag or number of an enumeration."""
    if isinstance(value, bool):
        return not value
    shape = spot.shape
    if shape is not None and shape.kind is Shape.NUMBERED:
        numbers = sorted(item.number for item in cast("type[NumberedEnum]", shape.cls))
        return next((number for number in numbers if number > value), numbers[0])
    return type(value)(value + 1)


def next_text(spot: Spot, value: str, taken: AbstractSet[object]) -> str:
    """Return the next member of an enumeration, or the text with another last character."""
    shape = spot.shape
    if shape is not None and shape.kind in {Shape.NAMED, Shape.NUMBERED}:
        members = [item.value for item in shape.members]
        if value in members:
            return str(members[(members.index(value) + 1) % len(members)])
    head, last = value[:-1], ord(value[-1]) if value else ord("`")
    # Behind the last character of all comes the first one again.
    following = (chr((last + step) % (sys.maxunicode + 1)) for step in count(1))
    # What stands before it may be anything, such as two lines.
    texts = (f"{head}{character}" for character in following if character.isprintable())
    return next(text for text in texts if text not in taken)


def other_case(value: str) -> str | None:
    """Return a text with the case of its last letter changed, ``None`` where none has another case."""
    for place in reversed(range(len(value))):
        swapped = value[place].swapcase()
        if swapped != value[place] and len(swapped) == 1:
            return f"{value[:place]}{swapped}{value[place + 1 :]}"
    return None


def instant_of(text: str) -> datetime | None:
    """Return the instant of a text, ``None`` for any other text."""
    try:
        return parse_timestamp(text)
    except ValueError:
        return None


def _set(spot: Spot, kind: Kind, value: object, *, form: str = "", free: bool = False) -> Mutation:
    """Return the mutation that puts another value into the place."""

    def build(values: Values) -> dict[str, object]:
        return edited(values, spot.path, lambda container: put(container, spot.name, value))

    return _mutation(spot, kind, build, (spot.shown,), form=form, free=free)


def _removed(spot: Spot) -> Mutation:
    def build(values: Values) -> dict[str, object]:
        return edited(values, spot.path, lambda container: take(container, spot.name))

    # A client makes an identity for a document without one, and no service of ours writes to it.
    return _mutation(spot, Kind.MISSING, build, (spot.shown,))


def _renamed(spot: Spot, kind: Kind, name: str) -> Mutation:
    def change(container: Container) -> None:
        put(container, name, take(container, spot.name))

    head = "doc" if spot.at_top else spot.shown_above
    paths = (spot.shown, member(head, name))
    return _mutation(spot, kind, lambda values: edited(values, spot.path, change), paths)


def _mutation(
    spot: Spot,
    kind: Kind,
    build: Callable[[Values], dict[str, object]],
    paths: tuple[str, ...],
    *,
    form: str = "",
    free: bool = False,
) -> Mutation:
    return Mutation(
        kind=kind,
        form=form,
        pattern=spot.pattern,
        role=spot.role,
        paths=paths,
        build=build,
        free=free,
    )
