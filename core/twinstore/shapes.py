"""What the fields of a model look like to a store, read from the annotations once.

Columns, encoders, validators and the places of instants follow from here, so that no driver lists the fields
of a model a second time.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum
from functools import cache
from typing import Annotated, Final, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from twinstore.canonical import CanonicalModel
from twinstore.enums import NumberedEnum
from twinstore.variants import variants_of

__all__ = [
    "FieldShape",
    "Kind",
    "has_floats",
    "holds_floats",
    "instant_paths",
    "is_whole",
    "left_out_values",
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
    HEX = "32 digits of a UUID"


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
    """Return the fields of a model in canonical order.

    A base of several models has the fields of all of them; one that some of them lack is optional.
    """
    variants = variants_of(model)
    if variants:
        return merged([shapes_of(variant) for variant in variants])
    return tuple(_field(name, info) for name, info in model.model_fields.items())


def merged(several: Sequence[Sequence[FieldShape]]) -> tuple[FieldShape, ...]:
    """Return the fields of several models, those of the first one first."""
    found = {shape.wire: shape for shapes in reversed(several) for shape in shapes}
    order = dict.fromkeys(shape.wire for shapes in several for shape in shapes)
    each = [{shape.wire: shape for shape in shapes} for shapes in several]
    return tuple(_joint(found[wire], [shapes.get(wire) for shapes in each]) for wire in order)


def _joint(shape: FieldShape, several: Sequence[FieldShape | None]) -> FieldShape:
    """Return one field for those of several models; ``None`` where a model lacks it."""
    there = [item for item in several if item is not None]
    return replace(
        shape,
        value=joint_value([item.value for item in there]),
        optional=len(there) < len(several) or any(item.optional for item in there),
        left_out=any(item.left_out for item in there),
    )


def joint_value(several: Sequence[ValueShape]) -> ValueShape:
    """Return one value for those of several models: any of the texts of some enumerations, or any JSON."""
    first, *others = several
    if all(other == first for other in others):
        return first
    if all(item.kind in {Kind.NAMED, Kind.NUMBERED} for item in several):
        texts = dict.fromkeys(member.value for item in several for member in item.members)
        # Of no interest but for its texts: models know their own.
        joint = cast("type[StrEnum]", StrEnum("OneOfSeveral", [(text, text) for text in texts]))
        return ValueShape(Kind.NAMED, joint)
    return ValueShape(Kind.MAP, object)


def wire_name(name: str, info: FieldInfo) -> str:
    """Return the name of a field in the wire form."""
    return info.serialization_alias or info.alias or name


def instant_paths(model: type[BaseModel]) -> tuple[FieldPath, ...]:
    """Return the wire paths of all instants of a model; lists and maps on the way do not count."""
    return tuple(_instants(model))


def is_whole(value: ValueShape) -> bool:
    """Whether a value is an integer, or a list of integers."""
    item = value.item if value.kind is Kind.LIST else value
    return item is not None and item.kind is Kind.INTEGER


def left_out_values(model: type[BaseModel]) -> dict[str, object]:
    """Return by wire name the value with which a field is left out of the wire form, such as ``[]`` or 0.

    It is the default, because a reader takes that for a field that is not there.
    """
    return {
        shape.wire: _plain(kind.model_fields[shape.name].get_default(call_default_factory=True))
        for kind in variants_of(model) or (model,)
        for shape in shapes_of(kind)
        if shape.left_out
    }


def _plain(default: object) -> object:
    """Return a default as JSON has it."""
    return list(cast("tuple[object, ...]", default)) if isinstance(default, tuple) else default


@cache
def has_floats(model: type[BaseModel]) -> bool:
    """Whether a model may hold floating-point numbers, in fields of its own, nested ones or free JSON."""
    return any(holds_floats(shape.value) for shape in shapes_of(model))


def holds_floats(value: ValueShape) -> bool:
    """Whether a value may hold floating-point numbers, itself or below."""
    if value.item is not None:
        return holds_floats(value.item)
    if value.kind is Kind.OBJECT:
        return has_floats(value.model)
    return value.kind in {Kind.MAP, Kind.NUMBER}


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


def _innermost(value: ValueShape) -> ValueShape:
    """Return what a list of lists holds in the end."""
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    return value
