"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Flag, Id, OptionalText, PositiveInt, Text
from twinstore.taskrunner.enums import PackRunStepKind

__all__ = ["PackRunStepPlanChanges"]


class PackRunStepPlanChanges(TypedDict, total=False):
    """What ``PackRunStepPlan.evolve`` may change."""

    step_id: Id
    kind: PackRunStepKind
    enabled: Flag
    continue_on_error: Flag
    max_parallel: PositiveInt | None
    approval_id: OptionalText
    gate_message: Text | None
