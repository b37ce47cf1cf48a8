"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Id, OptionalText, StringSet, TenantId, Text, Timestamp
from twinstore.taskrunner.enums import PackApprovalStatus

__all__ = ["PackRunApprovalChanges"]


class PackRunApprovalChanges(TypedDict, total=False):
    """What ``PackRunApproval.evolve`` may change."""

    run_id: Id
    approval_id: Id
    required_grants: StringSet
    step_ids: StringSet
    messages: tuple[Text, ...]
    reason_template: OptionalText
    requested_at: Timestamp
    status: PackApprovalStatus
    actor_id: OptionalText
    completed_at: Timestamp | None
    summary: OptionalText
    tenant_id: TenantId | None
