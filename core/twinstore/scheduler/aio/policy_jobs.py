"""Policy jobs for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.policy_jobs import LEASE, PolicyJobRepository, PolicyRunService

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from twinstore.access.paging import Page
    from twinstore.scheduler.enums import PolicyRunJobStatus
    from twinstore.scheduler.policy_jobs import (
        PolicyJobQueryOptions,
        PolicyRunJob,
        PolicyRunRequest,
        PolicyRunStatus,
    )


__all__ = ["AsyncPolicyJobRepository", "AsyncPolicyRunService"]


class AsyncPolicyJobRepository(Awaited[PolicyJobRepository]):
    """Awaits a :class:`PolicyJobRepository`, whose contracts hold."""

    async def create(self, job: PolicyRunJob) -> PolicyRunJob:
        """Insert a job, which must be pending, and return it. Repeated call: an error. Atomic."""
        return await self._threads.run(self._sync.create, job)

    async def get(self, tenant_id: str, job_id: str) -> PolicyRunJob | None:
        """Return one job. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get, tenant_id, job_id)

    async def get_required(self, tenant_id: str, job_id: str) -> PolicyRunJob:
        """Return one job as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, tenant_id, job_id)

    async def get_by_run(self, tenant_id: str, run_id: str) -> PolicyRunJob | None:
        """Return the job of a run. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get_by_run, tenant_id, run_id)

    async def list(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> Page[PolicyRunJob]:
        """Return a page of jobs."""
        return await self._threads.run(self._sync.list, tenant_id, options)

    async def count(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> int:
        """Return how many jobs all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id, options)

    async def try_replace(
        self,
        job: PolicyRunJob,
        expected: PolicyRunJobStatus,
        *,
        lease_owner: str | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Replace a job that is in status ``expected``; return whether that was so. Atomic."""
        return await self._threads.run(
            self._sync.try_replace, job, expected, lease_owner=lease_owner, now=now
        )

    async def modify(
        self, tenant_id: str, job_id: str, change: Callable[[PolicyRunJob], PolicyRunJob | None]
    ) -> PolicyRunJob | None:
        """Read, change and write one job as one serialised step; return what is stored afterwards."""
        return await self._threads.run(self._sync.modify, tenant_id, job_id, change)

    async def lease_next(
        self, lease_owner: str, now: datetime, *, lease: timedelta = LEASE, tenant_id: str | None = None
    ) -> PolicyRunJob | None:
        """Lease the first pending job that is available at ``now``, and return it as it is then."""
        return await self._threads.run(
            self._sync.lease_next, lease_owner, now, lease=lease, tenant_id=tenant_id
        )

    async def lease_many(
        self,
        lease_owner: str,
        now: datetime,
        *,
        limit: int = 100,
        lease: timedelta = LEASE,
        tenant_id: str | None = None,
    ) -> tuple[PolicyRunJob, ...]:
        """Lease the first pending jobs as :meth:`lease_next` does; return them in its order."""
        return await self._threads.run(
            self._sync.lease_many, lease_owner, now, limit=limit, lease=lease, tenant_id=tenant_id
        )

    async def complete_many(
        self,
        jobs: Sequence[PolicyRunJob],
        expected: PolicyRunJobStatus,
        *,
        lease_owner: str | None,
        now: datetime,
    ) -> tuple[bool, ...]:
        """Replace each job as :meth:`try_replace` does; return one answer for each, in the order given."""
        return await self._threads.run(
            self._sync.complete_many, jobs, expected, lease_owner=lease_owner, now=now
        )

    async def release_expired(self, now: datetime, *, limit: int = 100) -> int:
        """End the leases that expired at ``now`` or before, over all tenants; return how many."""
        return await self._threads.run(self._sync.release_expired, now, limit=limit)

    async def count_by_status(self, tenant_id: str) -> dict[PolicyRunJobStatus, int]:
        """Return how many jobs there are in each status; statuses without any are omitted."""
        return await self._threads.run(self._sync.count_by_status, tenant_id)

    async def delete(self, tenant_id: str, job_id: str) -> bool:
        """Remove one job, whatever its status; return whether it was there. Absent or repeated: false."""
        return await self._threads.run(self._sync.delete, tenant_id, job_id)


class AsyncPolicyRunService(Awaited[PolicyRunService]):
    """Awaits a :class:`PolicyRunService`, whose contracts hold."""

    async def enqueue(self, request: PolicyRunRequest, *, now: datetime | None = None) -> PolicyRunStatus:
        """Store the job of a request and return the status of its run."""
        return await self._threads.run(self._sync.enqueue, request, now=now)

    async def get(self, tenant_id: str, run_id: str) -> PolicyRunStatus | None:
        """Return the status of a run. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get, tenant_id, run_id)

    async def list(
        self, tenant_id: str, options: PolicyJobQueryOptions | None = None
    ) -> Page[PolicyRunStatus]:
        """Return a page of runs in the order of :meth:`PolicyJobRepository.list`. Empty: an empty page."""
        return await self._threads.run(self._sync.list, tenant_id, options)

    async def request_cancellation(
        self, tenant_id: str, run_id: str, reason: str | None, *, now: datetime | None = None
    ) -> PolicyRunStatus:
        """Request the cancellation of a run and return its status."""
        return await self._threads.run(self._sync.request_cancellation, tenant_id, run_id, reason, now=now)

    async def retry(self, tenant_id: str, run_id: str, *, now: datetime | None = None) -> PolicyRunStatus:
        """Make a failed run pending again and return its status; attempts keep counting. Atomic."""
        return await self._threads.run(self._sync.retry, tenant_id, run_id, now=now)
