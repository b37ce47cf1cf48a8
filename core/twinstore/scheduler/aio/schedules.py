"""Schedules for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.policy_jobs import LEASE
from twinstore.scheduler.schedules import ScheduleRepository

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from twinstore.access.paging import Page
    from twinstore.scheduler.schedules import Schedule, ScheduleClaim, ScheduleQueryOptions, SoftDeletion


__all__ = ["AsyncScheduleRepository"]


class AsyncScheduleRepository(Awaited[ScheduleRepository]):
    """Awaits a :class:`ScheduleRepository`, whose contracts hold."""

    async def get(
        self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False
    ) -> Schedule | None:
        """Return one schedule."""
        return await self._threads.run(
            self._sync.get, tenant_id, schedule_id, include_deleted=include_deleted
        )

    async def get_required(
        self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False
    ) -> Schedule:
        """Return one schedule as :meth:`get` does."""
        return await self._threads.run(
            self._sync.get_required, tenant_id, schedule_id, include_deleted=include_deleted
        )

    async def get_deletion(self, tenant_id: str, schedule_id: str) -> SoftDeletion | None:
        """Return the deletion markers of a soft-deleted schedule."""
        return await self._threads.run(self._sync.get_deletion, tenant_id, schedule_id)

    async def list(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> Page[Schedule]:
        """Return a page of schedules."""
        return await self._threads.run(self._sync.list, tenant_id, options)

    async def count(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> int:
        """Return how many schedules all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id, options)

    async def upsert(self, schedule: Schedule, *, expected_updated_at: datetime | None = None) -> Schedule:
        """Insert a schedule, or replace the caller's own one; return what is stored."""
        return await self._threads.run(self._sync.upsert, schedule, expected_updated_at=expected_updated_at)

    async def soft_delete(
        self, tenant_id: str, schedule_id: str, deleted_by: str, deleted_at: datetime
    ) -> bool:
        """Mark a schedule as deleted and disable it and its trigger, in one transaction."""
        return await self._threads.run(self._sync.soft_delete, tenant_id, schedule_id, deleted_by, deleted_at)

    async def restore(
        self,
        tenant_id: str,
        schedule_id: str,
        restored_by: str,
        restored_at: datetime,
        *,
        enabled: bool = False,
    ) -> bool:
        """Clear the deletion markers, in one transaction with the trigger."""
        return await self._threads.run(
            self._sync.restore, tenant_id, schedule_id, restored_by, restored_at, enabled=enabled
        )

    async def get_due_schedules(self, now: datetime, *, limit: int = 100) -> Page[Schedule]:
        """Return the schedules of all tenants that are due at ``now``; reads only, in system scope."""
        return await self._threads.run(self._sync.get_due_schedules, now, limit=limit)

    async def claim_due(
        self, lease_owner: str, now: datetime, *, limit: int = 100, lease: timedelta = LEASE
    ) -> tuple[ScheduleClaim, ...]:
        """Claim the first schedules that are due at ``now`` and that no worker holds, in system scope."""
        return await self._threads.run(self._sync.claim_due, lease_owner, now, limit=limit, lease=lease)
