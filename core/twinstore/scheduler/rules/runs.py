"""What a write of a run must satisfy against the stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from twinstore.access.errors import invalid_transition
from twinstore.errors import ConflictError, InvalidTransitionError, ValidationError
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
    _check_move(stored, run)
    _check_immutable(stored, run)
    _check_counters(stored, run)
    return True


def _check_move(stored: Run, run: Run) -> None:
    if not run_move_allowed(stored.state, run.state):
        raise _forbidden(stored, run, "this move is not allowed")
    skips_work = stored.state is RunState.PLANNING and run.state is RunState.COMPLETED
    if skips_work and (run.stats.candidates or run.stats.queued):
        raise _forbidden(stored, run, "a planning run completes only without candidates and queued work")


def _forbidden(stored: Run, run: Run, why: str) -> InvalidTransitionError:
    return invalid_transition("runs", "run", run.id, (stored.state, run.state), why)


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
