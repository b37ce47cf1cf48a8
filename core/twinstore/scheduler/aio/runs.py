"""Runs for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.runs import RunRepository

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.scheduler.enums import RunState
    from twinstore.scheduler.runs import Run, RunQueryOptions, RunStats


__all__ = ["AsyncRunRepository"]


class AsyncRunRepository(Awaited[RunRepository]):
    """Awaits a :class:`RunRepository`, whose contracts hold."""

    async def get(self, tenant_id: str, run_id: str) -> Run | None:
        """Return one run. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        return await self._threads.run(self._sync.get, tenant_id, run_id)

    async def get_required(self, tenant_id: str, run_id: str) -> Run:
        """Return one run as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, tenant_id, run_id)

    async def list(self, tenant_id: str, options: RunQueryOptions | None = None) -> Page[Run]:
        """Return a page of runs."""
        return await self._threads.run(self._sync.list, tenant_id, options)

    async def count(self, tenant_id: str, options: RunQueryOptions | None = None) -> int:
        """Return how many runs all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id, options)

    async def create(self, run: Run) -> Run:
        """Insert a new run; return it. Repeated call: ``DuplicateError``."""
        return await self._threads.run(self._sync.create, run)

    async def update(self, run: Run, *, expected_state: RunState | None = None) -> bool:
        """Replace the stored run if the move is allowed; the check and the write are one atomic step."""
        return await self._threads.run(self._sync.update, run, expected_state=expected_state)

    async def start(self, tenant_id: str, run_id: str, now: datetime) -> Run:
        """Move a queued run to ``running``; return it. Atomic with the summary of its schedule."""
        return await self._threads.run(self._sync.start, tenant_id, run_id, now)

    async def complete(
        self, tenant_id: str, run_id: str, now: datetime, *, stats: RunStats | None = None
    ) -> Run:
        """Move a running run, or a planned one without work, to ``completed``; return it."""
        return await self._threads.run(self._sync.complete, tenant_id, run_id, now, stats=stats)

    async def fail(self, tenant_id: str, run_id: str, now: datetime, error: str) -> Run:
        """End a run in state ``error``; return it. Atomic with the summary of its schedule."""
        return await self._threads.run(self._sync.fail, tenant_id, run_id, now, error)

    async def cancel(self, tenant_id: str, run_id: str, now: datetime) -> Run:
        """Cancel a run that has not ended; return it. Atomic with the summary of its schedule."""
        return await self._threads.run(self._sync.cancel, tenant_id, run_id, now)

    async def get_pending_runs(
        self, tenant_id: str, *, limit: int = 200, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs in ``planning`` or ``queued``."""
        return await self._threads.run(
            self._sync.get_pending_runs, tenant_id, limit=limit, page_token=page_token
        )

    async def get_runs_by_schedule(
        self, tenant_id: str, schedule_id: str, limit: int, *, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs of a schedule."""
        return await self._threads.run(
            self._sync.get_runs_by_schedule, tenant_id, schedule_id, limit, page_token=page_token
        )

    async def list_by_state(
        self, state: RunState, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs of all tenants in one state; system scope."""
        return await self._threads.run(self._sync.list_by_state, state, limit=limit, page_token=page_token)

    async def retry(
        self, tenant_id: str, run_id: str, requested_by: str, now: datetime, *, new_run_id: str | None = None
    ) -> Run:
        """Create a new run in ``planning`` from a terminal one; the origin stays as it is."""
        return await self._threads.run(
            self._sync.retry, tenant_id, run_id, requested_by, now, new_run_id=new_run_id
        )

    async def delete(self, tenant_id: str, run_id: str) -> bool:
        """Remove one run with its log, in whatever state. Absent, foreign or repeated: false. Atomic."""
        return await self._threads.run(self._sync.delete, tenant_id, run_id)

    async def purge_finished(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove the runs with ``finishedAt <= before``, oldest first; return how many."""
        return await self._threads.run(
            self._sync.purge_finished, before, tenant_id=tenant_id, batch_size=batch_size
        )
