"""Audit records on PostgreSQL; the role may only read and insert them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler import queries
from twinstore.scheduler.audit import AuditRecord
from twinstore.scheduler.catalog import AUDIT
from twinstore.scheduler.rules.missing import duplicate_id, required
from twinstore.scope import id_argument, model_argument
from twinstore_postgres.errors import Subject
from twinstore_postgres.listing import page_of
from twinstore_postgres.scheduler.tables import AUDIT_TABLE
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.paging import Page
    from twinstore.scheduler.audit import AuditQueryOptions
    from twinstore_postgres.work import Work

__all__ = ["PostgresAuditRepository"]

SELECT: Final = AUDIT_TABLE.statement("SELECT {columns} FROM {table} WHERE id = %s AND tenant_id = %s")
INSERT_NEW: Final = AUDIT_TABLE.statement(
    "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"
)


class PostgresAuditRepository:
    """Implements :class:`~twinstore.scheduler.audit.AuditRepository`."""

    def __init__(self, work: Work) -> None:
        """Take the access to the server."""
        self._work = work

    def append(self, record: AuditRecord) -> AuditRecord:
        """Store a record; see the Protocol."""
        self._work.check()
        record = model_argument(record, AuditRecord, "record")
        tenant = self._work.admit(record.tenant_id)
        subject = Subject(AUDIT, record.id)
        (inserted,) = self._work.write(tenant, subject, (INSERT_NEW, AUDIT_TABLE.encode(record, {})))
        # Records never change, so what stands in the way can be read afterwards.
        if inserted.count == 0 and self.get(tenant, record.id) != record:
            raise self._work.refuse(duplicate_id(AUDIT, record.id, DRIVER))
        return record

    def get(self, tenant_id: str, audit_id: str) -> AuditRecord | None:
        """Return one record; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(audit_id, "audit_id")
        row = self._work.one(tenant, Subject(AUDIT, key), SELECT, (key, tenant))
        return None if row is None else AUDIT_TABLE.decode(row)

    def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
        """Return one record or raise; see the Protocol."""
        return required(self.get(tenant_id, audit_id), AUDIT, audit_id.strip(), DRIVER)

    def list(self, tenant_id: str, options: AuditQueryOptions | None = None) -> Page[AuditRecord]:
        """Return a page of records; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        return page_of(self._work, tenant, queries.audit(tenant, options), AUDIT_TABLE)
