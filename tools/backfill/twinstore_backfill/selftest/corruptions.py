"""The possible corruptions of a row: kinds by the type of the stored value, and how each must be named."""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import MAXYEAR, datetime, timedelta
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast
from unicodedata import normalize
from uuid import UUID

from pydantic.alias_generators import to_snake
from pydantic_core import PydanticCustomError

from twinstore.bulk.corruption import STORED_NULL, DuplicateMember, Role, StoredPlace
from twinstore.models import json_text
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import DATE, decimal_number, parse_timestamp
from twinstore.models.shapes import TYPED, ValueShape, shapes_of
from twinstore.models.shapes import Kind as Shape
from twinstore_backfill.selftest.rows import own_values
from twinstore_backfill.verify.expected import member

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from twinstore.bulk.corruption import CorruptionWriter
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

Values = Mapping[str, object]
ADDED: Final = "zzAdded"
MILLISECOND: Final = timedelta(milliseconds=1)
# A tenth of the millisecond would round up to none.
PART: Final = timedelta(microseconds=499)
# One list has thousands of items that are all alike.
ITEMS: Final = 2
# The numbers of made rows are smaller.
DUPLICATE_NUMBER: Final = 90_000
FIRST_VERSION: Final = 1
ROW: Final = StoredPlace("", "", Role.KEY, "doc", nests=False)
ABSENT: Final = object()
EMPTY: Final[Mapping[Shape, object]] = {
    Shape.TEXT: "",
    Shape.NAMED: "",
    Shape.INTEGER: 0,
    Shape.NUMBER: 0,
    Shape.FLAG: False,
    Shape.OBJECT: {},
    Shape.MAP: {},
    Shape.LIST: [],
    Shape.DECIMAL: 0,
    Shape.BYTES: b"",
}
# The same inside of a JSON column.
EMPTY_IN_JSON: Final[Mapping[Shape, object]] = {**EMPTY, Shape.DECIMAL: "0", Shape.BYTES: ""}


class Kind(StrEnum):
    """What is done to a value, a row or the schema, in the words of the report."""

    STEP = "value changed by the least step"
    NULL = "null for a value"
    MISSING = "value missing"
    NULL_FOR_MISSING = "null for a missing value"
    EMPTY_FOR_MISSING = "empty value for a missing one"
    BLANK = "blank added"
    CASE = "case changed"
    UNICODE = "Unicode form changed"
    FORM = "type changed"
    SCALE = "scale of a decimal changed"
    PART_OF_MILLISECOND = "part of a millisecond added"
    ORDER = "order in a list changed"
    KEY_ADDED = "key added"
    KEY_RENAMED = "key renamed to its Python name"
    KEY_DUPLICATED = "key duplicated"
    KEY_CASE = "case of a key changed"
    ROW_MISSING = "row missing"
    ROW_UNDER_OTHER_KEY = "row doubled under another key"
    ROW_UNDER_OTHER_TENANT = "row doubled under another tenant"
    TENANT = "tenant swapped"
    INDEX = "index dropped"
    KEY = "key of the table dropped"
    POLICY = "policy dropped or switched off"


ADDING: Final = frozenset({Kind.ROW_UNDER_OTHER_KEY, Kind.ROW_UNDER_OTHER_TENANT})
# No service reads a row with one of these at the top, in a field that every row has.
UNREADABLE: Final = frozenset({Kind.NULL, Kind.FORM, Kind.KEY_RENAMED, Kind.KEY_DUPLICATED})
# Another generated identity is as good; only an invalid one is a corruption.
OF_GENERATED: Final = frozenset({Kind.NULL, Kind.MISSING, Kind.FORM, Kind.KEY_DUPLICATED})


