"""Audit records: who did what, append-only, and the contracts of their repository and service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
    Actor,
    Id,
    LowerKeyMap,
    OptionalReference,
    OptionalText,
    SimpleIdentifier,
    TenantId,
    Timestamp,
)

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = [
    "AuditActor",
    "AuditEvent",
    "AuditQueryOptions",
    "AuditRecord",
    "AuditRepository",
    "SchedulerAuditService",
]


class AuditActor(CanonicalModel):
    """Who acted; ``kind`` is for example ``user``, ``service`` or ``system``."""

    actor_id: Actor
    display_name: Actor
    kind: SimpleIdentifier


class AuditRecord(CanonicalModel):
    """One entry of the audit trail; it is never changed or removed."""

    id: Id
    tenant_id: TenantId
    category: SimpleIdentifier
    action: SimpleIdentifier
    occurred_at: Timestamp
    actor: AuditActor
    entity_id: OptionalReference = None
    schedule_id: OptionalReference = None
    run_id: OptionalReference = None
    correlation_id: OptionalReference = None
    metadata: LowerKeyMap = Field(default_factory=dict)
    message: OptionalText = None


class AuditEvent(CanonicalModel):
    """What a host reports; the audit service stamps ``id`` and ``occurredAt`` where they are absent."""

    id: Id | None = None
    tenant_id: TenantId
    category: SimpleIdentifier
    action: SimpleIdentifier
    occurred_at: Timestamp | None = None
    actor: AuditActor
    entity_id: OptionalReference = None
    schedule_id: OptionalReference = None
    run_id: OptionalReference = None
    correlation_id: OptionalReference = None
    metadata: LowerKeyMap = Field(default_factory=dict)
    message: OptionalText = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQueryOptions:
    """Filter of :meth:`AuditRepository.list`; order occurred_at descending, then id; limit 100, at most 500.

    Both bounds are strict; ``None`` means no filter.
    """

    category: str | None = None
    schedule_id: str | None = None
    run_id: str | None = None
    occurred_after: datetime | None = None
    occurred_before: datetime | None = None
    limit: int = 100
    page_token: str | None = None


class AuditRepository(Protocol):
    """Stores audit records; there is no update and no delete.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form an audit record.
    """

    def append(self, record: AuditRecord) -> AuditRecord:
        """Store a record and return it. Repeated call with an identical record: a no-op. Atomic.

        Raises:
            DuplicateError: the id exists with other content, or in another tenant.
        """
        ...

    def get(self, tenant_id: str, audit_id: str) -> AuditRecord | None:
        """Return one record. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        ...

    def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
        """Return one record as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, tenant_id: str, options: AuditQueryOptions | None = None) -> Page[AuditRecord]:
        """Return a page of records.

        Order: occurred_at descending, then id ascending. Empty: an empty page.
        """
        ...

    def count(self, tenant_id: str, options: AuditQueryOptions | None = None) -> int:
        """Return how many records all pages of :meth:`list` have together. Empty: 0."""
        ...


class SchedulerAuditService(Protocol):
    """Stamps and writes audit records, so that all records of a host look alike."""

    def write(self, event: AuditEvent) -> AuditRecord:
        """Stamp id and instant where absent, merge the default metadata below the event's, and append.

        Raises:
            DuplicateError: an event with an own id that exists with other content.
        """
        ...
