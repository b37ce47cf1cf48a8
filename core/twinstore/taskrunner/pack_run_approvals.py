"""Approvals of pack runs: who let a step go on, and the contract of their store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, OptionalText, StringSet, TenantId, Text, Timestamp
from twinstore.models.rules import PresentExactlyIn, PresentIn
from twinstore.taskrunner.enums import PackApprovalStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.catalog.tenancy import AllTenants

__all__ = ["PackRunApproval", "PackRunApprovalStore"]


class PackRunApproval(CanonicalModel):
    """One approval that a plan asks for; it holds back ``stepIds`` until it is given.

    A gate with several approvers is several approvals that hold back the same step.
    """

    rules = (
        PresentIn(
            "actor_id",
            by="status",
            members=(PackApprovalStatus.APPROVED, PackApprovalStatus.REJECTED),
            code="approval_actor",
            message="actorId should be present in the states approved and rejected",
        ),
        PresentExactlyIn(
            "completed_at",
            by="status",
            members=(PackApprovalStatus.APPROVED, PackApprovalStatus.REJECTED, PackApprovalStatus.EXPIRED),
            code="approval_completed",
            message="completedAt should be present exactly where the state is not pending",
        ),
    )

    run_id: Id
    approval_id: Id
    required_grants: StringSet = ()
    step_ids: StringSet = ()
    messages: tuple[Text, ...] = ()
    reason_template: OptionalText = None
    requested_at: Timestamp
    status: PackApprovalStatus = PackApprovalStatus.PENDING
    actor_id: OptionalText = None
    completed_at: Timestamp | None = None
    summary: OptionalText = None
    tenant_id: TenantId | None = None


class PackRunApprovalStore(Protocol):
    """Stores the approvals of pack runs; each is decided once, and none is ever removed.

    An approval belongs to the owner of its run; see
    :class:`~twinstore.taskrunner.pack_runs.PackRunStateStore` for ``tenant_id``. All methods raise
    ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another tenant or when tenancy
    is enforced and no tenant is named, ``UnavailableError`` when the store cannot be reached and
    ``DocumentDecodeError`` for a stored document that does not form an approval.
    """

    def save(
        self,
        run_id: str,
        approvals: Sequence[PackRunApproval],
        *,
        tenant_id: str | AllTenants | None = None,
    ) -> None:
        """Insert the approvals of a run that are not stored, and replace pending ones by pending ones.

        Decided approvals stay as they are, and nothing is decided here. No approvals: nothing is done.
        Repeated call: no write. Atomic: all or nothing.

        Raises:
            NotFoundError: the run is unknown or outside the scope.
            ValidationError: an approval names another run or tenant than the run, or is given twice.
        """
        ...

    def get(
        self, run_id: str, approval_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunApproval | None:
        """Return one approval. Absent: ``None``, also for a run outside the scope."""
        ...

    def get_required(
        self, run_id: str, approval_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunApproval:
        """Return one approval as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> tuple[PackRunApproval, ...]:
        """Return the approvals of a run.

        Order: approval_id. Empty, also for an unknown run and one outside the scope: ``()``.
        """
        ...

    def decide(
        self,
        run_id: str,
        approval_id: str,
        status: PackApprovalStatus,
        now: datetime,
        *,
        actor_id: str | None = None,
        summary: str | None = None,
        plan_hash: str | None = None,
        tenant_id: str | AllTenants | None = None,
    ) -> PackRunApproval:
        """Decide a pending approval; return it as it is stored. Atomic: of several callers one decides.

        Repeated call with the same status, actor and summary: no write.

        Raises:
            NotFoundError: the run is unknown or outside the scope, or has no such approval.
            ConflictError: it is decided otherwise, or the run has another plan than ``plan_hash`` says.
            ValidationError: ``pending`` is no decision, or ``approved`` and ``rejected`` lack an actor.
        """
        ...
