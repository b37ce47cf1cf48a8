"""Pack runs for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.taskrunner.pack_runs import PackRunStateStore

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.catalog.tenancy import AllTenants
    from twinstore.taskrunner.pack_runs import PackRunQueryOptions, PackRunState


__all__ = ["AsyncPackRunStateStore"]


class AsyncPackRunStateStore(Awaited[PackRunStateStore]):
    """Awaits a :class:`PackRunStateStore`, whose contracts hold."""

    async def create(self, state: PackRunState) -> PackRunState:
        """Insert a new run; return it. Its tenant is the one it names. Repeated call: ``DuplicateError``."""
        return await self._threads.run(self._sync.create, state)

    async def get(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> PackRunState | None:
        """Return one run. Absent: ``None`` when the id is unknown or outside the scope."""
        return await self._threads.run(self._sync.get, run_id, tenant_id=tenant_id)

    async def get_required(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> PackRunState:
        """Return one run as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, run_id, tenant_id=tenant_id)

    async def save(self, state: PackRunState, *, expected_updated_at: datetime | None = None) -> PackRunState:
        """Insert a run, or replace the run with its id if every step may move so; return it. Atomic."""
        return await self._threads.run(self._sync.save, state, expected_updated_at=expected_updated_at)

    async def list(
        self, options: PackRunQueryOptions | None = None, *, tenant_id: str | AllTenants | None = None
    ) -> Page[PackRunState]:
        """Return a page of runs."""
        return await self._threads.run(self._sync.list, options, tenant_id=tenant_id)

    async def count(
        self, options: PackRunQueryOptions | None = None, *, tenant_id: str | AllTenants | None = None
    ) -> int:
        """Return how many runs all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, options, tenant_id=tenant_id)
