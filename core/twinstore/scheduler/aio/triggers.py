"""Triggers for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.triggers import TriggerRepository

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.scheduler.schedules import ScheduleClaim
    from twinstore.scheduler.triggers import FiredTrigger, Trigger


__all__ = ["AsyncTriggerRepository"]


class AsyncTriggerRepository(Awaited[TriggerRepository]):
    """Awaits a :class:`TriggerRepository`, whose contracts hold."""

    async def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        """Return the trigger of a schedule. Absent: ``None`` when unknown or foreign."""
        return await self._threads.run(self._sync.get, tenant_id, schedule_id)

    async def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        """Return the trigger of a schedule as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, tenant_id, schedule_id)

    async def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        """Return a page of triggers."""
        return await self._threads.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def count(self, tenant_id: str) -> int:
        """Return how many triggers all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id)

    async def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        """Set the next instant strictly after ``now`` from the stored schedule; return the trigger."""
        return await self._threads.run(self._sync.recalculate, tenant_id, schedule_id, now)

    async def fire(
        self, tenant_id: str, schedule_id: str, now: datetime, *, claim: ScheduleClaim | None = None
    ) -> FiredTrigger | None:
        """Create the run of the instant that is due, and set the next instant after ``now``."""
        return await self._threads.run(self._sync.fire, tenant_id, schedule_id, now, claim=claim)
