"""Walks over all pages of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

from twinstore.access.paging import Page, continue_at, list_call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

P = ParamSpec("P")
T = TypeVar("T")


async def each(
    fetch: Callable[P, Awaitable[Page[T]]], /, *args: P.args, **kwargs: P.kwargs
) -> AsyncIterator[T]:
    """Yield the rows of all pages of a list, as :func:`twinstore.each` does."""
    call = list_call(fetch, *args, **kwargs)
    while True:
        page = await fetch(*call.args, **call.kwargs)
        for row in page:
            yield row
        if page.next_page_token is None:
            return
        continue_at(call, page.next_page_token)
