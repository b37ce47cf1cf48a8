"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Count32, FreeObject, Id, OptionalReference, Timestamp
from twinstore.tracking.enums import SessionStatus

__all__ = ["TrackingSessionChanges"]


class TrackingSessionChanges(TypedDict, total=False):
    """What ``TrackingSession.evolve`` may change."""

    session_id: Id
    project_id: Id
    machine_id: Id
    docker_slot: Count32 | None
    status: SessionStatus
    last_heartbeat: Timestamp
    current_task_id: OptionalReference
    started_at: Timestamp
    completed_at: Timestamp | None
    metadata: FreeObject
    created_at: Timestamp
    updated_at: Timestamp
    recovery_attempts: Count32
