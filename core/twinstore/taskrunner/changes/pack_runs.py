"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Count, Flag, FreeObject, Id, OptionalText, PositiveInt, TenantId, Text, Timestamp
from twinstore.taskrunner.enums import PackRunStepKind, PackRunStepStatus
from twinstore.taskrunner.pack_runs import FilledText, PackRunFailurePolicy, PackRunStep

__all__ = ["PackRunFailurePolicyChanges", "PackRunStateChanges", "PackRunStepChanges"]


class PackRunFailurePolicyChanges(TypedDict, total=False):
    """What ``PackRunFailurePolicy.evolve`` may change."""

    max_attempts: PositiveInt
    backoff_seconds: Count
    continue_on_error: Flag


class PackRunStateChanges(TypedDict, total=False):
    """What ``PackRunState.evolve`` may change."""

    run_id: Id
    plan_hash: FilledText
    plan: FreeObject
    failure_policy: PackRunFailurePolicy
    requested_at: Timestamp
    created_at: Timestamp
    updated_at: Timestamp
    steps: tuple[PackRunStep, ...]
    tenant_id: TenantId | None


class PackRunStepChanges(TypedDict, total=False):
    """What ``PackRunStep.evolve`` may change."""

    step_id: Id
    kind: PackRunStepKind
    enabled: Flag
    continue_on_error: Flag
    max_parallel: PositiveInt | None
    approval_id: OptionalText
    gate_message: Text | None
    status: PackRunStepStatus
    attempts: Count
    last_transition_at: Timestamp | None
    next_attempt_at: Timestamp | None
    status_reason: Text | None
