"""Subjects for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_library.subjects import SubjectRepository
from twinstore.aio.calls import Awaited

if TYPE_CHECKING:
    from acme_library.subjects import Subject
    from twinstore.module import Page


__all__ = ["AsyncSubjectRepository"]


class AsyncSubjectRepository(Awaited[SubjectRepository]):
    """Awaits a :class:`SubjectRepository`, whose contracts hold."""

    async def put(self, subject: Subject, /) -> Subject:
        """Store a subject, or replace the one of its number. Repeated call: the same. Atomic."""
        return await self._threads.run(self._sync.put, subject)

    async def get(self, scheme: str, number: int, /) -> Subject | None:
        """Return one subject. Absent: ``None``."""
        return await self._threads.run(self._sync.get, scheme, number)

    async def list(self, scheme: str, /, *, limit: int = 50, page_token: str | None = None) -> Page[Subject]:
        """Return a page of the subjects of a scheme. Order: by number. At most 200."""
        return await self._threads.run(self._sync.list, scheme, limit=limit, page_token=page_token)
