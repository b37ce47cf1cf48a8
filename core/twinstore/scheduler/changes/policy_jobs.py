"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Count32, Flag, Id, LowerKeyMap, OptionalText, TenantId, Timestamp
from twinstore.scheduler.enums import PolicyRunJobStatus, PolicyRunMode, PolicyRunPriority
from twinstore.scheduler.policy_runs import PolicyRunInputs, PolicyRunStats

__all__ = ["PolicyRunJobChanges"]


class PolicyRunJobChanges(TypedDict, total=False):
    """What ``PolicyRunJob.evolve`` may change."""

    schema_version: str
    id: Id
    tenant_id: TenantId
    policy_id: Id
    policy_version: Count32 | None
    mode: PolicyRunMode
    priority: PolicyRunPriority
    run_id: Id | None
    requested_by: OptionalText
    correlation_id: OptionalText
    metadata: LowerKeyMap
    inputs: PolicyRunInputs
    queued_at: Timestamp | None
    status: PolicyRunJobStatus
    attempt_count: Count32
    last_attempt_at: Timestamp | None
    last_error: OptionalText
    created_at: Timestamp
    updated_at: Timestamp
    available_at: Timestamp
    submitted_at: Timestamp | None
    completed_at: Timestamp | None
    lease_owner: Id | None
    lease_expires_at: Timestamp | None
    cancellation_requested: Flag
    cancellation_requested_at: Timestamp | None
    cancellation_reason: OptionalText
    cancelled_at: Timestamp | None
    stats: PolicyRunStats | None
