"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Actor, Count32, Id, LowerKeyMap, PositiveInt32, StringSet, TenantId, Timestamp
from twinstore.scheduler.workers import WorkerStatus

__all__ = ["WorkerChanges"]


class WorkerChanges(TypedDict, total=False):
    """What ``Worker.evolve`` may change."""

    id: Id
    tenant_id: TenantId | None
    hostname: Actor
    process_id: PositiveInt32 | None
    job_types: StringSet
    max_concurrent_jobs: PositiveInt32
    current_jobs: Count32
    status: WorkerStatus
    last_heartbeat_at: Timestamp
    registered_at: Timestamp
    metadata: LowerKeyMap
