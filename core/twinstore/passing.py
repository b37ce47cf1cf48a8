"""The rows that a step over a list works on: the first that can be read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from twinstore.canonical import CanonicalModel

if TYPE_CHECKING:
    from twinstore.access import Access, Row
    from twinstore.catalog import Entity
    from twinstore.query import Query

__all__ = ["first_readable"]

M = TypeVar("M", bound=CanonicalModel)


def first_readable(access: Access, entity: Entity[M], query: Query) -> tuple[Row[M], ...]:
    """Return the first rows of a list that can be read, as many as its limit says."""
    page, limit = access.page(entity, query), query.limit
    while not page.items and page.next_page_token is not None:
        # None of them could be read; the next ones may.
        query = replace(query, limit=2 * query.limit)
        page = access.page(entity, query)
    return page.items[:limit]
