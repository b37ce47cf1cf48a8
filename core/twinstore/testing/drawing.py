"""Hypothesis strategies of models, derived from the annotations of their fields.

Each value reaches the limits that its annotation admits. Rules between fields are not known here: a drawn
model that breaks one is drawn again, so a model with strict ones gets strategies for the fields concerned.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, Union, cast, get_args, get_origin
from uuid import UUID

import pydantic
from hypothesis import strategies as st
from pydantic import JsonValue, StringConstraints

from twinstore.catalog.keys import KeyType
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import INT64_MAX, NO_CONTROL, NO_NUL, TENANT_PATTERN, SchemaVersion, WholeNumber
from twinstore.models.shapes import Kind, variants_of
from twinstore.testing import scalars

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from twinstore.catalog.entity import Entity

__all__ = ["models", "number_of", "object_id_named", "rows", "uuid_named", "values"]

M = TypeVar("M", bound=CanonicalModel)
Drawn = st.SearchStrategy[object]

MOST_ITEMS: Final = 3
UNIQUE: Final = 128  # characters of a key that no other key shares, which a unique text has
UNBOUNDED: Final = 40  # characters; a field without a limit is as long in life
# Patterns that are written for another regular expression engine, or have a strategy that reaches further.
PATTERNS: Final[Mapping[str, Callable[[int], st.SearchStrategy[str]]]] = {
    NO_NUL: lambda length: scalars.texts(max_size=length),
    NO_CONTROL: lambda length: scalars.ids(max_size=length),
    TENANT_PATTERN: lambda _: scalars.tenant_ids(),
    r"^sha256:[0-9a-f]{64}$": lambda _: scalars.digests(),
    r"^[A-Za-z0-9][A-Za-z0-9._:-]*$": lambda _: scalars.simple_identifiers(),
}


def rows(entity: Entity[M], tenant: str, key: str, **fields: Drawn) -> st.SearchStrategy[M]:
    """Return models of an entity under a tenant and a key; ``fields`` replace what is derived.

    The parent, the last text of the key and unique texts follow from the key that is given; where a key has
    neither parent nor text, its last number does. Other fields are drawn.
    """
    names = {wire: shape.name for wire, shape in entity.shapes.items() if wire not in entity.markers}
    parts = [part.field for part in entity.key_parts if part.field != entity.tenant_field]
    texts = [wire for wire in parts if entity.known[wire] in TEXTS]
    above = () if entity.parent is None else (entity.parent.field,)
    given: dict[str, object] = {index.names[-1]: key[:UNIQUE].strip() for index in entity.uniques}
    given |= dict.fromkeys((*above, *texts[-1:]) or parts[-1:], key)
    if entity.tenant_field is not None:
        given[entity.tenant_field] = tenant
    identity: dict[str, Drawn] = {}
    for wire in given.keys() & names.keys():
        if entity.known[wire] is Kind.TEXT:
            identity[names[wire]] = st.just(given[wire])
        elif entity.known[wire] in IDS:
            identity[names[wire]] = st.just(IDS[entity.known[wire]](str(given[wire])))
        elif entity.known[wire] is Kind.INTEGER:
            bounds = bounds_of(entity.model.model_fields[names[wire]].metadata)
            identity[names[wire]] = st.just(number_of(key, *bounds))
    return models(entity.model, **{**identity, **fields})


def object_id_named(name: str) -> str:
    """Return the ObjectId of a name, which may be one; other names have other ones."""
    return name if KeyType.OBJECT_ID.admits(name) else sha256(name.encode()).hexdigest()[:24]


def uuid_named(name: str) -> str:
    """Return the UUID of a name, which may be one; other names have other ones."""
    return name if KeyType.BINARY_UUID.admits(name) else str(UUID(sha256(name.encode()).hexdigest()[:32]))


IDS: Final[Mapping[Kind, Callable[[str], str]]] = {
    Kind.OBJECT_ID: object_id_named,
    Kind.UUID: uuid_named,
}
TEXTS: Final = frozenset({Kind.TEXT, *IDS})


def number_of(name: str, low: int = 1, high: int = INT64_MAX) -> int:
    """Return the number of a name between two bounds; other names have other numbers."""
    return low + int.from_bytes(sha256(name.encode()).digest()) % (high - low + 1)


def models(cls: type[M], **fields: Drawn) -> st.SearchStrategy[M]:
    """Return models of a class; ``fields`` (Python names) replace what is derived."""
    if variants := variants_of(cls):
        return cast("st.SearchStrategy[M]", st.one_of([models(variant, **fields) for variant in variants]))
    drawn = {name: field_values(info) for name, info in cls.model_fields.items() if name not in fields}
    present = {name: strategy for name, strategy in drawn.items() if strategy is not None}

    def made(chosen: dict[str, object]) -> M | None:
        try:
            return cls.model_validate(chosen)
        except pydantic.ValidationError:
            return None

    found = st.fixed_dictionaries({**present, **fields}).map(made).filter(lambda model: model is not None)
    return cast("st.SearchStrategy[M]", found)


def field_values(info: FieldInfo) -> Drawn | None:
    """Return the values of a field, ``None`` for the version of a format, which has its one value."""
    if any(isinstance(item, SchemaVersion) for item in info.metadata):
        return None
    return values(info.annotation, info.metadata)


def values(annotation: object, metadata: Sequence[object] = ()) -> Drawn:
    """Return the values that an annotation admits.

    Raises:
        TypeError: nothing is known about it; give a strategy for the field.
    """
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return values(inner, [*more, *metadata])
    if annotation is JsonValue:
        return scalars.free_values()
    arguments = get_args(annotation)
    if get_origin(annotation) in {Union, types.UnionType}:
        return st.one_of([values(part, metadata) for part in arguments])
    if get_origin(annotation) in {list, tuple}:
        return st.lists(values(arguments[0]), max_size=MOST_ITEMS).map(
            list if get_origin(annotation) is list else tuple
        )
    if get_origin(annotation) is dict:
        pairs = st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=MOST_ITEMS)
        return cast("Drawn", pairs)
    if isinstance(annotation, type):
        return scalar(annotation, metadata)
    raise TypeError(f"no values are known for {annotation!r}")


def scalar(cls: type, metadata: Sequence[object]) -> Drawn:
    """Return the values of a class that holds no others, or of a nested model."""
    if issubclass(cls, CanonicalModel):
        return models(cls)
    if issubclass(cls, StrEnum):
        return st.sampled_from(list(cls))
    if issubclass(cls, str):
        return texts(metadata)
    if issubclass(cls, bool):
        return st.booleans()
    if issubclass(cls, int):
        return integers(metadata)
    simple: dict[type, Callable[[], Drawn]] = {
        Decimal: scalars.decimals,
        bytes: lambda: st.binary(max_size=UNBOUNDED),
        float: lambda: st.floats(allow_nan=False, allow_infinity=False),
        datetime: scalars.instants,
        types.NoneType: st.none,
    }
    if cls not in simple:
        raise TypeError(f"no values are known for {cls.__name__}")
    return simple[cls]()


def texts(metadata: Sequence[object]) -> Drawn:
    """Return texts under their constraints, those of full length among them."""
    (limits,) = [item for item in metadata if isinstance(item, StringConstraints)] or [StringConstraints()]
    pattern = str(limits.pattern or NO_NUL)
    longest = limits.max_length or UNBOUNDED
    strip: Callable[[str], str] = str.strip if limits.strip_whitespace else str
    if pattern in PATTERNS:
        drawn = PATTERNS[pattern](longest)
    else:
        drawn = st.from_regex(pattern.removeprefix("^").removesuffix("$"), fullmatch=True)
    if pattern == NO_NUL and limits.max_length is not None:
        drawn |= st.sampled_from(scalars.EDGE_TEXTS).map(lambda text: text[0] * longest)
    return drawn.filter(lambda text: (limits.min_length or 0) <= len(strip(text)) <= longest)


def integers(metadata: Sequence[object]) -> Drawn:
    """Return integers between their bounds, which are 64 bits where none are given."""
    low, high = bounds_of(metadata)
    edges = [edge for edge in (low, -1, 0, 1, 2**31 - 1, 2**31, 2**53 + 1, high) if low <= edge <= high]
    return st.sampled_from(edges) | st.integers(low, high)


def bounds_of(metadata: Sequence[object]) -> tuple[int, int]:
    """Return the lowest and the highest number that a field admits."""
    (bounds,) = [item for item in metadata if isinstance(item, WholeNumber)] or [WholeNumber()]
    return bounds.minimum, bounds.maximum
