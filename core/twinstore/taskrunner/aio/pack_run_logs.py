"""Pack run logs for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.taskrunner.pack_run_logs import PackRunLogStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.catalog.tenancy import AllTenants
    from twinstore.taskrunner.pack_run_logs import PackRunLogDraft, PackRunLogEntry


__all__ = ["AsyncPackRunLogStore"]


class AsyncPackRunLogStore(Awaited[PackRunLogStore]):
    """Awaits a :class:`PackRunLogStore`, whose contracts hold."""

    async def append(
        self, entries: Sequence[PackRunLogEntry], *, tenant_id: str | AllTenants | None = None
    ) -> int:
        """Append entries under the numbers they have; return how many are new."""
        return await self._threads.run(self._sync.append, entries, tenant_id=tenant_id)

    async def append_next(
        self, run_id: str, draft: PackRunLogDraft, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunLogEntry:
        """Append an entry under the highest number of the run and 1, from 1; return it. Atomic."""
        return await self._threads.run(self._sync.append_next, run_id, draft, tenant_id=tenant_id)

    async def read(
        self,
        run_id: str,
        *,
        after_sequence: int = 0,
        limit: int = 500,
        tenant_id: str | AllTenants | None = None,
    ) -> tuple[PackRunLogEntry, ...]:
        """Return the first entries of a run after a number."""
        return await self._threads.run(
            self._sync.read, run_id, after_sequence=after_sequence, limit=limit, tenant_id=tenant_id
        )

    async def read_window(
        self,
        run_id: str,
        start: datetime,
        end: datetime,
        *,
        limit: int = 500,
        tenant_id: str | AllTenants | None = None,
    ) -> tuple[PackRunLogEntry, ...]:
        """Return the first entries of a run from ``start`` on and before ``end``."""
        return await self._threads.run(
            self._sync.read_window, run_id, start, end, limit=limit, tenant_id=tenant_id
        )

    async def last_sequence(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> int:
        """Return the highest number in the log of a run. Empty, also for an unknown run: 0."""
        return await self._threads.run(self._sync.last_sequence, run_id, tenant_id=tenant_id)

    async def purge(self, before: datetime, *, batch_size: int = 500) -> int:
        """Remove the entries of all runs with ``timestamp <= before``, in system scope; return how many."""
        return await self._threads.run(self._sync.purge, before, batch_size=batch_size)
