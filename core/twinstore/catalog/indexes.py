"""Indexes as a description says them, before a server names and makes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from twinstore.models.shapes import Kind, shapes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog.conditions import Condition
    from twinstore.models.shapes import FieldShape, ValueShape

__all__ = ["EVERYWHERE", "Index", "StoreKind"]


class StoreKind(Enum):
    """A family of stores, for what exists in one family only."""

    DOCUMENTS = "documents"
    TABLES = "tables"


EVERYWHERE: Final = frozenset(StoreKind)


@dataclass(frozen=True, kw_only=True)
class Index:
    """One index. The fields are in order; a leading ``-`` means descending.

    A field may be a path through nested models, such as ``address.city``. If it is a list, or leads through
    one, each member is indexed. No query of twinstore uses such an index: it is for the queries of others.

    Attributes:
        fields: wire names, markers, derived fields, or paths.
        name: the short name, unique in its entity; servers prefix it by their own custom.
        unique: no two rows that satisfy ``where`` agree in all fields.
        where: the rows that the index holds; empty for all.
        stores: the families of stores that have it.
        expires: on stores that remove rows by themselves, the retention of the entity removes by this index.
        sparse_unless: the option that, while off, keeps rows without the first field out of the index.
        noun: what the last field is called in the message of a duplicate, ``None`` for the id.
        table_name, document_name: names that a released migration gave it and that do not follow the custom.
    """

    fields: tuple[str, ...]
    name: str
    unique: bool = False
    where: tuple[Condition, ...] = ()
    stores: frozenset[StoreKind] = EVERYWHERE
    expires: bool = False
    nulls_first: bool = False
    sparse_unless: str | None = None
    noun: str | None = None
    table_name: str | None = None
    document_name: str | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The fields without their direction."""
        return tuple(name.removeprefix("-") for name in self.fields)

    @property
    def directions(self) -> tuple[tuple[str, bool], ...]:
        """The fields, each with whether it descends."""
        return tuple((name.removeprefix("-"), name.startswith("-")) for name in self.fields)


@dataclass(frozen=True, slots=True)
class InnerPath:
    """Where an indexed path leads.

    Attributes:
        names: the wire names, that of the field of the row first.
        value: what the last of them holds; of a list, what its members are.
        list_depth: how many of the names lead to the first list, ``None`` if there is none.
    """

    names: tuple[str, ...]
    value: ValueShape
    list_depth: int | None = None


def inner_path(shapes: Mapping[str, FieldShape], name: str) -> InnerPath | None:
    """Return where a path leads from some fields; ``None`` if there is no such field."""
    names = (name,) if name in shapes else tuple(name.split("."))
    fields, value, list_depth = shapes, None, None
    for depth, wire in enumerate(names, start=1):
        if wire not in fields:
            return None
        value = fields[wire].value
        if value.kind is Kind.LIST:
            list_depth = list_depth or depth
        while value.kind is Kind.LIST and value.item is not None:
            value = value.item
        is_object = value.kind is Kind.OBJECT
        fields = {shape.wire: shape for shape in shapes_of(value.model)} if is_object else {}
    return None if value is None else InnerPath(names, value, list_depth)