@dataclass(frozen=True, slots=True)
class MutationPoint:
    """One place in one row, at any depth.

    Attributes:
        entity, key: the row.
        place: the column, or the name at the top of the document.
        role: what it is for.
        path: the steps from the row to it, the place first; empty for the row.
        shown: the path under which a comparison names it.
        field: the same without the numbers of items and the keys of free maps.
        value: what is stored there, or ``ABSENT``.
        shape: what the description says of it, ``None`` for free JSON.
        own_name: its Python name, where the description names it.
        above: the path of what holds it.
        in_map: whether its name is chosen by users.
    """

    entity: Entity
    key: Key
    place: StoredPlace
    role: Role
    path: tuple[str | int, ...]
    shown: str
    field: str
    value: object
    shape: ValueShape | None = None
    own_name: str | None = None
    above: str = "doc"
    in_map: bool = False

    @property
    def at_top(self) -> bool:
        """Whether it is a column, or at the top of a document."""
        return len(self.path) == 1

    def put(self, kind: Kind, value: object, form: str = "") -> Corruption:
        """Return a corruption that stores another value there."""
        return Corruption(self, kind, {self.path[-1]: value}, form)

    def inner(self) -> Iterator[MutationPoint]:
        """Yield it and the places inside, those that the description names and the row lacks last."""
        yield self
        shape, role = self.shape, Role.FIELD if self.place.role is Role.PAYLOAD else self.role
        within = replace(self, role=role, own_name=None, in_map=False, shape=shape and shape.item)
        if isinstance(self.value, dict):
            content = cast("dict[str, object]", self.value)
            free = shape is None or shape.kind is not Shape.OBJECT
            described = (
                {} if free else {item.wire: item for item in shapes_of(cast("ValueShape", shape).model)}
            )
            within = replace(within, above=self.shown, in_map=free)
            for name in dict.fromkeys((*content, *described)):
                known = described.get(name)
                point = replace(
                    within,
                    path=(*self.path, name),
                    shown=member(self.shown, name),
                    field=f"{self.field}.*" if free else member(self.field, name),
                    value=content.get(name, ABSENT),
                )
                if known is not None:
                    point = replace(point, shape=known.value, own_name=known.name)
                yield from point.inner()
        elif isinstance(self.value, list):
            for number, value in enumerate(cast("list[object]", self.value)[:ITEMS]):
                place = {"path": (*self.path, number), "shown": f"{self.shown}[{number}]"}
                yield from replace(within, **cast("Any", place), field=f"{self.field}[]", value=value).inner()


@dataclass(frozen=True, slots=True)
class Corruption:
    """One corruption of one row.

    Attributes:
        point: the place.
        kind, form: what it is, and which of several of that kind.
        changes: new members of what holds the place, by name or number; ``ABSENT`` for none.
        free: the definition leaves the value open, so that a comparison must not name it.
    """

    point: MutationPoint
    kind: Kind
    changes: Mapping[str | int, object]
    form: str = ""
    free: bool = False

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What distinguishes it from others, in whichever row it is planted."""
        return self.point.entity.name, self.point.field, self.kind.value, self.form

    @property
    def named(self) -> dict[str, Any]:
        """What the report shows of it."""
        entity, place, kind, form = self.identity
        return {"entity": entity, "field": place, "role": self.point.role.value, "kind": kind, "form": form}

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of which a comparison must name one, or what lies below."""
        point, added = self.point, self.kind is Kind.KEY_ADDED
        above = point.shown if added else point.above
        return tuple(
            member(above, str(name)) if added or name != point.path[-1] else point.shown
            for name in self.changes
        )

    def of(self, values: Values) -> dict[str, object] | None:
        """Return the corrupted row; ``None`` where it is removed."""
        if self.kind is Kind.ROW_MISSING:
            return None
        row: Any = deepcopy(dict(values))
        holder = row
        for step in self.point.path if self.kind is Kind.KEY_ADDED else self.point.path[:-1]:
            holder = holder[step]
        for name, value in self.changes.items():
            if value is ABSENT:
                holder.pop(name, None)
            else:
                holder[name] = value
        return cast("dict[str, object]", row)


