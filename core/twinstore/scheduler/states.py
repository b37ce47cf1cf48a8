"""State machines of the scheduler: which moves are allowed."""

from __future__ import annotations

from typing import Final

from twinstore.scheduler.enums import GraphJobStatus, PolicyRunJobStatus, RunState

PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
POLICY_JOB_MOVES: Final[dict[PolicyRunJobStatus, frozenset[PolicyRunJobStatus]]] = {
    PENDING: frozenset({DISPATCHING, CANCELLED}),
    DISPATCHING: frozenset({SUBMITTED, PENDING, FAILED, CANCELLED}),
    SUBMITTED: frozenset({COMPLETED, FAILED, CANCELLED}),
    COMPLETED: frozenset(),
    FAILED: frozenset({PENDING}),
    CANCELLED: frozenset(),
}

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


def policy_job_move_allowed(origin: PolicyRunJobStatus, target: PolicyRunJobStatus) -> bool:
    """Whether a policy job may move; staying is allowed where another status may follow."""
    moves = POLICY_JOB_MOVES[origin]
    return target in moves or (origin is target and bool(moves))


ENDED: Final = frozenset({GraphJobStatus.FAILED, GraphJobStatus.CANCELED})
GRAPH_JOB_MOVES: Final[dict[GraphJobStatus, frozenset[GraphJobStatus]]] = {
    GraphJobStatus.PENDING: frozenset({GraphJobStatus.QUEUED, GraphJobStatus.RUNNING}) | ENDED,
    GraphJobStatus.QUEUED: frozenset({GraphJobStatus.RUNNING}) | ENDED,
    GraphJobStatus.RUNNING: frozenset({GraphJobStatus.COMPLETED}) | ENDED,
    GraphJobStatus.COMPLETED: frozenset(),
    GraphJobStatus.FAILED: frozenset(),
    GraphJobStatus.CANCELED: frozenset(),
}


def graph_job_move_allowed(origin: GraphJobStatus, target: GraphJobStatus) -> bool:
    """Whether a graph job may move; staying is allowed in the states that are not terminal."""
    return target in GRAPH_JOB_MOVES[origin] or (origin is target and not origin.terminal)
