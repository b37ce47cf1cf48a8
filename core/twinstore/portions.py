"""Marking all rows of a list, as many at a time as fit into memory however large they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.canonical import CanonicalModel
from twinstore.sizes import MOST_BYTES, json_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access import Access, Row, Sets
    from twinstore.catalog import Entity
    from twinstore.query import Query

__all__ = ["marked_in_portions"]

M = TypeVar("M", bound=CanonicalModel)

# Of the largest rows there are, so many do no harm.
FIRST_PORTION: Final = 4
GROWTH: Final = 10


def marked_in_portions(
    access: Access, entity: Entity[M], query: Query, sets: Sets
) -> Iterator[tuple[Row[M], ...]]:
    """Mark the rows of a list until none matches, at most ``query.limit`` at a time; yield each portion.

    A mark reads the rows that it changes. The first portion is small; the next ones grow while the rows
    found so far say that they would fit into one document of the largest size.
    """
    portion = FIRST_PORTION
    while marked := access.mark(entity, replace(query, limit=min(portion, query.limit)), sets):
        yield marked
        fitting = MOST_BYTES // max(map(json_size, marked))
        portion = max(FIRST_PORTION, min(GROWTH * portion, fitting))
