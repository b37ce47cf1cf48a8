"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import (
    Count,
    DigestText,
    Flag,
    Id,
    OptionalReference,
    OptionalText,
    StringSet,
    TenantId,
    Text,
    Timestamp,
)
from twinstore.scheduler.enums import RunState, RunTrigger, SeverityRank
from twinstore.scheduler.runs import Attestation, DeltaSummary, RunReason, RunStats, TopFinding

__all__ = [
    "AttestationChanges",
    "DeltaSummaryChanges",
    "RunChanges",
    "RunReasonChanges",
    "RunStatsChanges",
    "TopFindingChanges",
]


class AttestationChanges(TypedDict, total=False):
    """What ``Attestation.evolve`` may change."""

    uuid: Text
    verified: Flag | None


class DeltaSummaryChanges(TypedDict, total=False):
    """What ``DeltaSummary.evolve`` may change."""

    image_digest: DigestText
    new_findings: Count
    new_criticals: Count
    new_high: Count
    new_medium: Count
    new_low: Count
    kev_hits: StringSet
    top_findings: tuple[TopFinding, ...]
    report_url: OptionalText
    attestation: Attestation | None
    detected_at: Timestamp | None


class RunChanges(TypedDict, total=False):
    """What ``Run.evolve`` may change."""

    schema_version: str
    id: Id
    tenant_id: TenantId
    schedule_id: OptionalReference
    trigger: RunTrigger
    state: RunState
    stats: RunStats
    reason: RunReason | None
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    error: OptionalText
    deltas: tuple[DeltaSummary, ...]
    retry_of: OptionalReference


class RunReasonChanges(TypedDict, total=False):
    """What ``RunReason.evolve`` may change."""

    manual_reason: OptionalText
    conselier_export_id: OptionalText
    excitor_export_id: OptionalText
    cursor: OptionalText
    impact_window_from: Timestamp | None
    impact_window_to: Timestamp | None


class RunStatsChanges(TypedDict, total=False):
    """What ``RunStats.evolve`` may change."""

    candidates: Count
    deduped: Count
    queued: Count
    completed: Count
    deltas: Count
    new_criticals: Count
    new_high: Count
    new_medium: Count
    new_low: Count


class TopFindingChanges(TypedDict, total=False):
    """What ``TopFinding.evolve`` may change."""

    purl: Text
    vulnerability_id: Text
    severity: SeverityRank
    link: OptionalText
