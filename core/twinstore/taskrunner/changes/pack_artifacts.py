"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Id, Name, Text, Timestamp
from twinstore.taskrunner.enums import PackArtifactStatus

__all__ = ["PackRunArtifactChanges"]


class PackRunArtifactChanges(TypedDict, total=False):
    """What ``PackRunArtifact.evolve`` may change."""

    run_id: Id
    name: Id
    type: Name
    source_path: Text | None
    stored_path: Text | None
    status: PackArtifactStatus
    notes: Text | None
    captured_at: Timestamp
