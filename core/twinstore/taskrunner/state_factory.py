"""The first state of a pack run, made from what its plan says of each step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Flag, Id, OptionalText, PositiveInt, Text
from twinstore.taskrunner.enums import PackRunStepKind, PackRunStepStatus
from twinstore.taskrunner.pack_runs import PackRunFailurePolicy, PackRunState, PackRunStep

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.models.json_text import JsonObject

__all__ = ["PackRunStateFactory", "PackRunStepPlan"]

GATE_REASONS: Final = {
    PackRunStepKind.GATE_APPROVAL: "requires-approval",
    PackRunStepKind.GATE_POLICY: "requires-policy",
}
DISABLED: Final = "disabled"
ONCE: Final = PackRunFailurePolicy()


class PackRunStepPlan(CanonicalModel):
    """What a plan says of one step, before anything has happened to it."""

    step_id: Id
    kind: PackRunStepKind = PackRunStepKind.RUN
    enabled: Flag = True
    continue_on_error: Flag = False
    max_parallel: PositiveInt | None = None
    approval_id: OptionalText = None
    gate_message: Text | None = None


class PackRunStateFactory:
    """Makes the first state of pack runs."""

    @staticmethod
    def create_initial(
        run_id: str,
        plan_hash: str,
        plan: JsonObject,
        steps: Iterable[PackRunStepPlan],
        now: datetime,
        *,
        failure_policy: PackRunFailurePolicy = ONCE,
        requested_at: datetime | None = None,
        tenant_id: str | None = None,
    ) -> PackRunState:
        """Return a run whose steps wait to be started.

        A gate says what it waits for: ``requires-approval`` or ``requires-policy``. A disabled step, be it a
        gate or not, is ``skipped`` from the start, with the reason ``disabled``.

        Args:
            run_id: identifies the run.
            plan_hash: the hash that the planner made.
            plan: the whole plan, kept as it is.
            steps: the steps of the plan, flattened.
            now: the instant of persistence.
            failure_policy: how often a failed step is tried again; default: once only.
            requested_at: the instant of the request; default: ``now``.
            tenant_id: the tenant; default: none.
        """
        return PackRunState.model_validate(
            {
                "run_id": run_id,
                "plan_hash": plan_hash,
                "plan": plan,
                "failure_policy": failure_policy,
                "requested_at": now if requested_at is None else requested_at,
                "created_at": now,
                "updated_at": now,
                "steps": tuple(initial_step(step, now) for step in steps),
                "tenant_id": tenant_id,
            }
        )


def initial_step(step: PackRunStepPlan, now: datetime) -> PackRunStep:
    """Return a step as it is before the run starts."""
    if step.enabled:
        status, reason, moved = PackRunStepStatus.PENDING, GATE_REASONS.get(step.kind), None
    else:
        # Disabled wins over a gate: a step that will not run needs no approval.
        status, reason, moved = PackRunStepStatus.SKIPPED, DISABLED, now
    return PackRunStep.model_validate(
        {**step.__dict__, "status": status, "status_reason": reason, "last_transition_at": moved}
    )
