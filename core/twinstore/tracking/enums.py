"""The enumerations of tracking; names and texts are the customer's."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["ENDED_SESSIONS", "ENDED_TASKS", "MachineStatus", "SessionStatus", "TaskStatus"]


class SessionStatus(StrEnum):
    """The status of a session."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STALLED = "stalled"

    @property
    def ended(self) -> bool:
        """Whether the session works no more; it then has a ``completed_at`` and occupies no slot."""
        return self in ENDED_SESSIONS


class TaskStatus(StrEnum):
    """The status of a task."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"

    @property
    def ended(self) -> bool:
        """Whether work on the task has ended."""
        return self in ENDED_TASKS


class MachineStatus(StrEnum):
    """Whether a machine can be used."""

    ONLINE = "online"
    OFFLINE = "offline"
    MAINTENANCE = "maintenance"


ENDED_SESSIONS: Final = frozenset({SessionStatus.COMPLETED, SessionStatus.FAILED})
ENDED_TASKS: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED})
