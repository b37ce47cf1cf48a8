"""The rows that a step over a list works on: the first that can be read, or every one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.canonical import CanonicalModel, undecodable
from twinstore.paging import decode_token
from twinstore.query import key_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access import Access, Row
    from twinstore.catalog import Entity, Key
    from twinstore.query import Query

__all__ = ["every_row", "first_keys", "first_readable"]

M = TypeVar("M", bound=CanonicalModel)

# Rows are counted page by page; larger pages save round trips, and all rows of one are in memory.
PAGE: Final = 500


def first_readable(access: Access, entity: Entity[M], query: Query) -> tuple[Row[M], ...]:
    """Return the first rows of a list that can be read, as many as its limit says."""
    page, limit = access.page(entity, query), query.limit
    while not page.items and page.next_page_token is not None:
        # None of them could be read; the next ones may.
        query = replace(query, limit=2 * query.limit)
        page = access.page(entity, query)
    return page.items[:limit]


def first_keys(access: Access, entity: Entity, query: Query) -> tuple[Key, ...]:
    """Return the keys of the first rows of a list that can be read, as many as its limit says."""
    found: tuple[Key, ...] = ()
    wanted = query.limit
    while True:
        page = access.page(entity, query)
        found += tuple(entity.key_of(row.model, row.storage) for row in page)
        token = page.next_page_token
        # A page of all tenants is shorter by what it passed over.
        if token is None or len(found) >= wanted:
            return found[:wanted]
        query = replace(query, after=decode_token(token, query.entity, query.fingerprint, query.order))


def every_row(access: Access, entity: Entity[M], query: Query) -> Iterator[Row[M]]:
    """Yield all rows that match, page by page in the order of the key.

    Raises:
        DocumentDecodeError: one of them cannot be read, in whatever scope.
    """
    after: tuple[str | int, ...] | None = None
    while True:
        # In the order of the key: a count sees no order, and this one is always total.
        part = replace(query, order=key_order(entity), limit=PAGE, after=after)
        found = access.page(entity, part)
        # A row that nobody can read cannot be counted by its fields either, in whatever scope.
        for broken in found.undecodable:
            raise undecodable(
                broken.reason, entity=broken.entity, key=broken.key, driver=access.binding.driver
            )
        yield from found
        if found.next_page_token is None:
            return
        after = entity.key_of(found[-1].model, found[-1].storage)