@dataclass(frozen=True, slots=True)
class EntityContext:
    """The common properties of the rows of an entity, and how each row can be corrupted.

    Attributes:
        places: the places of its rows.
        taken: the texts that rows have there, by name of the place.
        referenced: keys of rows that rows of other entities name as their parent.
        tenants: all tenants.
        spare: keys of parents without a row of this entity.
    """

    entity: Entity
    corruption_writer: CorruptionWriter
    places: Sequence[StoredPlace]
    taken: Mapping[str, AbstractSet[object]]
    referenced: AbstractSet[Key]
    tenants: Sequence[str]
    spare: Sequence[Key]

    def corruptions(self, key: Key, values: Values) -> Iterator[Corruption]:
        """Yield every corruption of a row that changes no other row."""
        for item in self._all(key, values):
            moves = item.kind is Kind.ROW_MISSING or (item.point.role is Role.KEY and item.kind not in ADDING)
            if not (moves and key in self.referenced):
                yield item

    def _all(self, key: Key, values: Values) -> Iterator[Corruption]:
        row = MutationPoint(self.entity, key, ROW, Role.KEY, (), "(row)", "(row)", values)
        yield Corruption(row, Kind.ROW_MISSING, {})
        yield Corruption(row, Kind.ROW_UNDER_OTHER_KEY, self._duplicate(values, 0))
        if not self.corruption_writer.tabular:
            document = replace(row, role=Role.FIELD, shown="doc", field="doc")
            yield Corruption(document, Kind.KEY_ADDED, {ADDED: "x"})
            yield Corruption(document, Kind.KEY_ADDED, {f"_{ADDED}": "x"}, "underscore")
        for place in self.places:
            if place.field == self.entity.tenant_field:
                other = next(
                    (name for name in self.tenants if name != values.get(place.name)), "another-tenant"
                )
                duplicate = {**self._duplicate(values, 1), place.name: other}
                yield Corruption(row, Kind.ROW_UNDER_OTHER_TENANT, duplicate)
                yield self._top(key, place, values).put(Kind.TENANT, other)
            for point in self._top(key, place, values).inner():
                yield from self._of_role(point)

    def _top(self, key: Key, place: StoredPlace, values: Values) -> MutationPoint:
        """Return the spot of a place of a row."""
        entity, value = self.entity, values.get(place.name, ABSENT)
        payload, shape = place.role is Role.PAYLOAD, entity.shapes.get(place.field)
        kinds = {item.name: item.kind for item in entity.derived}
        kinds |= {item.name: item.kind for item in entity.storage}
        described = None if shape is None else shape.value
        if payload or place.field in kinds:
            described = ValueShape(kinds.get(place.field, Shape.OBJECT), entity.model)
        own_name = to_snake(place.name) if shape is None or place.field in entity.markers else shape.name
        shown = place.part if payload else member(place.part, place.field)
        value = ABSENT if value is None and self.corruption_writer.tabular else value
        return MutationPoint(
            entity, key, place, place.role, (place.name,), shown, shown, value, described, own_name
        )

    def _duplicate(self, values: Values, number: int) -> dict[str | int, object]:
        """Return what changes in a second row like this one under another key."""
        named = {place.field: place.name for place in self.places}
        payload = next((place.name for place in self.places if place.role is Role.PAYLOAD), "")
        content = cast("Values", values.get(payload) or {})

        def value_of(name: str) -> object:
            return values.get(named[name]) if name in named else content.get(name)

        parent = self.spare[number][0] if number < len(self.spare) else None
        own = own_values(self.entity, value_of, DUPLICATE_NUMBER, parent)
        inside = {name: value for name, value in own.items() if name not in named}
        # An identity follows from the key, or the server makes another.
        made = (place.name for place in self.places if place.role in {Role.IDENTITY, Role.GENERATED})
        writer = self.corruption_writer
        for name in own.keys() & named.keys():
            # What follows from a key is a text; the store has its own type for some.
            stored = values.get(named[name])
            if self.entity.known[name] in TYPED and writer.typed_text(stored) is not None:
                own[name] = writer.typed_value(stored, str(own[name]))
        return {
            **{named[name]: value for name, value in own.items() if name in named},
            **({payload: {**content, **inside}} if inside else {}),
            **dict.fromkeys(made, ABSENT),
        }

    def _of_role(self, point: MutationPoint) -> Iterator[Corruption]:
        """Yield the corruptions of a place that its role allows: a free value, and an invalid one."""
        release, role, value = self.entity.release, point.place.role, point.value
        fence = release is not None and point.place.field == release.fence
        if role is Role.COUNTER and not isinstance(value, int):
            return
        for item in self._at(point):
            if role is Role.GENERATED:
                if item.kind in OF_GENERATED:
                    made = item.kind is Kind.MISSING
                    yield replace(item, form="generated again", free=True) if made else item
            elif item.kind is Kind.STEP and isinstance(value, int) and (role is Role.COUNTER or fence):
                # A target may be ahead in it and never behind.
                yield replace(item, form="ahead" if fence else "counted on", free=True)
                lower, form = (
                    (value - 1, "behind") if fence else (FIRST_VERSION - 1, "below the first number")
                )
                yield point.put(Kind.STEP, type(value)(lower), form)
            elif release is None or role is not Role.FIELD or fence or is_noticed(point, item.kind):
                yield item

    def _at(self, point: MutationPoint) -> Iterator[Corruption]:
        """Yield the corruptions of what is stored at a place, by its type."""
        column, value = point.at_top and self.corruption_writer.tabular, point.value
        if value is ABSENT:
            # In a table nothing but null says that a value is missing.
            if not column or point.place.nests:
                yield point.put(Kind.NULL_FOR_MISSING, STORED_NULL if column else None)
            nests = point.place.nests and self.corruption_writer.tabular
            empty = EMPTY_IN_JSON if nests else EMPTY
            if point.shape is not None and point.shape.kind in empty:
                yield point.put(Kind.EMPTY_FOR_MISSING, empty[point.shape.kind])
            return
        yield point.put(Kind.NULL, None)
        if column and point.place.nests:
            yield point.put(Kind.NULL, STORED_NULL, "of JSON")
        yield from (
            point.put(Kind.FORM, other, form)
            for form, other in self.corruption_writer.forms(point.place, value)
        )
        yield from (point.put(kind, other, form) for kind, other, form in self._other_values(point))
        if isinstance(value, dict):
            yield Corruption(point, Kind.KEY_ADDED, {ADDED: "x"})
        if not column and isinstance(point.path[-1], str):
            yield from self._of_name(point, point.path[-1])

    def _of_name(self, point: MutationPoint, name: str) -> Iterator[Corruption]:
        """Yield what can be done to a member of an object because it has a name."""
        yield point.put(Kind.MISSING, ABSENT)
        if not self.corruption_writer.tabular:  # JSON columns store each name once
            yield point.put(Kind.KEY_DUPLICATED, DuplicateMember(point.value))
        if point.in_map and (other := other_case(name)) is not None:
            yield Corruption(point, Kind.KEY_CASE, {name: ABSENT, other: point.value})
        if point.own_name is not None and point.own_name != name:
            yield Corruption(point, Kind.KEY_RENAMED, {name: ABSENT, point.own_name: point.value})

    def _other_typed(self, point: MutationPoint, kind: Shape) -> Iterator[tuple[Kind, object, str]]:
        """Yield the least changes of an ObjectId, UUID, decimal or bytes, in the type that the store has."""
        value, writer = point.value, self.corruption_writer
        text = value if isinstance(value, str) else writer.typed_text(value)
        for what, other in () if text is None else other_typed_texts(kind, text):
            yield what, other if isinstance(value, str) else writer.typed_value(value, other), ""
        if isinstance(value, str):
            yield Kind.BLANK, f"{value} ", ""
            if (cased := other_case(value)) is not None:
                yield Kind.CASE, cased, ""

    def _other_values(self, point: MutationPoint) -> Iterator[tuple[Kind, object, str]]:
        """Yield the least changes of a value: kind, value and form."""
        if point.shape is not None and point.shape.kind in TYPED:
            yield from self._other_typed(point, point.shape.kind)
            return
        match point.value:
            case str() as value:
                taken = self.taken[point.place.name] if point.at_top else frozenset[object]()
                yield from changed_texts(point, value, taken)
            case datetime() as value:
                # Under other names of the same map there are values of other kinds.
                yield Kind.STEP, moved(value, MILLISECOND), "of a date" if point.in_map else ""
                yield Kind.PART_OF_MILLISECOND, moved(value, PART), ""
                if not self.corruption_writer.tabular:
                    text = f"{moved(value, PART).isoformat(timespec='microseconds')}+00:00"
                    yield Kind.PART_OF_MILLISECOND, text, "as text"
            case bool() | int() | float() as value:
                yield Kind.STEP, next_number(point, value), ""
            case list():
                items = cast("list[object]", point.value)
                at = next((at for at in range(len(items) - 1) if items[at] != items[at + 1]), None)
                if at is not None:
                    yield Kind.ORDER, [*items[:at], items[at + 1], items[at], *items[at + 2 :]], ""
            case _:
                pass


