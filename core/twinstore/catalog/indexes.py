"""Indexes as a description says them, before a server names and makes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from twinstore.catalog.conditions import Condition

__all__ = ["EVERYWHERE", "Index", "StoreKind"]


class StoreKind(Enum):
    """A family of stores, for what exists in one family only."""

    DOCUMENTS = "documents"
    TABLES = "tables"


EVERYWHERE: Final = frozenset(StoreKind)


@dataclass(frozen=True, kw_only=True)
class Index:
    """One index. The fields are in order; a leading ``-`` means descending.

    Attributes:
        fields: wire names, markers or derived fields.
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
