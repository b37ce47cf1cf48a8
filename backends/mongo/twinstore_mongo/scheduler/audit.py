"""Audit records on MongoDB; they are only ever inserted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.errors import DuplicateError
from twinstore.scheduler import queries
from twinstore.scheduler.audit import AuditQueryOptions, AuditRecord
from twinstore.scheduler.catalog import AUDIT
from twinstore.scheduler.rules.missing import duplicate_id, required
from twinstore.scope import id_argument
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.repository import MongoRepository, one
from twinstore_mongo.scheduler.codecs import AUDIT_CODEC
from twinstore_mongo.writes import insert

if TYPE_CHECKING:
    from twinstore.paging import Page

__all__ = ["MongoAuditRepository"]


class MongoAuditRepository(MongoRepository):
    """Implements :class:`~twinstore.scheduler.audit.AuditRepository`."""

    def append(self, record: AuditRecord) -> AuditRecord:
        """Store a record; see the Protocol."""
        record = self._model(record, AuditRecord, "record")
        tenant = self._admit(record.tenant_id)
        self._unit.check_writable()
        # A refused insert would end a transaction, so there the record is looked up first.
        if self._unit.in_transaction and self._stored(tenant, record.id) == record:
            return record
        try:
            insert(self._unit, AUDIT, AUDIT_CODEC.encode(record, record.id), lambda _: taken(record))
        except DuplicateError:
            if self._unit.in_transaction or self._stored(tenant, record.id) != record:
                raise
        return record

    def get(self, tenant_id: str, audit_id: str) -> AuditRecord | None:
        """Return one record; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(audit_id, "audit_id")
        return self._stored(tenant, key)

    def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
        """Return one record; see the Protocol."""
        return required(self.get(tenant_id, audit_id), AUDIT, audit_id.strip(), DRIVER)

    def list(self, tenant_id: str, options: AuditQueryOptions | None = None) -> Page[AuditRecord]:
        """Return a page of records; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(AUDIT_CODEC, queries.audit(tenant, options))

    def _stored(self, tenant: str, key: str) -> AuditRecord | None:
        document = one(self._unit, AUDIT, {"_id": key, "tenantId": tenant}, key)
        return None if document is None else AUDIT_CODEC.decode(document)


def taken(record: AuditRecord) -> DuplicateError:
    """Return the error of an id that exists with other content or in another tenant."""
    return duplicate_id(AUDIT, record.id, DRIVER)
