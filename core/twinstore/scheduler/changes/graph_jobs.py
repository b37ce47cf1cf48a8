"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import (
    Actor,
    Count,
    DigestText,
    Id,
    LowerKeyMap,
    OptionalText,
    StringSet,
    TenantId,
    Timestamp,
)
from twinstore.scheduler.enums import GraphBuildTrigger, GraphJobStatus, GraphOverlayKind, GraphOverlayTrigger
from twinstore.scheduler.graph_jobs import BuildJobId, OverlayJobId

__all__ = ["GraphBuildJobChanges", "GraphJobChanges", "GraphOverlayJobChanges"]


class GraphBuildJobChanges(TypedDict, total=False):
    """What ``GraphBuildJob.evolve`` may change."""

    schema_version: str
    id: BuildJobId
    tenant_id: TenantId
    status: GraphJobStatus
    attempts: Count
    correlation_id: OptionalText
    created_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    error: OptionalText
    metadata: LowerKeyMap
    sbom_id: Id
    sbom_version_id: Id
    sbom_digest: DigestText
    graph_snapshot_id: Id | None
    trigger: GraphBuildTrigger
    cartographer_job_id: OptionalText


class GraphJobChanges(TypedDict, total=False):
    """What ``GraphJob.evolve`` may change."""

    schema_version: str
    id: str
    tenant_id: TenantId
    status: GraphJobStatus
    attempts: Count
    correlation_id: OptionalText
    created_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    error: OptionalText
    metadata: LowerKeyMap


class GraphOverlayJobChanges(TypedDict, total=False):
    """What ``GraphOverlayJob.evolve`` may change."""

    schema_version: str
    id: OverlayJobId
    tenant_id: TenantId
    status: GraphJobStatus
    attempts: Count
    correlation_id: OptionalText
    created_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    error: OptionalText
    metadata: LowerKeyMap
    graph_snapshot_id: Id
    build_job_id: Id | None
    overlay_kind: GraphOverlayKind
    overlay_key: Actor
    subjects: StringSet
    trigger: GraphOverlayTrigger
