"""Copies for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_library.copies import CopyRepository
from twinstore.aio.calls import Awaited

if TYPE_CHECKING:
    from acme_library.copies import Copy
    from twinstore.module import Page


__all__ = ["AsyncCopyRepository"]


class AsyncCopyRepository(Awaited[CopyRepository]):
    """Awaits a :class:`CopyRepository`, whose contracts hold."""

    async def put(self, tenant_id: str, copy: Copy, /) -> Copy:
        """Store a copy, or replace the one of its book and number. Repeated call: the same. Atomic."""
        return await self._threads.run(self._sync.put, tenant_id, copy)

    async def get(self, tenant_id: str, book_id: str, number: int, /) -> Copy | None:
        """Return one copy. Absent: ``None``."""
        return await self._threads.run(self._sync.get, tenant_id, book_id, number)

    async def get_by_tag(self, tenant_id: str, tag: str) -> Copy | None:
        """Return the copy with a tag. Absent: ``None``."""
        return await self._threads.run(self._sync.get_by_tag, tenant_id, tag)

    async def list(
        self, tenant_id: str, book_id: str, /, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Copy]:
        """Return a page of the copies of a book. Order: by number. At most 200."""
        return await self._threads.run(
            self._sync.list, tenant_id, book_id, limit=limit, page_token=page_token
        )

    async def delete(self, tenant_id: str, book_id: str, number: int, /) -> bool:
        """Remove a copy; return whether it was there."""
        return await self._threads.run(self._sync.delete, tenant_id, book_id, number)
