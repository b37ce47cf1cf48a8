"""What the fields of a model look like to a store, read from the annotations once.

Columns, encoders, validators and the places of instants follow from here, so that no driver lists the fields
of a model a second time.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum, StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self, Union, Unpack, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import core_schema
from typing_extensions import override

from twinstore.models.canonical import CanonicalModel, schema_serializer, schema_validator
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import KeepsUnknown, StoredType
from twinstore.models.json_text import format_bytes, format_decimal

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = [
    "FieldShape",
    "Kind",
    "VariantModel",
    "has_floats",
    "holds_floats",
    "instant_paths",
    "is_whole",
    "lossy_map",
    "lossy_map_reason",
    "omitted_values",
    "shapes_of",
    "variants_of",
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
    OBJECT_ID = "ObjectId"
    UUID = "binary UUID"
    DECIMAL = "decimal number"
    BYTES = "bytes"


SCALARS: Final[tuple[tuple[type, Kind], ...]] = (
    # A subclass comes before its base: an enumeration is a text, and a flag an integer.
    (CanonicalModel, Kind.OBJECT),
    (NumberedEnum, Kind.NUMBERED),
    (StrEnum, Kind.NAMED),
    (str, Kind.TEXT),
    (bool, Kind.FLAG),
    (int, Kind.INTEGER),
    (float, Kind.NUMBER),
    (datetime, Kind.INSTANT),
)


TYPED: Final = frozenset({Kind.OBJECT_ID, Kind.UUID, Kind.DECIMAL, Kind.BYTES})
"""What documents and tables hold as a type that JSON does not have, besides instants."""


@dataclass(frozen=True, slots=True)
class ValueShape:
    """One value.

    Attributes:
        kind: what it is.
        cls: the class of a scalar or nested model; ``object`` for free JSON inside a map.
        item: what a list or map holds, ``None`` for free JSON.
        nullable: whether it is an item of a list or map that may be null.
    """

    kind: Kind
    cls: type
    item: ValueShape | None = None
    nullable: bool = False

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
        optional: whether it may be null, and is then omitted from the wire form.
        left_out: whether it is omitted for another reason, for example when empty.
        keeps_unknown: whether it holds the properties that no field names.
    """

    name: str
    wire: str
    value: ValueShape
    optional: bool
    left_out: bool
    keeps_unknown: bool = False

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
    if any(holds_typed(item) for item in several):
        raise TypeError(
            "models of one table hold an ObjectId, UUID, decimal or bytes under a name that means something "
            "else in another of them"
        )
    if all(item.kind in {Kind.NAMED, Kind.NUMBERED} for item in several):
        texts = dict.fromkeys(member.value for item in several for member in item.members)
        # Of no interest but for its texts: models know their own.
        combined_subject = cast("type[StrEnum]", StrEnum("OneOfSeveral", [(text, text) for text in texts]))
        return ValueShape(Kind.NAMED, combined_subject)
    return ValueShape(Kind.MAP, object)


def wire_name(name: str, info: FieldInfo) -> str:
    """Return the name of a field in the wire form."""
    found = info.alias if info.serialization_alias is None else info.serialization_alias
    return name if found is None else found


def instant_paths(model: type[BaseModel]) -> tuple[FieldPath, ...]:
    """Return the wire paths of all instants of a model; lists and maps on the way do not count."""
    return tuple(_instants(model))


@cache
def typed_paths(model: type[BaseModel]) -> tuple[tuple[FieldPath, Kind], ...]:
    """Return the wire paths of all values of :data:`TYPED` with their kinds; lists do not count."""
    return tuple(_typed(model))


def holds_typed(value: ValueShape, around: tuple[type, ...] = ()) -> bool:
    """Whether a value may be one of :data:`TYPED`, itself or below; ``around`` are the models above it."""
    if value.item is not None:
        return holds_typed(value.item, around)
    if value.kind is Kind.OBJECT and value.cls not in around:
        return any(holds_typed(shape.value, (*around, value.cls)) for shape in shapes_of(value.model))
    return value.kind in TYPED


