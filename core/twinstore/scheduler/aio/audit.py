"""Audit for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.scheduler.audit import AuditRepository, SchedulerAuditService

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.scheduler.audit import AuditEvent, AuditQueryOptions, AuditRecord


__all__ = ["AsyncAuditRepository", "AsyncSchedulerAuditService"]


class AsyncAuditRepository(Awaited[AuditRepository]):
    """Awaits a :class:`AuditRepository`, whose contracts hold."""

    async def append(self, record: AuditRecord) -> AuditRecord:
        """Store a record and return it. Repeated call with an identical record: a no-op. Atomic."""
        return await self._threads.run(self._sync.append, record)

    async def get(self, tenant_id: str, audit_id: str) -> AuditRecord | None:
        """Return one record. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        return await self._threads.run(self._sync.get, tenant_id, audit_id)

    async def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
        """Return one record as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, tenant_id, audit_id)

    async def list(self, tenant_id: str, options: AuditQueryOptions | None = None) -> Page[AuditRecord]:
        """Return a page of records."""
        return await self._threads.run(self._sync.list, tenant_id, options)

    async def count(self, tenant_id: str, options: AuditQueryOptions | None = None) -> int:
        """Return how many records all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, tenant_id, options)


class AsyncSchedulerAuditService(Awaited[SchedulerAuditService]):
    """Awaits a :class:`SchedulerAuditService`, whose contracts hold."""

    async def write(self, event: AuditEvent) -> AuditRecord:
        """Stamp id and instant where absent, merge the default metadata below the event's, and append."""
        return await self._threads.run(self._sync.write, event)
