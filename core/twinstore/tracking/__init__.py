"""Tracking: sessions of agents, their tasks, and the machines on which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.runtime.lazy import from_submodules

if TYPE_CHECKING:
    from twinstore.tracking.enums import MachineStatus, SessionStatus, TaskStatus
    from twinstore.tracking.machines import MachineAvailability, TrackingMachine, TrackingMachineRepository
    from twinstore.tracking.sessions import (
        SessionHealth,
        SessionQueryOptions,
        TrackingSession,
        TrackingSessionRepository,
    )
    from twinstore.tracking.storage import TrackingStorage, TrackingUnit
    from twinstore.tracking.tasks import TaskProgress, TaskQueryOptions, TrackingTask, TrackingTaskRepository

__all__ = [
    "MachineAvailability",
    "MachineStatus",
    "SessionHealth",
    "SessionQueryOptions",
    "SessionStatus",
    "TaskProgress",
    "TaskQueryOptions",
    "TaskStatus",
    "TrackingMachine",
    "TrackingMachineRepository",
    "TrackingSession",
    "TrackingSessionRepository",
    "TrackingStorage",
    "TrackingTask",
    "TrackingTaskRepository",
    "TrackingUnit",
]

if not TYPE_CHECKING:
    # Every application reads the plug-in of the module, and importing it imports this package.
    __getattr__ = from_submodules(__name__, __all__, ("enums", "machines", "sessions", "storage", "tasks"))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