@cache
def has_decimals(model: type[BaseModel]) -> bool:
    """Whether a model may hold decimals, which are equal to others that are stored otherwise."""
    return any(kind is Kind.DECIMAL for _, kind in typed_paths(model))


def is_whole(value: ValueShape) -> bool:
    """Whether a value is an integer, or a list of integers of which none is null."""
    item = value.item if value.kind is Kind.LIST else value
    return item is not None and item.kind is Kind.INTEGER and not item.nullable


def omitted_values(model: type[BaseModel]) -> dict[str, object]:
    """Return by wire name the value with which a field is omitted from the wire form, such as ``[]`` or 0.

    It is the default, because a reader uses that for an absent field.
    """
    return {
        shape.wire: _plain(kind.model_fields[shape.name].get_default(call_default_factory=True))
        for kind in variants_of(model) or (model,)
        for shape in shapes_of(kind)
        if shape.left_out
    }


def _plain(default: object) -> object:
    """Return a default as JSON has it."""
    if isinstance(default, Decimal | bytes):
        return format_decimal(default) if isinstance(default, Decimal) else format_bytes(default)
    return list(cast("tuple[object, ...]", default)) if isinstance(default, tuple) else default


@cache
def has_floats(model: type[BaseModel]) -> bool:
    """Whether a model may hold floating-point numbers, in its own fields, nested ones or free JSON."""
    return any(holds_floats(shape.value) for shape in shapes_of(model))


def holds_floats(value: ValueShape) -> bool:
    """Whether a value may hold floating-point numbers, itself or below."""
    if value.item is not None:
        return holds_floats(value.item)
    if value.kind is Kind.OBJECT:
        return has_floats(value.model)
    return value.kind in {Kind.LIST, Kind.MAP, Kind.NUMBER}


def _field(name: str, info: FieldInfo) -> FieldShape:
    annotation: object = info.annotation
    if any(isinstance(item, StoredType) for item in info.metadata):
        annotation = info.rebuild_annotation()
    bare = _bare(annotation)
    return FieldShape(
        name=name,
        wire=wire_name(name, info),
        value=_value(annotation),
        optional=_is_optional(bare),
        left_out=info.exclude_if is not None,
        keeps_unknown=any(isinstance(item, KeepsUnknown) for item in info.metadata),
    )


