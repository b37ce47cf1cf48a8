"""What a step of a pack run must satisfy against the stored one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from twinstore.errors import InvalidTransitionError
from twinstore.taskrunner.enums import PackRunStepStatus
from twinstore.taskrunner.states import STEP_MOVES

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.taskrunner.pack_runs import PackRunFailurePolicy, PackRunStep

PENDING, RUNNING, SUCCEEDED, FAILED, _ = PackRunStepStatus


def check_step(run_id: str, policy: PackRunFailurePolicy, stored: PackRunStep, step: PackRunStep) -> None:
    """Refuse a step that the state machine does not let follow the stored one."""
    if step == stored:
        return
    if step.status is stored.status:
        _check_stay(run_id, stored, step)
        return
    if step.status not in STEP_MOVES[stored.status]:
        raise _forbidden(run_id, stored, step, "this move is not allowed")
    moved = _moved_at(run_id, stored, step)
    match stored.status, step.status:
        case PackRunStepStatus.PENDING, PackRunStepStatus.RUNNING:
            _check_start(run_id, stored, step, moved)
        case PackRunStepStatus.RUNNING, PackRunStepStatus.SUCCEEDED:
            _check_success(run_id, stored, step)
        case PackRunStepStatus.RUNNING, _:
            _check_failure(run_id, policy, stored, step, moved)
        case _:
            pass  # skipped, or resumed: the caller decides about the rest


def _check_stay(run_id: str, stored: PackRunStep, step: PackRunStep) -> None:
    if not STEP_MOVES[stored.status]:
        raise _forbidden(run_id, stored, step, f"a {stored.status} step never changes")
    fixed = ("last_transition_at", "next_attempt_at", "attempts")
    changed = [name for name in fixed if getattr(stored, name) != getattr(step, name)]
    if changed:
        raise _forbidden(run_id, stored, step, f"{', '.join(changed)} changes with a move only")


def _moved_at(run_id: str, stored: PackRunStep, step: PackRunStep) -> datetime:
    moved = step.last_transition_at
    if moved is None:
        raise _forbidden(run_id, stored, step, "a move sets lastTransitionAt")
    if stored.last_transition_at is not None and moved < stored.last_transition_at:
        raise _forbidden(run_id, stored, step, "lastTransitionAt would go back before the move before it")
    return moved


def _check_start(run_id: str, stored: PackRunStep, step: PackRunStep, moved: datetime) -> None:
    _check_attempts(run_id, stored, step, 0)
    if stored.next_attempt_at is not None and moved < stored.next_attempt_at:
        raise _forbidden(run_id, stored, step, "it may not start before nextAttemptAt")


def _check_success(run_id: str, stored: PackRunStep, step: PackRunStep) -> None:
    _check_attempts(run_id, stored, step, 0)
    if step.status_reason is not None or step.next_attempt_at is not None:
        raise _forbidden(run_id, stored, step, "success clears statusReason and nextAttemptAt")


def _check_failure(
    run_id: str, policy: PackRunFailurePolicy, stored: PackRunStep, step: PackRunStep, moved: datetime
) -> None:
    _check_attempts(run_id, stored, step, 1)
    is_last = step.attempts >= policy.max_attempts
    if is_last is not (step.status is FAILED):
        left = "none of its" if is_last else f"{policy.max_attempts - step.attempts} of its"
        raise _forbidden(
            run_id, stored, step, f"after this failure {left} {policy.max_attempts} attempts is left"
        )
    if step.status is PENDING and step.next_attempt_at != later(moved, policy.backoff_seconds):
        raise _forbidden(
            run_id, stored, step, f"nextAttemptAt is lastTransitionAt and {policy.backoff_seconds} s"
        )


def _check_attempts(run_id: str, stored: PackRunStep, step: PackRunStep, more: int) -> None:
    if step.attempts != stored.attempts + more:
        raise _forbidden(run_id, stored, step, f"attempts should be {stored.attempts + more} then")


def later(moment: datetime, seconds: int) -> datetime | None:
    """Return the instant so many seconds later, ``None`` where no instant can be as late."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _forbidden(run_id: str, stored: PackRunStep, step: PackRunStep, why: str) -> InvalidTransitionError:
    return InvalidTransitionError(
        f"Step {step.step_id!r} of pack run {run_id!r} cannot go from {stored.status} to {step.status}: "
        f"{why}.",
        from_state=stored.status.value,
        to_state=step.status.value,
        entity="pack_runs",
        key=run_id,
    )
