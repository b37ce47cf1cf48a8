"""What a stored row has beside the fields of its model: storage markers, and what follows from the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twinstore.canonical import CanonicalModel
from twinstore.indexes import EVERYWHERE, StoreKind
from twinstore.shapes import Kind

__all__ = ["Derived", "Marker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A storage marker: an internal field whose value survives a copy.

    Attributes:
        name: its name in records, reports and queries.
        kind: text, integer or instant.
        required: whether every row has it.
        plain: whether documents hold it under its own name; internal names start with ``_`` otherwise.
        assigned: whether it is the insertion number of a row, which
            :meth:`~twinstore.access.Access.next_number` gives: no two rows have the same, a later one has a
            higher one, and a copy keeps it.
    """

    name: str
    kind: Kind = Kind.TEXT
    required: bool = False
    plain: bool = False
    assigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """An internal field that follows from the model and its markers.

    Attributes:
        name: its name; documents prefix it with ``_``.
        kind: text, integer, or the digits of a UUID.
        value: computes it.
        of_content: computes the same from the canonical JSON of the model, for stores that make it anyway.
        bits: of an integer column.
        most: the largest value of an integer that begins at 0, which tables check.
        stores: the families of stores that have it.
        number_of: the field whose number of an enumeration this is. A table sorts by the column of that field
            and has none for this; documents hold the text of the field, which sorts otherwise.
    """

    name: str
    kind: Kind
    value: Callable[[CanonicalModel, Mapping[str, object]], object]
    of_content: Callable[[bytes], object] | None = None
    bits: int = 64
    most: int | None = None
    stores: frozenset[StoreKind] = EVERYWHERE
    number_of: str | None = None