def _bare(annotation: object) -> object:
    """Return an annotation without its metadata."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def metadata_of(annotation: object) -> Iterator[object]:
    """Yield the metadata of an annotation."""
    while get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        yield from metadata


def _stored_type(annotation: object) -> StoredType | None:
    """Return what an annotation says of the type in a store."""
    return next((item for item in metadata_of(annotation) if isinstance(item, StoredType)), None)


def _is_optional(bare: object) -> bool:
    return get_origin(bare) in {Union, types.UnionType} and types.NoneType in get_args(bare)


def _value(annotation: object) -> ValueShape:
    plain = _bare(annotation)
    # Of a field itself this stands beside the annotation.
    if plain is not annotation and any(isinstance(item, KeepsUnknown) for item in metadata_of(annotation)):
        raise TypeError("ExtraProperties is the type of a field itself, and of no part of one")
    if (stored := _stored_type(annotation)) is not None:
        return ValueShape(Kind(stored.kind), cast("type", plain))
    if get_origin(plain) in {Union, types.UnionType}:
        return _one_of([part for part in get_args(plain) if part is not types.NoneType])
    if get_origin(plain) is tuple:
        return ValueShape(Kind.LIST, tuple, _item(get_args(plain)[0]))
    if get_origin(plain) is list and get_args(plain) == (JsonValue,):
        return ValueShape(Kind.LIST, list)
    if get_origin(plain) is dict:
        return ValueShape(Kind.MAP, dict, _free_item(get_args(plain)[1]))
    if isinstance(plain, type):
        for base, kind in SCALARS:
            if issubclass(plain, base):
                return ValueShape(kind, plain)
    raise TypeError(f"{plain!r} has no form in a store")  # met by programmers only


def _one_of(present: list[object]) -> ValueShape:
    if len(present) == 1:
        return _value(present[0])
    if any(_stored_type(part) is not None for part in present):
        raise TypeError("a field of several types cannot be an ObjectId, UUID, decimal or bytes")
    return ValueShape(Kind.MAP, object)  # free JSON: any of several types


def _item(annotation: object) -> ValueShape:
    """Return what a list holds."""
    return replace(_value(annotation), nullable=_is_optional(_bare(annotation)))


def _free_item(annotation: object) -> ValueShape | None:
    """Return what a map holds, ``None`` for free JSON."""
    try:
        return _item(annotation)
    except TypeError:
        return None


def _instants(model: type[BaseModel]) -> Iterator[FieldPath]:
    for shape in shapes_of(model):
        value = _innermost(shape.value)
        if value.kind is Kind.INSTANT:
            yield (shape.wire,)
        elif value.kind is Kind.OBJECT:
            yield from ((shape.wire, *rest) for rest in _instants(value.model))


def _typed(model: type[BaseModel], around: tuple[type, ...] = ()) -> Iterator[tuple[FieldPath, Kind]]:
    for shape in shapes_of(model):
        value = _innermost(shape.value)
        if value.kind in TYPED:
            yield (shape.wire,), value.kind
        elif value.kind is Kind.OBJECT and value.cls not in around:
            inner = _typed(value.model, (*around, value.cls))
            yield from (((shape.wire, *rest), kind) for rest, kind in inner)


def _innermost(value: ValueShape) -> ValueShape:
    """Return what a list of lists holds in the end."""
    while value.kind is Kind.LIST and value.item is not None:
        value = value.item
    return value


class VariantModel(CanonicalModel):
    """Base of models that share a table.

    Models that share one table or one field, distinguished by how one of their texts begins.

    A base names the field; each model under it says with which text the field begins::

        class Shape(VariantModel, discriminator="id"):
            id: Id

        class Circle(Shape, discriminator_prefix="circle_"):
            radius: Count

    Reading a ``Shape`` then reads the model that the text selects, alone, nested, and out of a store.

    Attributes:
        discriminator: the Python name of the field that selects the model; its wire name is the same.
        variants: the models by the text with which that field begins.
    """

    discriminator: ClassVar[str] = ""
    variants: ClassVar[dict[str, type[VariantModel]]] = {}

    def __new__(cls, *values: object, **fields: object) -> Self:
        """Refuse to make an instance of a base, which represents models that have more fields.

        Raises:
            TypeError: it is a base.
        """
        del values, fields
        if variants := variants_of(cls):
            names = " or ".join(variant.__name__ for variant in variants)
            raise TypeError(f"{cls.__name__} stands for several models; make a {names}, or validate it")
        return super().__new__(cls)

    @override
    def __init_subclass__(
        cls, *, discriminator: str = "", discriminator_prefix: str = "", **config: Unpack[ConfigDict]
    ) -> None:
        """Take the words of :meth:`__pydantic_init_subclass__`, which pydantic hands to both."""
        del discriminator, discriminator_prefix
        super().__init_subclass__(**config)

    @override
    @classmethod
    def __pydantic_init_subclass__(cls, **config: object) -> None:
        """Take a base, or a model under one.

        Raises:
            TypeError: the description contradicts itself.
        """
        discriminator, discriminator_prefix = (
            str(config.pop("discriminator", "")),
            str(config.pop("discriminator_prefix", "")),
        )
        super().__pydantic_init_subclass__(**config)
        if discriminator:
            check_base(cls, discriminator)
            cls.discriminator, cls.variants = discriminator, {}
            return
        base = base_of(cls)
        check_variant(cls, base, discriminator_prefix)
        base.variants[discriminator_prefix] = cls
        # Only now the models of the base are known.
        base.model_rebuild(force=True)
        schema_validator.cache_clear()
        schema_serializer.cache_clear()

    @override
    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a model, or that of the choice between those under a base."""
        if not cls.__dict__.get("variants"):
            return handler(source)
        return core_schema.tagged_union_schema(
            {variant.__name__: handler.generate_schema(variant) for variant in cls.variants.values()},
            discriminator=cls.name_of,
            custom_error_type="variant",
            custom_error_message=f"{cls.discriminator} should begin with {' or '.join(cls.variants)}",
        )

    @classmethod
    def name_of(cls, data: object) -> str | None:
        """Return the name of the model that some data are, ``None`` for none of them."""
        if isinstance(data, cls):
            return type(data).__name__
        if not isinstance(data, Mapping):
            return None
        text = cast("Mapping[str, object]", data).get(cls.discriminator)
        found = [name for name in cls.variants if isinstance(text, str) and text.strip().startswith(name)]
        return cls.variants[found[0]].__name__ if found else None


