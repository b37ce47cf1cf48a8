"""Run summaries for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.run_summaries import RunSummaryRepository, RunSummaryService

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run


__all__ = ["AsyncRunSummaryRepository", "AsyncRunSummaryService"]


class AsyncRunSummaryRepository(Awaited[RunSummaryRepository]):
    """Awaits a :class:`RunSummaryRepository`, whose contracts hold."""

    async def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get, tenant_id, schedule_id)

    async def get_required(self, tenant_id: str, schedule_id: str) -> RunSummary:
        """Return the summary of a schedule as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, tenant_id, schedule_id)

    async def list(
        self, tenant_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[RunSummary]:
        """Return a page of summaries."""
        return await self._threads.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def count(self, tenant_id: str) -> int:
        """Return how many summaries all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id)

    async def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
        """Insert or replace a summary; return what is stored. Repeated call: same result. Atomic."""
        return await self._threads.run(self._sync.upsert, summary, expected_updated_at=expected_updated_at)

    async def modify(
        self, tenant_id: str, schedule_id: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        """Read, change and write one summary as one serialised step; return what is stored afterwards."""
        return await self._threads.run(self._sync.modify, tenant_id, schedule_id, change)

    async def delete(self, tenant_id: str, schedule_id: str) -> bool:
        """Remove one summary. Absent, foreign or repeated: false. The next move of a run writes a new one."""
        return await self._threads.run(self._sync.delete, tenant_id, schedule_id)


class AsyncRunSummaryService(Awaited[RunSummaryService]):
    """Awaits a :class:`RunSummaryService`, whose contracts hold."""

    async def project(self, run: Run, *, now: datetime | None = None) -> RunSummary | None:
        """Project one update of a run; return the summary, ``None`` for a run without schedule."""
        return await self._threads.run(self._sync.project, run, now=now)

    async def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule. Absent: ``None``."""
        return await self._threads.run(self._sync.get, tenant_id, schedule_id)

    async def list(
        self, tenant_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[RunSummary]:
        """Return a page of summaries in the order of :meth:`RunSummaryRepository.list`."""
        return await self._threads.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def rebuild(
        self, tenant_id: str, schedule_id: str, *, now: datetime | None = None
    ) -> RunSummary | None:
        """Recompute the window from the stored runs; ``None`` when there is neither a run nor a summary."""
        return await self._threads.run(self._sync.rebuild, tenant_id, schedule_id, now=now)
