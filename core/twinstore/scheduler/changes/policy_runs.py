"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import (
    Count,
    Count32,
    Flag,
    Id,
    LowerKeyMap,
    LowerKeyObject,
    Number,
    OptionalText,
    StringSet,
    TenantId,
    Timestamp,
)
from twinstore.scheduler.enums import PolicyRunExecutionStatus, PolicyRunMode, PolicyRunPriority
from twinstore.scheduler.policy_runs import PolicyRunInputs, PolicyRunStats

__all__ = [
    "PolicyRunInputsChanges",
    "PolicyRunRequestChanges",
    "PolicyRunStatsChanges",
    "PolicyRunStatusChanges",
]


class PolicyRunInputsChanges(TypedDict, total=False):
    """What ``PolicyRunInputs.evolve`` may change."""

    sbom_set: StringSet
    advisory_cursor: OptionalText
    vex_cursor: OptionalText
    environment: LowerKeyObject
    capture_explain: Flag


class PolicyRunRequestChanges(TypedDict, total=False):
    """What ``PolicyRunRequest.evolve`` may change."""

    schema_version: str
    tenant_id: TenantId
    policy_id: Id
    policy_version: Count32 | None
    mode: PolicyRunMode
    priority: PolicyRunPriority
    run_id: Id | None
    queued_at: Timestamp | None
    requested_by: OptionalText
    correlation_id: OptionalText
    metadata: LowerKeyMap
    inputs: PolicyRunInputs


class PolicyRunStatsChanges(TypedDict, total=False):
    """What ``PolicyRunStats.evolve`` may change."""

    components: Count
    rules_fired: Count
    findings_written: Count
    vex_overrides: Count
    quieted: Count
    suppressed: Count
    duration_seconds: Number | None


class PolicyRunStatusChanges(TypedDict, total=False):
    """What ``PolicyRunStatus.evolve`` may change."""

    schema_version: str
    run_id: Id
    tenant_id: TenantId
    policy_id: Id
    policy_version: Count32 | None
    mode: PolicyRunMode
    status: PolicyRunExecutionStatus
    priority: PolicyRunPriority
    queued_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    error: OptionalText
    attempts: Count32
    inputs: PolicyRunInputs
    stats: PolicyRunStats | None
    metadata: LowerKeyMap
