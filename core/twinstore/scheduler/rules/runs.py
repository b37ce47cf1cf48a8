"""What a write of a run must satisfy against the stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from twinstore.access.errors import invalid_transition
from twinstore.errors import ConflictError, InvalidTransitionError, ValidationError
from twinstore.models.json_text import format_timestamp
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.runs import Run, RunReason, RunStats
from twinstore.scheduler.states import run_move_allowed

if TYPE_CHECKING:
    from datetime import datetime

IMMUTABLE: Final = ("schedule_id", "trigger", "created_at", "retry_of")


def check_create(run: Run) -> None:
    """Refuse a new run that is neither planning nor queued."""
    if run.state not in {RunState.PLANNING, RunState.QUEUED}:
        raise ValidationError(
            f"Run {run.id!r} is in state {run.state}; a new run starts in planning or queued.",
            entity="runs",
            key=run.id,
        )


def check_update(stored: Run, run: Run, expected_state: RunState | None) -> bool:
    """Return whether the update changes anything; raise when it is not allowed."""
    # Before the comparison: who expects another state has not seen what is stored.
    if expected_state is not None and stored.state is not expected_state:
        raise ConflictError(
            f"Run {run.id!r} is in state {stored.state}, not in {expected_state} as expected; read it again.",
            entity="runs",
            key=run.id,
        )
    # Before the rules: a repeated call is allowed even in a terminal state, which no move leaves.
    if stored == run:
        return False
    _check_move(stored, run.state, run.stats)
    _check_immutable(stored, run)
    _check_counters(stored, run)
    return True


def moved(
    stored: Run, state: RunState, now: datetime, *, stats: RunStats | None = None, error: str | None = None
) -> Run:
    """Return a run as it was moved at an instant; the stored one if it was moved so before."""
    starts = state is RunState.RUNNING
    changes = {
        "state": state,
        "started_at" if starts else "finished_at": now,
        "stats": stored.stats if stats is None else stats,
        "error": error,
    }
    if stored.state is state and (starts or all(getattr(stored, name) == changes[name] for name in changes)):
        return stored
    # Before the model is built: its rules refuse the instants of a move that must be refused as a move.
    _check_move(stored, state, stats or stored.stats)
    earliest = stored.started_at or stored.created_at
    if now < earliest:
        raise ValidationError(
            f"Run {stored.id!r} cannot become {state} at {format_timestamp(now)}, before "
            f"{format_timestamp(earliest)}, when it was created or started.",
            entity="runs",
            key=stored.id,
        )
    run = stored.evolve(**changes)
    _check_counters(stored, run)
    return run


def _check_move(stored: Run, state: RunState, stats: RunStats) -> None:
    if not run_move_allowed(stored.state, state):
        why = "it ended before, otherwise" if stored.state is state else "this move is not allowed"
        raise _forbidden(stored, state, why)
    skips_work = stored.state is RunState.PLANNING and state is RunState.COMPLETED
    if skips_work and (stats.candidates or stats.queued):
        raise _forbidden(stored, state, "a planning run completes only without candidates and queued work")


def _forbidden(stored: Run, state: RunState, why: str) -> InvalidTransitionError:
    return invalid_transition("runs", "run", stored.id, (stored.state, state), why)


def _check_immutable(stored: Run, run: Run) -> None:
    # The start is not known when a run is created, so it may be set once.
    names = [*IMMUTABLE, "started_at"] if stored.started_at is not None else IMMUTABLE
    changed = [name for name in names if getattr(stored, name) != getattr(run, name)]
    if changed:
        raise ValidationError(
            f"Run {run.id!r}: {', '.join(changed)} cannot change after it was set.", entity="runs", key=run.id
        )


def _check_counters(stored: Run, run: Run) -> None:
    fields = RunStats.model_fields
    fallen = [name for name in fields if getattr(run.stats, name) < getattr(stored.stats, name)]
    if fallen:
        raise ValidationError(
            f"Run {run.id!r}: stats.{', stats.'.join(fallen)} would decrease; counters only grow.",
            entity="runs",
            key=run.id,
        )


def retried(origin: Run, requested_by: str, now: datetime, new_run_id: str | None) -> Run:
    """Return the new run that retries a terminal one."""
    if not origin.state.terminal:
        raise InvalidTransitionError(
            f"Run {origin.id!r} is in state {origin.state}; only a terminal run can be retried.",
            from_state=origin.state.value,
            to_state=RunState.PLANNING.value,
            entity="runs",
            key=origin.id,
        )
    reason = origin.reason or RunReason()
    return Run(
        id=new_run_id or f"run:{origin.tenant_id}:retry:{uuid4().hex}",
        tenant_id=origin.tenant_id,
        schedule_id=origin.schedule_id,
        trigger=RunTrigger.MANUAL,
        state=RunState.PLANNING,
        reason=reason.evolve(manual_reason=f"retry of {origin.id} requested by {requested_by}"),
        created_at=now,
        retry_of=origin.id,
    )