def is_noticed(point: MutationPoint, kind: Kind) -> bool:
    """Whether a service would notice a corruption of a row that is copied as released.

    Only key, tenant and fence of such a row are determined. Its other values belong to an earlier owner, and
    only an unreadable value is a corruption there.
    """
    shape = point.entity.shapes[point.place.field]
    # A field with a default is read as the default if it is missing or null.
    required = point.entity.model.model_fields[shape.name].is_required()
    unreadable = required if kind in {Kind.NULL, Kind.MISSING} else kind in UNREADABLE
    return point.at_top and shape.always_written and unreadable


def changed_texts(
    point: MutationPoint, value: str, taken: AbstractSet[object]
) -> Iterator[tuple[Kind, object, str]]:
    """Yield the least changes of a text; where it is an instant, of that."""
    is_date = point.in_map and point.path[-1] == DATE
    described = point.shape is not None and point.shape.kind is Shape.INSTANT
    instant = instant_of(value) if is_date or described else None
    if instant is None:
        yield Kind.STEP, next_text(point, value, taken), ""
    else:
        later = json_text.format_timestamp(moved(instant, MILLISECOND))
        yield Kind.STEP, later, "of a date" if is_date else ""
        yield Kind.PART_OF_MILLISECOND, moved(instant, PART).isoformat(), ""
    yield Kind.BLANK, f"{value} ", ""
    if (other := other_case(value)) is not None:
        yield Kind.CASE, other, ""
    forms = (normalize("NFD", value), normalize("NFC", value))
    yield from ((Kind.UNICODE, form, "") for form in [form for form in forms if form != value][:1])


