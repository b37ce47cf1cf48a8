"""What a write of a pack run must satisfy against the stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import ConflictError, ValidationError
from twinstore.models.json_text import format_timestamp
from twinstore.taskrunner.rules.steps import check_step

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.taskrunner.pack_runs import PackRunState

ENTITY: Final = "pack_runs"
# The tenant is not among them: a run of another one is not seen at all.
IMMUTABLE: Final = {"created_at": "createdAt", "plan_hash": "planHash"}


def check_save(stored: PackRunState | None, state: PackRunState, expected: datetime | None) -> bool:
    """Return whether the save changes anything; raise when it is not allowed."""
    # Before the comparison: who expects another state has not seen what is stored.
    _check_expected(stored, state, expected)
    if stored is None:
        return True
    if stored == state:
        return False
    _check_immutable(stored, state)
    _check_steps(stored, state)
    if expected is not None and state.updated_at <= stored.updated_at:
        raise ValidationError(
            f"Pack run {state.run_id!r}: updatedAt should be later than "
            f"{format_moment(stored.updated_at)}, which is stored and expected; "
            "otherwise another writer with the same expectation could overwrite this change.",
            entity=ENTITY,
            key=state.run_id,
        )
    return True


def _check_expected(stored: PackRunState | None, state: PackRunState, expected: datetime | None) -> None:
    if expected is None or (stored is not None and stored.updated_at == expected):
        return
    found = "does not exist" if stored is None else f"was updated at {format_moment(stored.updated_at)}"
    raise ConflictError(
        f"Pack run {state.run_id!r} {found}, not at {format_moment(expected)} as expected; read it again.",
        entity=ENTITY,
        key=state.run_id,
    )


def _check_immutable(stored: PackRunState, state: PackRunState) -> None:
    changed = [wire for name, wire in IMMUTABLE.items() if getattr(stored, name) != getattr(state, name)]
    if changed:
        raise ValidationError(
            f"Pack run {state.run_id!r}: {', '.join(changed)} cannot change after it was set.",
            entity=ENTITY,
            key=state.run_id,
        )


def _check_steps(stored: PackRunState, state: PackRunState) -> None:
    steps = {step.step_id: step for step in state.steps}
    missing = [step.step_id for step in stored.steps if step.step_id not in steps]
    if missing:
        raise ValidationError(
            f"Pack run {state.run_id!r}: {len(missing)} stored steps are missing, the first is "
            f"{missing[0]!r}; a step is skipped and never removed.",
            entity=ENTITY,
            key=state.run_id,
        )
    for step in stored.steps:
        # By the policy that is stored: a write must not grant itself more attempts.
        check_step(state.run_id, stored.failure_policy, step, steps[step.step_id])


def format_moment(moment: datetime) -> str:
    """Return an instant as messages show it."""
    return format_timestamp(moment)
