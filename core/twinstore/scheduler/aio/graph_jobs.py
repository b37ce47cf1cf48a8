"""Graph jobs for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.graph_jobs import GraphJobRepository

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.scheduler.enums import GraphJobStatus, GraphJobType
    from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphJob, GraphJobEvent, GraphOverlayJob


__all__ = ["AsyncGraphJobRepository"]


class AsyncGraphJobRepository(Awaited[GraphJobRepository]):
    """Awaits a :class:`GraphJobRepository`, whose contracts hold."""

    async def insert(self, job: GraphBuildJob | GraphOverlayJob) -> None:
        """Insert a job. Repeated call: refused, also with an equal job. Atomic; writes no event."""
        return await self._threads.run(self._sync.insert, job)

    async def try_replace(self, job: GraphBuildJob, expected: GraphJobStatus) -> bool:
        """Replace a build job whose status is as expected; return whether it was replaced."""
        return await self._threads.run(self._sync.try_replace, job, expected)

    async def try_replace_overlay(self, job: GraphOverlayJob, expected: GraphJobStatus) -> bool:
        """Replace an overlay job as :meth:`try_replace` does a build job."""
        return await self._threads.run(self._sync.try_replace_overlay, job, expected)

    async def get(self, tenant_id: str, job_id: str) -> GraphJob | None:
        """Return a job of either type. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get, tenant_id, job_id)

    async def get_required(self, tenant_id: str, job_id: str) -> GraphJob:
        """Return a job of either type as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, tenant_id, job_id)

    async def get_build_job(self, tenant_id: str, job_id: str) -> GraphBuildJob | None:
        """Return a build job. Absent: ``None`` when unknown, foreign or no build job."""
        return await self._threads.run(self._sync.get_build_job, tenant_id, job_id)

    async def get_build_job_required(self, tenant_id: str, job_id: str) -> GraphBuildJob:
        """Return a build job as :meth:`get_build_job` does."""
        return await self._threads.run(self._sync.get_build_job_required, tenant_id, job_id)

    async def get_overlay_job(self, tenant_id: str, job_id: str) -> GraphOverlayJob | None:
        """Return an overlay job. Absent: ``None`` when unknown, foreign or no overlay job."""
        return await self._threads.run(self._sync.get_overlay_job, tenant_id, job_id)

    async def get_overlay_job_required(self, tenant_id: str, job_id: str) -> GraphOverlayJob:
        """Return an overlay job as :meth:`get_overlay_job` does."""
        return await self._threads.run(self._sync.get_overlay_job_required, tenant_id, job_id)

    async def list_build_jobs(
        self, tenant_id: str, status: GraphJobStatus | None, limit: int, *, page_token: str | None = None
    ) -> Page[GraphBuildJob]:
        """Return a page of build jobs; ``None`` as status: whatever they do."""
        return await self._threads.run(
            self._sync.list_build_jobs, tenant_id, status, limit, page_token=page_token
        )

    async def list_overlay_jobs(
        self, tenant_id: str, status: GraphJobStatus | None, limit: int, *, page_token: str | None = None
    ) -> Page[GraphOverlayJob]:
        """Return a page of overlay jobs; ``None`` as status: whatever they do."""
        return await self._threads.run(
            self._sync.list_overlay_jobs, tenant_id, status, limit, page_token=page_token
        )

    async def list_jobs(
        self,
        tenant_id: str,
        *,
        job_type: GraphJobType | None = None,
        status: GraphJobStatus | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[GraphJob]:
        """Return a page of jobs of one type or of both."""
        return await self._threads.run(
            self._sync.list_jobs,
            tenant_id,
            job_type=job_type,
            status=status,
            limit=limit,
            page_token=page_token,
        )

    async def count(
        self, tenant_id: str, *, job_type: GraphJobType | None = None, status: GraphJobStatus | None = None
    ) -> int:
        """Return how many jobs all pages of :meth:`list_jobs` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id, job_type=job_type, status=status)

    async def append_event(self, event: GraphJobEvent) -> None:
        """Append an event to those of its job. Repeated call with an equal event: nothing happens. Atomic."""
        return await self._threads.run(self._sync.append_event, event)

    async def get_event(self, tenant_id: str, event_id: str) -> GraphJobEvent | None:
        """Return an event. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get_event, tenant_id, event_id)

    async def get_event_required(self, tenant_id: str, event_id: str) -> GraphJobEvent:
        """Return an event as :meth:`get_event` does."""
        return await self._threads.run(self._sync.get_event_required, tenant_id, event_id)

    async def list_events(
        self, tenant_id: str, job_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[GraphJobEvent]:
        """Return a page of the events of a job."""
        return await self._threads.run(
            self._sync.list_events, tenant_id, job_id, limit=limit, page_token=page_token
        )

    async def count_by_status(
        self, tenant_id: str, *, job_type: GraphJobType | None = None
    ) -> dict[GraphJobStatus, int]:
        """Return the number of jobs by status, of one type or of both; a status without jobs is omitted."""
        return await self._threads.run(self._sync.count_by_status, tenant_id, job_type=job_type)

    async def delete(self, tenant_id: str, job_id: str) -> bool:
        """Remove a job of either type with its events. Absent, foreign or repeated: false. Atomic."""
        return await self._threads.run(self._sync.delete, tenant_id, job_id)
