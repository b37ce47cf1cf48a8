"""Audit records in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler import queries
from twinstore.scheduler.audit import AuditQueryOptions, AuditRecord
from twinstore.scheduler.catalog import AUDIT
from twinstore.scheduler.rules.missing import duplicate_id, required
from twinstore.scope import id_argument
from twinstore_memory.repository import MemoryRepository
from twinstore_memory.rows import decode, encode, table, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from twinstore.paging import Page

__all__ = ["MemoryAuditRepository"]


class MemoryAuditRepository(MemoryRepository):
    """Implements :class:`~twinstore.scheduler.audit.AuditRepository`."""

    def append(self, record: AuditRecord) -> AuditRecord:
        """Store a record; see the Protocol."""
        record = self._model(record, AuditRecord, "record")
        self._admit(record.tenant_id)
        row = encode(AUDIT, record)
        with self._link.writing() as unit:
            unit.claim(table(AUDIT), row.key)
            stored = unit.get(table(AUDIT), row.key)
            if stored is None:
                write(unit, row)
            elif stored != row:
                raise duplicate_id(AUDIT, record.id, DRIVER)
        return record

    def get(self, tenant_id: str, audit_id: str) -> AuditRecord | None:
        """Return one record; see the Protocol."""
        tenant = self._admit(tenant_id)
        row = self._get(AUDIT, tenant, id_argument(audit_id, "audit_id"))
        return None if row is None else decode(row, AuditRecord)

    def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
        """Return one record; see the Protocol."""
        return required(self.get(tenant_id, audit_id), AUDIT, audit_id.strip(), DRIVER)

    def list(self, tenant_id: str, options: AuditQueryOptions | None = None) -> Page[AuditRecord]:
        """Return a page of records; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(AUDIT, queries.audit(tenant, options), AuditRecord)
