"""What the annotation of a model's field admits, for data that speaks of fields by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

from pydantic import BaseModel

__all__ = ["FieldTypes", "field_types"]


@dataclass(frozen=True, slots=True)
class FieldTypes:
    """The types that a field may have beside ``None``, and whether it may be absent."""

    types: tuple[object, ...]
    optional: bool = False

    @property
    def models(self) -> list[type[BaseModel]]:
        """The models among the types."""
        return [kind for kind in self.types if isinstance(kind, type) and issubclass(kind, BaseModel)]

    @property
    def is_tuple(self) -> bool:
        """Whether it is a list that is never absent."""
        return self._always(lambda kind: get_origin(kind) is tuple)

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false and never absent."""
        return self._always(lambda kind: kind is bool)

    def is_one_of(self, kinds: set[type]) -> bool:
        """Whether its types are exactly these classes."""
        classes = [kind for kind in self.types if isinstance(kind, type)]
        return len(classes) == len(self.types) and set(classes) == kinds

    def is_ranked_by(self, members: tuple[Enum, ...]) -> bool:
        """Whether the members are those of its enumeration, each once."""
        kinds: set[type[Enum]] = {type(member) for member in members}
        whole = [member for kind in kinds for member in kind]
        return self.is_one_of({*kinds}) and set(whole) == set(members) and len(whole) == len(members)

    def _always(self, wanted: Callable[[object], bool]) -> bool:
        return not self.optional and all(wanted(kind) for kind in self.types)


def field_types(model: type[BaseModel], name: str, where: str) -> FieldTypes:
    """Return what a field may hold; a dotted name leads through every model that stands there.

    Raises:
        TypeError: there is no such field; begins with ``where``.
    """
    shape = FieldTypes((model,))
    for part in name.split("."):
        shape = _inside(shape, part, where)
    return shape


def _inside(outer: FieldTypes, part: str, where: str) -> FieldTypes:
    # A union with something that has no fields: the name would be right for some values only.
    if len(outer.models) != len(outer.types):
        raise TypeError(
            f"{where}, but {part!r} is looked for in something that is not a model; correct the name"
        )
    for owner in outer.models:
        if part not in owner.model_fields:
            known = ", ".join(owner.model_fields)
            raise TypeError(f"{where}, but {owner.__name__} has no field {part!r}; it has {known}")
    annotations = [owner.model_fields[part].annotation for owner in outer.models]
    kinds = [kind for annotation in annotations for kind in _alternatives(annotation)]
    return FieldTypes(
        tuple(kind for kind in kinds if kind is not NoneType), outer.optional or NoneType in kinds
    )


def _alternatives(annotation: object) -> tuple[object, ...]:
    union = isinstance(annotation, UnionType) or get_origin(annotation) is Union
    return get_args(annotation) if union else (annotation,)