def variants_of(model: type) -> tuple[type[CanonicalModel], ...]:
    """Return the models that a base represents; empty for any other model."""
    is_base = issubclass(model, VariantModel) and "variants" in model.__dict__
    return tuple(model.variants.values()) if is_base and issubclass(model, VariantModel) else ()


def base_of(variant: type[VariantModel]) -> type[VariantModel]:
    """Return the base that distinguishes a model from others.

    Raises:
        TypeError: it has none.
    """
    for base in variant.__mro__:
        if issubclass(base, VariantModel) and base is not VariantModel and "variants" in base.__dict__:
            return base
    raise TypeError(
        f"{variant.__name__} has no base with discriminator, the field that distinguishes its models"
    )


def check_base(base: type[VariantModel], discriminator: str) -> None:
    """Refuse a field that cannot select the model.

    Raises:
        TypeError: there is no such field, or its wire name is another one.
    """
    info = base.model_fields.get(discriminator)
    if info is None:
        known = ", ".join(base.model_fields)
        raise TypeError(
            f"{base.__name__} has discriminator={discriminator!r}, which is not one of its fields: {known}"
        )
    if (info.serialization_alias or info.alias or discriminator) != discriminator:
        raise TypeError(
            f"{base.__name__} has discriminator={discriminator!r}, whose wire name differs; choose a name of "
            "one word"
        )


def check_variant(variant: type[VariantModel], base: type[VariantModel], discriminator_prefix: str) -> None:
    """Refuse a model that cannot be distinguished from the others under its base.

    Raises:
        TypeError: it does not say how the field begins, or another one begins alike.
    """
    if not discriminator_prefix:
        raise TypeError(
            f"{variant.__name__} has no discriminator_prefix, the text with which its "
            f"{base.discriminator} begins"
        )
    for known, other in base.variants.items():
        if known.startswith(discriminator_prefix) or discriminator_prefix.startswith(known):
            raise TypeError(
                f"{variant.__name__} and {other.__name__} cannot be distinguished: their "
                f"{base.discriminator} begin with {discriminator_prefix!r} and {known!r}"
            )


# Names of free maps that a model would not keep apart.
#
# A model may write names in lower case, trim them and drop blank ones; of two that become one it keeps the
# last value. What a service is given may be normalised so. What is only moved must not lose a value.


def lossy_map_reason(path: str) -> str:
    """Return why a row cannot be moved; ``path`` is that of the map that :func:`lossy_map` returned."""
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
        if shape.keeps_unknown:  # in documents there is no such map, and the names stay as they are
            continue
        if value.kind is Kind.MAP:
            yield (shape.wire,), (shape.name,)
        elif value.kind is Kind.OBJECT:
            for wire, names in _paths(value.model):
                yield (shape.wire, *wire), (shape.name, *names)


def _stored(value: object, path: FieldPath) -> int:
    """Return how many names the maps at a path have; lists on the way may come in any order."""
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
