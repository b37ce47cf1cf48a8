"""Annotations of fields: what is left without their metadata, and the nodes of what holds no other values."""

from __future__ import annotations

from enum import Enum, StrEnum
from types import NoneType
from typing import Annotated, Final, get_args, get_origin

from pydantic import AfterValidator
from pydantic.types import Strict

from twinstore.canonical import CanonicalModel
from twinstore.enums import NumberedEnum
from twinstore.fast.constraints import UnrecognisedError, text_node, whole_node
from twinstore.fast.nodes import ListRule, Node, NodeKind, NodeText
from twinstore.fast.trust import nested_metadata
from twinstore.fields import Number, Timestamp, string_set
from twinstore.ordering import without_repeats

__all__ = [
    "Metadata",
    "annotation_of",
    "enum_node",
    "list_rule",
    "model_in",
    "only_function",
    "plain_node",
    "told",
    "unwrapped",
]

MOST_TEXTS: Final = 255
Metadata = tuple[object, ...]


def unwrapped(annotation: object, around: Metadata) -> tuple[object, Metadata]:
    """Return an annotation without its metadata, and all of these, the inner ones first."""
    metadata = nested_metadata(around)
    while get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        metadata = (*nested_metadata(tuple(inner)), *metadata)
    return annotation, metadata


def annotation_of(annotated: object) -> tuple[object, Metadata]:
    """Return one of the types of :mod:`twinstore.fields` as :func:`unwrapped` would."""
    return unwrapped(annotated, ())


def model_in(annotation: object) -> type[CanonicalModel] | None:
    """Return the model of an annotation that may be absent."""
    plain, _ = unwrapped(annotation, ())
    first, *_ = [kind for kind in get_args(plain) if kind is not NoneType] or [plain]
    found, _ = unwrapped(first, ())
    return found if isinstance(found, type) and issubclass(found, CanonicalModel) else None


def plain_node(cls: type, metadata: Metadata) -> Node | None:
    """Return the node of a text, number, flag or instant; ``None`` for anything else."""
    if cls is str:
        return text_node(metadata)
    if cls is int:
        return whole_node(metadata)
    if cls is bool and all(type(item) is Strict for item in metadata):
        return Node(kind=NodeKind.FLAG)
    if (cls, metadata) == annotation_of(Timestamp):
        return Node(kind=NodeKind.INSTANT)
    return Node(kind=NodeKind.NUMBER) if (cls, metadata) == annotation_of(Number) else None


def only_function(metadata: Metadata) -> object:
    """Return the function that alone looks at a value in the end, ``None`` where there is more."""
    first, *more = metadata
    return None if more or type(first) is not AfterValidator else first.func


def enum_node(cls: type[StrEnum], ranks: tuple[Enum, ...] | None) -> Node:
    """Return the node of an enumeration of texts; ``ranks`` are its members in another order.

    Raises:
        UnrecognisedError: it does something of its own with its members.
    """
    if hasattr(cls, "__get_pydantic_core_schema__") or len(cls) > MOST_TEXTS:
        raise UnrecognisedError(f"is of the type {cls.__name__}, which no program knows")
    order = tuple(ranks or cls)
    texts: list[NodeText] = []
    for position, member in enumerate(cls):
        if type(member.value) is not str or str.__str__(member) != member.value:
            raise UnrecognisedError(f"is of the type {cls.__name__}, whose values are no plain texts")
        number = member.number if isinstance(member, NumberedEnum) else position
        texts.append(NodeText(member.value, number, order.index(member)))
    return Node(kind=NodeKind.ENUM, texts=tuple(texts))


def list_rule(kind: NodeKind, metadata: Metadata) -> ListRule:
    """Return what the entries of a list must be.

    Raises:
        UnrecognisedError: no program knows it.
    """
    if not metadata:
        return ListRule.NONE
    if metadata == (AfterValidator(string_set),) and kind is NodeKind.TEXT:
        return ListRule.SET
    if metadata == (AfterValidator(without_repeats),) and kind in {NodeKind.TEXT, NodeKind.INT}:
        return ListRule.DISTINCT
    raise UnrecognisedError(f"is a list with {told(metadata)}, which no program knows")


def told(things: tuple[object, ...]) -> str:
    """Return what stands in the metadata of an annotation as a message names it."""
    names = (getattr(getattr(item, "func", item), "__name__", type(item).__name__) for item in things)
    return " and ".join(names) or "no constraint"