def other_typed_texts(kind: Shape, text: str) -> Iterator[tuple[Kind, str]]:
    """Yield the wire forms next to that of an ObjectId, UUID, decimal or bytes."""
    match kind:
        case Shape.OBJECT_ID:
            yield Kind.STEP, f"{(int(text, 16) + 1) % 2**96:024x}"
        case Shape.UUID:
            yield Kind.STEP, str(UUID(int=(UUID(text).int + 1) % 2**128))
        case Shape.DECIMAL:
            yield Kind.STEP, f"{text[:-1]}{'8' if text[-1] == '9' else int(text[-1]) + 1}"
            longer = f"{text}{'' if '.' in text else '.'}0"
            with suppress(PydanticCustomError):  # of the most digits there is none
                decimal_number(longer)
                yield Kind.SCALE, longer
        case _:
            content = b64decode(text) or b"\x01"
            yield Kind.STEP, json_text.format_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def moved(instant: datetime, step: timedelta) -> datetime:
    """Return an instant a step later; earlier in the last year that Python has."""
    return instant - step if instant.year == MAXYEAR else instant + step


def next_number(point: MutationPoint, value: float) -> object:
    """Return the next number, flag or number of an enumeration."""
    if isinstance(value, bool):
        return not value
    if point.shape is not None and point.shape.kind is Shape.NUMBERED:
        numbers = sorted(item.number for item in cast("type[NumberedEnum]", point.shape.cls))
        return next((number for number in numbers if number > value), numbers[0])
    return type(value)(value + 1)


def next_text(point: MutationPoint, value: str, taken: AbstractSet[object]) -> str:
    """Return the next member of an enumeration, or the text with another last character."""
    shape = point.shape
    if shape is not None and shape.kind in {Shape.NAMED, Shape.NUMBERED}:
        members = [item.value for item in shape.members]
        if value in members:
            return str(members[(members.index(value) + 1) % len(members)])
    head, last = value[:-1], ord(value[-1]) if value else ord("`")
    # The first character follows the last one of all.
    following = (chr((last + step) % (sys.maxunicode + 1)) for step in count(1))
    return next(text for char in following if char.isprintable() and (text := f"{head}{char}") not in taken)


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
