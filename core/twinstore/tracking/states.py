"""State machines of tracking: which moves there are, and by which way each is made."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from twinstore.tracking.enums import MachineStatus, SessionStatus, TaskStatus


class Cause(Enum):
    """How a move is made."""

    UPDATE = "an update"
    END = "complete or fail"
    HEARTBEAT = "a heartbeat"
    SWEEP = "mark_stalled"
    RECOVER = "recover"


Causes = frozenset[Cause]
ACTIVE, PAUSED, COMPLETED, FAILED, STALLED = SessionStatus
BY_UPDATE: Final[Causes] = frozenset({Cause.UPDATE})
BY_UPDATE_OR_END: Final[Causes] = frozenset({Cause.UPDATE, Cause.END})
SESSION_MOVES: Final[Mapping[SessionStatus, Mapping[SessionStatus, Causes]]] = {
    ACTIVE: {
        PAUSED: BY_UPDATE,
        STALLED: frozenset({Cause.UPDATE, Cause.SWEEP}),
        COMPLETED: BY_UPDATE_OR_END,
        FAILED: BY_UPDATE_OR_END,
    },
    PAUSED: {ACTIVE: BY_UPDATE, STALLED: BY_UPDATE, COMPLETED: BY_UPDATE_OR_END, FAILED: BY_UPDATE_OR_END},
    STALLED: {
        ACTIVE: frozenset({Cause.HEARTBEAT, Cause.RECOVER}),
        COMPLETED: BY_UPDATE_OR_END,
        FAILED: BY_UPDATE_OR_END,
    },
    FAILED: {ACTIVE: frozenset({Cause.RECOVER})},
    COMPLETED: {},
}

PENDING, IN_PROGRESS, DONE, BROKEN, BLOCKED = TaskStatus
TASK_MOVES: Final[Mapping[TaskStatus, frozenset[TaskStatus]]] = {
    PENDING: frozenset({IN_PROGRESS, BLOCKED}),
    IN_PROGRESS: frozenset({BLOCKED, DONE, BROKEN}),
    BLOCKED: frozenset({PENDING, IN_PROGRESS}),
    BROKEN: frozenset({PENDING}),
    DONE: frozenset(),
}

MACHINE_MOVES: Final[Mapping[MachineStatus, frozenset[MachineStatus]]] = {
    MachineStatus.ONLINE: frozenset({MachineStatus.OFFLINE, MachineStatus.MAINTENANCE}),
    MachineStatus.OFFLINE: frozenset({MachineStatus.ONLINE, MachineStatus.MAINTENANCE}),
    MachineStatus.MAINTENANCE: frozenset({MachineStatus.ONLINE, MachineStatus.OFFLINE}),
}


def causes_of(origin: SessionStatus, target: SessionStatus) -> Causes:
    """Return the ways from one status of a session to another; staying is an update, unless it has ended."""
    if origin is target:
        return frozenset() if origin.ended else BY_UPDATE
    return SESSION_MOVES[origin].get(target, frozenset())


def is_terminal(status: TaskStatus) -> bool:
    """Whether no move leaves a status of a task."""
    return not TASK_MOVES[status]
