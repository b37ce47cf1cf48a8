"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import (
    Actor,
    Id,
    LowerKeyMap,
    OptionalReference,
    OptionalText,
    SimpleIdentifier,
    TenantId,
    Timestamp,
)
from twinstore.scheduler.audit import AuditActor

__all__ = ["AuditActorChanges", "AuditEventChanges", "AuditRecordChanges"]


class AuditActorChanges(TypedDict, total=False):
    """What ``AuditActor.evolve`` may change."""

    actor_id: Actor
    display_name: Actor
    kind: SimpleIdentifier


class AuditEventChanges(TypedDict, total=False):
    """What ``AuditEvent.evolve`` may change."""

    id: Id | None
    tenant_id: TenantId
    category: SimpleIdentifier
    action: SimpleIdentifier
    occurred_at: Timestamp | None
    actor: AuditActor
    entity_id: OptionalReference
    schedule_id: OptionalReference
    run_id: OptionalReference
    correlation_id: OptionalReference
    metadata: LowerKeyMap
    message: OptionalText


class AuditRecordChanges(TypedDict, total=False):
    """What ``AuditRecord.evolve`` may change."""

    id: Id
    tenant_id: TenantId
    category: SimpleIdentifier
    action: SimpleIdentifier
    occurred_at: Timestamp
    actor: AuditActor
    entity_id: OptionalReference
    schedule_id: OptionalReference
    run_id: OptionalReference
    correlation_id: OptionalReference
    metadata: LowerKeyMap
    message: OptionalText
