"""State machines of the scheduler: which moves are allowed."""

from __future__ import annotations

from typing import Final

from twinstore.scheduler.enums import RunState

__all__ = ["RUN_MOVES", "run_move_allowed"]

RUN_MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.PLANNING: frozenset({RunState.QUEUED, RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED}),
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.ERROR, RunState.CANCELLED}),
    RunState.RUNNING: frozenset({RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED}),
    RunState.COMPLETED: frozenset(),
    RunState.ERROR: frozenset(),
    RunState.CANCELLED: frozenset(),
}


def run_move_allowed(origin: RunState, target: RunState) -> bool:
    """Whether a run may move; staying is allowed in the states that are not terminal."""
    return target in RUN_MOVES[origin] or (origin is target and not origin.terminal)
