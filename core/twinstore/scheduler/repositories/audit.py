"""Audit records: inserted once and never changed."""

from __future__ import annotations

from typing_extensions import override

from twinstore.access.paging import Page
from twinstore.access.repository import Repository
from twinstore.access.scope import id_argument
from twinstore.catalog.row import Row
from twinstore.scheduler import queries
from twinstore.scheduler.audit import AuditQueryOptions, AuditRecord, AuditRepository
from twinstore.scheduler.catalog import AUDIT


class AuditRecords(Repository, AuditRepository):
    """Implements :class:`~twinstore.scheduler.audit.AuditRepository`."""

    @override
    def append(self, record: AuditRecord) -> AuditRecord:
        record = self._model(record, AuditRecord, "record")
        # The description says append-only, so an equal record is left and another one refused.
        return self._access.put(AUDIT, self._admit(record.tenant_id), Row(record)).model

    @override
    def get(self, tenant_id: str, audit_id: str) -> AuditRecord | None:
        scope = self._admit(tenant_id)
        return self._get(AUDIT, scope, (id_argument(audit_id, "audit_id"),))

    @override
    def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
        return self._required(self.get(tenant_id, audit_id), AUDIT, audit_id.strip())

    @override
    def list(self, tenant_id: str, options: AuditQueryOptions | None = None) -> Page[AuditRecord]:
        return self._page(AUDIT, queries.audit(self._admit(tenant_id), options))

    @override
    def count(self, tenant_id: str, options: AuditQueryOptions | None = None) -> int:
        return self._count(AUDIT, queries.audit(self._admit(tenant_id), options))
