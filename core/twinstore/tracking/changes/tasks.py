"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Actor, Id, OptionalReference, OptionalText, Timestamp
from twinstore.tracking.enums import TaskStatus

__all__ = ["TrackingTaskChanges"]


class TrackingTaskChanges(TypedDict, total=False):
    """What ``TrackingTask.evolve`` may change."""

    task_id: Id
    session_id: Id
    project_id: Id
    github_issue_id: OptionalReference
    task_name: Actor
    status: TaskStatus
    started_at: Timestamp | None
    completed_at: Timestamp | None
    error_message: OptionalText
    created_at: Timestamp
    updated_at: Timestamp
