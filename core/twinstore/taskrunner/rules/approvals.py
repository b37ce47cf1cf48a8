"""What a write of an approval must satisfy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConflictError, ValidationError
from twinstore.taskrunner.enums import PackApprovalStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.taskrunner.pack_run_approvals import PackRunApproval
    from twinstore.taskrunner.pack_runs import PackRunState

ENTITY: Final = "pack_run_approvals"
NEED_ACTOR: Final = frozenset({PackApprovalStatus.APPROVED, PackApprovalStatus.REJECTED})


def check_saved(run: PackRunState, approvals: Sequence[PackRunApproval]) -> None:
    """Refuse approvals that do not belong to the run, or that are given twice."""
    seen: set[str] = set()
    for approval in approvals:
        if approval.run_id != run.run_id:
            raise _refused(approval, f"belongs to run {approval.run_id!r}, not to {run.run_id!r}")
        if approval.tenant_id != run.tenant_id:
            raise _refused(
                approval,
                f"names tenant {approval.tenant_id!r}, but its run {run.tenant_id!r}; both must agree",
            )
        if approval.approval_id in seen:
            raise _refused(approval, "is listed twice; list each once")
        seen.add(approval.approval_id)


def saved(stored: PackRunApproval | None, approval: PackRunApproval) -> PackRunApproval | None:
    """Return what is to be stored, ``None`` where the stored one stays as it is."""
    if stored is None:
        return approval
    pending = stored.status is approval.status is PackApprovalStatus.PENDING
    return approval if pending and stored != approval else None


def check_plan(run: PackRunState, plan_hash: str | None) -> None:
    """Refuse a decision about another plan than that of the run."""
    if plan_hash is not None and plan_hash != run.plan_hash:
        raise ConflictError(
            f"Pack run {run.run_id!r} has another plan than the one that was decided about; "
            "show its present plan to the approver.",
            entity=ENTITY,
            key=run.run_id,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision; the arguments are checked when it is created."""

    status: PackApprovalStatus
    now: datetime
    actor_id: str | None
    summary: str | None

    def __post_init__(self) -> None:
        if self.status is PackApprovalStatus.PENDING:
            raise ValidationError(
                "Argument status: pending is not a decision; give another status.", entity=ENTITY
            )
        if self.status in NEED_ACTOR and self.actor_id is None:
            raise ValidationError(
                f"Argument actor_id: {self.status} needs who decided; give it.", entity=ENTITY
            )

    def of(self, stored: PackRunApproval) -> PackRunApproval | None:
        """Return the decided approval, ``None`` if it is already decided so.

        Raises:
            ConflictError: it is decided otherwise, or by another person.
        """
        if stored.status is PackApprovalStatus.PENDING:
            return stored.evolve(
                status=self.status, completed_at=self.now, actor_id=self.actor_id, summary=self.summary
            )
        if (stored.status, stored.actor_id, stored.summary) == (self.status, self.actor_id, self.summary):
            return None
        raise ConflictError(
            f"Approval {stored.approval_id!r} of run {stored.run_id!r} is {stored.status} already; it is "
            "decided once. Read it to see by whom.",
            entity=ENTITY,
            key=f"{stored.run_id}:{stored.approval_id}",
        )


def _refused(approval: PackRunApproval, why: str) -> ValidationError:
    return ValidationError(
        f"Approval {approval.approval_id!r} {why}.",
        entity=ENTITY,
        key=f"{approval.run_id}:{approval.approval_id}",
    )
