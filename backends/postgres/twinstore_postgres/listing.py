"""Lists: compile the query, read one row more than the limit, build the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from twinstore.canonical import CanonicalModel
from twinstore_postgres.compile import compile_query
from twinstore_postgres.errors import Subject

if TYPE_CHECKING:
    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore_postgres.codec import Row, Table
    from twinstore_postgres.work import Work

__all__ = ["page_of", "rows_of_query"]

M = TypeVar("M", bound=CanonicalModel)


def rows_of_query(work: Work, tenant: str, query: Query, table: Table[M]) -> list[Row]:
    """Return up to ``limit + 1`` rows in order; a query that matches nothing asks no server."""
    if query.matches_nothing:
        return []
    statement, parameters = compile_query(query, table)
    return work.read(tenant, Subject(table.entity), statement, parameters).rows


def page_of(work: Work, tenant: str, query: Query, table: Table[M]) -> Page[M]:
    """Return the page of a list."""
    key = table.sort_key([part.field for part in query.order])
    return query.page(rows_of_query(work, tenant, query, table), table.decode, key)
