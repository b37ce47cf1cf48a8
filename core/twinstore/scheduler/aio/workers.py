"""Workers for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.workers import DEAD_AFTER, WorkerRepository

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta

    from twinstore.access.paging import Page
    from twinstore.scheduler.workers import Worker, WorkerStatus


__all__ = ["AsyncWorkerRepository"]


class AsyncWorkerRepository(Awaited[WorkerRepository]):
    """Awaits a :class:`WorkerRepository`, whose contracts hold."""

    async def register(self, worker: Worker) -> Worker:
        """Insert a worker, or replace the one of its id; return what is stored. Atomic."""
        return await self._threads.run(self._sync.register, worker)

    async def heartbeat(self, worker_id: str, now: datetime, *, current_jobs: int | None = None) -> bool:
        """Note that a worker lives, never backwards, and its load if given; revive a dead one. Atomic."""
        return await self._threads.run(self._sync.heartbeat, worker_id, now, current_jobs=current_jobs)

    async def get(self, worker_id: str) -> Worker | None:
        """Return one worker. Absent: ``None``."""
        return await self._threads.run(self._sync.get, worker_id)

    async def get_required(self, worker_id: str) -> Worker:
        """Return one worker as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, worker_id)

    async def list(
        self,
        *,
        statuses: Collection[WorkerStatus] | None = None,
        tenant_id: str | None = None,
        limit: int = 100,
        page_token: str | None = None,
    ) -> Page[Worker]:
        """Return a page of workers; ``tenant_id`` chooses those that serve this tenant alone."""
        return await self._threads.run(
            self._sync.list, statuses=statuses, tenant_id=tenant_id, limit=limit, page_token=page_token
        )

    async def count(
        self, *, statuses: Collection[WorkerStatus] | None = None, tenant_id: str | None = None
    ) -> int:
        """Return how many workers all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, statuses=statuses, tenant_id=tenant_id)

    async def find_dead(
        self, now: datetime, *, threshold: timedelta = DEAD_AFTER, limit: int = 100
    ) -> Page[Worker]:
        """Return the workers that are active or draining and silent since before ``now - threshold``."""
        return await self._threads.run(self._sync.find_dead, now, threshold=threshold, limit=limit)

    async def mark_dead(self, now: datetime, *, threshold: timedelta = DEAD_AFTER) -> tuple[str, ...]:
        """Set the status of the workers that :meth:`find_dead` finds; return the ids of those changed."""
        return await self._threads.run(self._sync.mark_dead, now, threshold=threshold)

    async def set_status(self, worker_id: str, status: WorkerStatus) -> bool:
        """Move a worker to another status. Absent: false. Repeated call: true, nothing changes. Atomic."""
        return await self._threads.run(self._sync.set_status, worker_id, status)

    async def remove(self, worker_id: str) -> bool:
        """Remove one worker. Absent or repeated: false."""
        return await self._threads.run(self._sync.remove, worker_id)
