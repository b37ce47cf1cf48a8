"""Graph job store for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.graph_job_store import GraphJobStore

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.scheduler.enums import GraphJobStatus, GraphJobType
    from twinstore.scheduler.graph_job_store import GraphJobResponse
    from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphOverlayJob


__all__ = ["AsyncGraphJobStore"]


class AsyncGraphJobStore(Awaited[GraphJobStore]):
    """Awaits a :class:`GraphJobStore`, whose contracts hold."""

    async def add(self, job: GraphBuildJob | GraphOverlayJob) -> GraphBuildJob | GraphOverlayJob:
        """Insert a job with an event that it was created; return it. Both or neither."""
        return await self._threads.run(self._sync.add, job)

    async def update(self, job: GraphBuildJob | GraphOverlayJob, expected: GraphJobStatus) -> bool:
        """Replace a job as ``GraphJobRepository.try_replace`` does, with an event of it. Both or neither."""
        return await self._threads.run(self._sync.update, job, expected)

    async def get(self, tenant_id: str, job_id: str) -> GraphBuildJob | GraphOverlayJob | None:
        """Return a job of either type. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get, tenant_id, job_id)

    async def list(
        self,
        tenant_id: str,
        *,
        job_type: GraphJobType | None = None,
        status: GraphJobStatus | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[GraphJobResponse]:
        """Return a page of jobs as an API answers them."""
        return await self._threads.run(
            self._sync.list, tenant_id, job_type=job_type, status=status, limit=limit, page_token=page_token
        )
