"""Tasks for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.tracking.tasks import TrackingTaskRepository

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.tracking.enums import TaskStatus
    from twinstore.tracking.tasks import TaskProgress, TaskQueryOptions, TrackingTask


__all__ = ["AsyncTrackingTaskRepository"]


class AsyncTrackingTaskRepository(Awaited[TrackingTaskRepository]):
    """Awaits a :class:`TrackingTaskRepository`, whose contracts hold."""

    async def create(self, record: TrackingTask) -> TrackingTask:
        """Insert a task; return what is stored. Its session is not looked for."""
        return await self._threads.run(self._sync.create, record)

    async def get(self, task_id: str) -> TrackingTask | None:
        """Return one task. Absent: ``None``."""
        return await self._threads.run(self._sync.get, task_id)

    async def get_required(self, task_id: str) -> TrackingTask:
        """Return one task as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, task_id)

    async def list(self, options: TaskQueryOptions | None = None) -> Page[TrackingTask]:
        """Return a page of tasks. Order: (created_at, task_id). Limit 20, at most 100."""
        return await self._threads.run(self._sync.list, options)

    async def count(self, options: TaskQueryOptions | None = None) -> int:
        """Return how many tasks all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, options)

    async def update(self, record: TrackingTask, *, expected_status: TaskStatus | None = None) -> bool:
        """Replace a task. Absent: false. Equal: true, nothing is written. Atomic."""
        return await self._threads.run(self._sync.update, record, expected_status=expected_status)

    async def start(self, task_id: str, now: datetime) -> TrackingTask:
        """Move a pending or blocked task to in progress. Repeated call: nothing changes. Atomic."""
        return await self._threads.run(self._sync.start, task_id, now)

    async def complete(self, task_id: str, now: datetime) -> TrackingTask:
        """End a task in progress. Repeated with the same instant: the same. Atomic."""
        return await self._threads.run(self._sync.complete, task_id, now)

    async def fail(self, task_id: str, now: datetime, *, error_message: str) -> TrackingTask:
        """End a task in progress with what went wrong. Repeated with the same arguments: the same. Atomic."""
        return await self._threads.run(self._sync.fail, task_id, now, error_message=error_message)

    async def retry(self, task_id: str) -> TrackingTask:
        """Make a failed task pending again, without end and error. Pending: nothing changes. Atomic."""
        return await self._threads.run(self._sync.retry, task_id)

    async def progress(self, *, session_id: str | None = None, project_id: str | None = None) -> TaskProgress:
        """Return how far the tasks of a session or of a project are; exactly one of them is given."""
        return await self._threads.run(self._sync.progress, session_id=session_id, project_id=project_id)

    async def delete(self, task_id: str) -> bool:
        """Remove one task. Absent or repeated: false."""
        return await self._threads.run(self._sync.delete, task_id)

    async def purge_expired(self, now: datetime, *, batch_size: int = 500) -> int:
        """Remove the tasks that ended ``Tracking:Storage:RetentionDays`` ago or earlier."""
        return await self._threads.run(self._sync.purge_expired, now, batch_size=batch_size)
