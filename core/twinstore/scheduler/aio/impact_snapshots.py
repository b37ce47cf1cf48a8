"""Impact snapshots for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.impact_snapshots import ImpactSnapshotRepository

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.selectors import Selector


__all__ = ["AsyncImpactSnapshotRepository"]


class AsyncImpactSnapshotRepository(Awaited[ImpactSnapshotRepository]):
    """Awaits a :class:`ImpactSnapshotRepository`, whose contracts hold."""

    async def upsert(self, tenant_id: str, snapshot: ImpactSet, *, run_id: str | None = None) -> str:
        """Store a snapshot and return its id (its own, or the derived one)."""
        return await self._threads.run(self._sync.upsert, tenant_id, snapshot, run_id=run_id)

    async def get(self, tenant_id: str, snapshot_id: str) -> ImpactSet | None:
        """Return one snapshot. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        return await self._threads.run(self._sync.get, tenant_id, snapshot_id)

    async def get_required(self, tenant_id: str, snapshot_id: str) -> ImpactSet:
        """Return one snapshot as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, tenant_id, snapshot_id)

    async def get_latest_by_selector(self, tenant_id: str, selector: Selector) -> ImpactSet | None:
        """Return the newest snapshot of a selector, compared by its digest."""
        return await self._threads.run(self._sync.get_latest_by_selector, tenant_id, selector)

    async def list_by_run(
        self, tenant_id: str, run_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of the snapshots of a run."""
        return await self._threads.run(
            self._sync.list_by_run, tenant_id, run_id, limit=limit, page_token=page_token
        )

    async def list(
        self, tenant_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of all snapshots of a tenant."""
        return await self._threads.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def count(self, tenant_id: str) -> int:
        """Return how many snapshots all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id)

    async def delete(self, tenant_id: str, snapshot_id: str) -> bool:
        """Remove one snapshot. Absent, foreign or repeated: false."""
        return await self._threads.run(self._sync.delete, tenant_id, snapshot_id)

    async def purge_generated(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove the snapshots with ``generatedAt <= before``, oldest first; return how many."""
        return await self._threads.run(
            self._sync.purge_generated, before, tenant_id=tenant_id, batch_size=batch_size
        )
