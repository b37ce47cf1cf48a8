"""Books for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_library.books import BookRepository
from twinstore.aio.calls import Awaited

if TYPE_CHECKING:
    from acme_library.books import Book
    from twinstore.module import Page


__all__ = ["AsyncBookRepository"]


class AsyncBookRepository(Awaited[BookRepository]):
    """Awaits a :class:`BookRepository`, whose contracts hold."""

    async def put(self, book: Book) -> Book:
        """Store a book, or replace the one of its id. Repeated call: the same. Atomic."""
        return await self._threads.run(self._sync.put, book)

    async def get(self, tenant_id: str, book_id: str) -> Book | None:
        """Return one book. Absent: ``None``."""
        return await self._threads.run(self._sync.get, tenant_id, book_id)

    async def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Book]:
        """Return a page of books. Order: latest first, then by id. At most 200."""
        return await self._threads.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)
