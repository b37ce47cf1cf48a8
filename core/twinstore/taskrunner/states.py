"""State machines of the task runner: which moves are allowed."""

from __future__ import annotations

from typing import Final

from twinstore.taskrunner.enums import PackArtifactStatus, PackRunStepStatus

__all__ = ["ARTIFACT_MOVES", "STEP_MOVES"]

PENDING, RUNNING, SUCCEEDED, FAILED, SKIPPED = PackRunStepStatus
STEP_MOVES: Final[dict[PackRunStepStatus, frozenset[PackRunStepStatus]]] = {
    PENDING: frozenset({RUNNING, SKIPPED}),
    RUNNING: frozenset({SUCCEEDED, PENDING, FAILED}),
    SUCCEEDED: frozenset(),
    FAILED: frozenset({PENDING}),
    SKIPPED: frozenset(),
}
ARTIFACT_MOVES: Final[dict[PackArtifactStatus, frozenset[PackArtifactStatus]]] = {
    PackArtifactStatus.PENDING: frozenset(PackArtifactStatus) - {PackArtifactStatus.PENDING},
    PackArtifactStatus.COPIED: frozenset(),
    PackArtifactStatus.MATERIALIZED: frozenset(),
    PackArtifactStatus.SKIPPED: frozenset(),
}
