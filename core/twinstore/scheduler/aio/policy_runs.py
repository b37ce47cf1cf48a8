"""Policy runs for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.threads import Awaited
from twinstore.scheduler.policy_runs import PolicyRunService

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
    from twinstore.scheduler.policy_runs import PolicyRunRequest, PolicyRunStatus


__all__ = ["AsyncPolicyRunService"]


class AsyncPolicyRunService(Awaited[PolicyRunService]):
    """Awaits a :class:`PolicyRunService`, whose contracts hold."""

    async def enqueue(self, request: PolicyRunRequest, *, now: datetime | None = None) -> PolicyRunStatus:
        """Store the job of a request and return where it stands."""
        return await self._threads.run(self._sync.enqueue, request, now=now)

    async def get(self, tenant_id: str, run_id: str) -> PolicyRunStatus | None:
        """Return where a run stands. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get, tenant_id, run_id)

    async def list(
        self, tenant_id: str, options: PolicyJobQueryOptions | None = None
    ) -> Page[PolicyRunStatus]:
        """Return a page of runs in the order of :meth:`PolicyJobRepository.list`. Empty: an empty page."""
        return await self._threads.run(self._sync.list, tenant_id, options)

    async def request_cancellation(
        self, tenant_id: str, run_id: str, reason: str | None, *, now: datetime | None = None
    ) -> PolicyRunStatus:
        """Ask for the end of a run and return where it stands."""
        return await self._threads.run(self._sync.request_cancellation, tenant_id, run_id, reason, now=now)

    async def retry(self, tenant_id: str, run_id: str, *, now: datetime | None = None) -> PolicyRunStatus:
        """Make a failed run pending again and return where it stands; attempts are counted on. Atomic."""
        return await self._threads.run(self._sync.retry, tenant_id, run_id, now=now)
