"""What the fields of a model look like to a store, read from the annotations once.

Columns, encoders, validators and the places of instants follow from here, so that no driver lists the fields
of a model a second time.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from functools import cache
from typing import Annotated, Final, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from twinstore.canonical import CanonicalModel
from twinstore.enums import NumberedEnum

__all__ = [
    "FieldShape",
    "Kind",
    "free_maps",
    "has_floats",
    "instant_paths",
    "left_out_when_empty",
    "shapes_of",
]

FieldPath = tuple[str, ...]


class Kind(Enum):
    """What a value is."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    INSTANT = "instant"
    NUMBERED = "enumeration with numbers"
    NAMED = "enumeration of texts"
    OBJECT = "nested model"
    MAP = "map with free keys"
    LIST = "list"


SCALARS: Final[tuple[tuple[type, Kind], ...]] = (
    # A subclass stands before its base: an enumeration is a text, and a flag an integer.
    (CanonicalModel, Kind.OBJECT),
    (NumberedEnum, Kind.NUMBERED),
    (StrEnum, Kind.NAMED),
    (str, Kind.TEXT),
    (bool, Kind.FLAG),
    (int, Kind.INTEGER),
    (float, Kind.NUMBER),
    (datetime, Kind.INSTANT),
)


@dataclass(frozen=True, slots=True)
class ValueShape:
    """One value.

    Attributes:
        kind: what it is.
        cls: the class of a scalar or nested model; ``object`` for free JSON inside a map.
        item: what a list or map holds, ``None`` for free JSON.
    """

    kind: Kind
    cls: type
    item: ValueShape | None = None

    @property
    def model(self) -> type[CanonicalModel]:
        """The nested model."""
        return cast("type[CanonicalModel]", self.cls)

    @property
    def members(self) -> tuple[StrEnum, ...]:
        """The members of an enumeration."""
        return tuple(cast("type[StrEnum]", self.cls))


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One field of a model.

    Attributes:
        name: its Python name.
        wire: its wire name.
        value: what it holds when present.
        optional: whether it may be null, and is then left out of the wire form.
        left_out: whether it is left out for another reason, for example when empty.
    """

    name: str
    wire: str
    value: ValueShape
    optional: bool
    left_out: bool

    @property
    def always_written(self) -> bool:
        """Whether the wire form of every row has the field."""
        return not self.optional and not self.left_out


# A model never changes, and drivers ask for every row that they compile a statement for.
@cache
def shapes_of(model: type[BaseModel]) -> tuple[FieldShape, ...]:
    """Return the fields of a model in canonical order."""
    return tuple(_field(name, info) for name, info in model.model_fields.items())


def wire_name(name: str, info: FieldInfo) -> str:
    """Return the name of a field in the wire form."""
    return info.serialization_alias or info.alias or name


def instant_paths(model: type[BaseModel]) -> tuple[FieldPath, ...]:
    """Return the wire paths of all instants of a model; lists and maps on the way do not count."""
    return tuple(_instants(model))


def free_maps(model: type[BaseModel]) -> tuple[FieldPath, ...]:
    """Return the wire paths of all maps whose keys are chosen by users."""
    return tuple(_maps(model))


def left_out_when_empty(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the wire names of the lists and maps that the wire form leaves out when they are empty."""
    return tuple(shape.wire for shape in shapes_of(model) if shape.left_out)


@cache
def has_floats(model: type[BaseModel]) -> bool:
    """Whether a model may hold floating-point numbers, in fields of its own, nested ones or free JSON."""
    for shape in shapes_of(model):
        value = _innermost(shape.value)
        is_free = value.kind is Kind.MAP and value.item is None
        if is_free or value.kind is Kind.NUMBER or (value.kind is Kind.OBJECT and has_floats(value.model)):
            return True
    return False


def _field(name: str, info: FieldInfo) -> FieldShape:
    bare = _bare(info.annotation)
    optional = get_origin(bare) in {Union, types.UnionType} and types.NoneType in get_args(bare)
    return FieldShape(
        name=name,
        wire=wire_name(name, info),
        value=_value(bare),
        optional=optional,
        left_out=info.exclude_if is not None,
    )


def _bare(annotation: object) -> object:
    """Return an annotation without its metadata."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _value(annotation: object) -> ValueShape:
    plain = _bare(annotation)
    if get_origin(plain) in {Union, types.UnionType}:
        present = [part for part in get_args(plain) if part is not types.NoneType]
        if len(present) != 1:
            return ValueShape(Kind.MAP, object)  # free JSON: any of several types
        return _value(present[0])
    if get_origin(plain) is tuple:
        return ValueShape(Kind.LIST, tuple, _value(get_args(plain)[0]))
    if get_origin(plain) is dict:
        return ValueShape(Kind.MAP, dict, _item(get_args(plain)[1]))
    if isinstance(plain, type):
        for base, kind in SCALARS:
            if issubclass(plain, base):
                return ValueShape(kind, plain)
    raise TypeError(f"{plain!r} has no form in a store")  # met by programmers only


def _item(annotation: object) -> ValueShape | None:
    """Return what a map holds, ``None`` for free JSON."""
    try:
        return _value(annotation)
    except TypeError:
        return None


def _instants(model: type[BaseModel]) -> Iterator[FieldPath]:
    for shape in shapes_of(model):
        value = _innermost(shape.value)
        if value.kind is Kind.INSTANT:
            yield (shape.wire,)
        elif value.kind is Kind.OBJECT:
            yield from ((shape.wire, *rest) for rest in _instants(value.model))


def _maps(model: type[BaseModel]) -> Iterator[FieldPath]:
    for shape in shapes_of(model):
        value = _innermost(shape.value)
        if value.kind is Kind.MAP:
            yield (shape.wire,)
        elif value.kind is Kind.OBJECT:
            yield from ((shape.wire, *rest) for rest in _maps(value.model))


def _innermost(value: ValueShape) -> ValueShape:
    """Return what a list of lists holds in the end."""
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    return value
