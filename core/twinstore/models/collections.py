"""Lists of nested models: how many entries there may be, what is unique, in which order they are kept.

All of it is data about the list, so that it can be evaluated by more than one program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import LiteralString, TypeVar, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from twinstore.models.rules import FieldTypes, field_types

__all__ = ["Limit", "Ordered", "Ranked", "Unique", "without_repeats"]


M = TypeVar("M", bound=BaseModel)
V = TypeVar("V", bound=Hashable)


def without_repeats(values: tuple[V, ...]) -> tuple[V, ...]:
    """Return the values without repeated ones, in their order."""
    return tuple(dict.fromkeys(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """There are at most ``count`` entries; else the list is refused with this error and sentence."""

    count: int
    code: LiteralString
    message: LiteralString


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """No two entries have the same ``field``; else the list is refused with this error and sentence."""

    field: str
    code: LiteralString
    message: LiteralString


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A field whose enumeration sorts in the order of ``members`` and not by its text."""

    field: str
    members: tuple[Enum, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Annotation of a ``tuple[Model, ...]``: refuse by ``limit``, then by ``unique``, then sort.

    The first field of ``by`` decides, then the next; text sorts by code point. Entries that are equal in all
    of them stay as they came, also with ``descending``.
    """

    by: tuple[str | Ranked, ...]
    descending: bool = False
    unique: Unique | None = None
    limit: Limit | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the list followed by the checks and the order.

        Raises:
            TypeError: it is not a tuple of models, or a name does not fit the fields of that model.
        """
        self._check_fields(source)
        return core_schema.no_info_after_validator_function(self._normaliser(), handler(source))

    def _check_fields(self, source: object) -> None:
        entry = FieldTypes(get_args(source)[:1]) if get_origin(source) is tuple else FieldTypes(())
        if not entry.models:
            raise TypeError(f"Ordered is for tuples of a model and not for {source}; remove it")
        for key in self.by:
            _check_key(entry.models[0], key)
        if self.unique:
            _check_key(entry.models[0], self.unique.field)

    def _normaliser(self) -> Callable[[tuple[M, ...]], tuple[M, ...]]:
        limit, unique, descending = self.limit, self.unique, self.descending
        # One stable sort per field, the deciding one last: cheaper than one sort by a key that is a tuple.
        keys = [_sort_key(key) for key in reversed(self.by)]

        def normalise(items: tuple[M, ...]) -> tuple[M, ...]:
            if limit and len(items) > limit.count:
                raise PydanticCustomError(limit.code, limit.message)
            if len(items) <= 1:
                return items
            if unique and len(set(map(attrgetter(unique.field), items))) < len(items):
                raise PydanticCustomError(unique.code, unique.message)
            ordered = list(items)
            for key in keys:
                ordered.sort(key=key, reverse=descending)
            return tuple(ordered)

        return normalise


def _sort_key(key: str | Ranked) -> Callable[[BaseModel], int | str | datetime]:
    if isinstance(key, str):
        return attrgetter(key)
    ranks, member = {member: rank for rank, member in enumerate(key.members)}, attrgetter(key.field)
    return lambda item: ranks[member(item)]


def _check_key(model: type[BaseModel], key: str | Ranked) -> None:
    name = key if isinstance(key, str) else key.field
    where = f"Ordered names {name!r} of {model.__name__}"
    shape = field_types(model, name, where)
    # Python cannot sort None among other values, and no order of ours says where it belongs.
    if shape.optional:
        raise TypeError(f"{where}, which may be absent; take a field that never is")
    if isinstance(key, Ranked) and not shape.is_ranked_by(key.members):
        raise TypeError(f"{where}, but its ranks are not the members of that enumeration, each once")
