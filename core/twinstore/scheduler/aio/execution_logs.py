"""Execution logs for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.execution_logs import ExecutionLogRepository

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.scheduler.execution_logs import ExecutionLogEntry


__all__ = ["AsyncExecutionLogRepository"]


class AsyncExecutionLogRepository(Awaited[ExecutionLogRepository]):
    """Awaits a :class:`ExecutionLogRepository`, whose contracts hold."""

    async def append(self, entries: Sequence[ExecutionLogEntry]) -> tuple[ExecutionLogEntry, ...]:
        """Append entries of one tenant and return them as they are stored, in the order given."""
        return await self._threads.run(self._sync.append, entries)

    async def list(
        self, tenant_id: str, run_id: str, *, after_sequence: int = 0, limit: int = 500
    ) -> tuple[ExecutionLogEntry, ...]:
        """Return the first entries of a run after a sequence."""
        return await self._threads.run(
            self._sync.list, tenant_id, run_id, after_sequence=after_sequence, limit=limit
        )

    async def purge(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        """Remove the entries that were logged up to ``before``; return how many."""
        return await self._threads.run(self._sync.purge, before, tenant_id=tenant_id, batch_size=batch_size)
