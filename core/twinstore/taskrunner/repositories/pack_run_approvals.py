"""Approvals of pack runs: saved with the plan, each decided once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from twinstore.access.protocol import Ref
from twinstore.access.scope import id_argument, instant_argument, member_argument, optional_text_argument
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import AllTenants
from twinstore.taskrunner import queries
from twinstore.taskrunner.catalog import PACK_RUN_APPROVALS
from twinstore.taskrunner.enums import PackApprovalStatus
from twinstore.taskrunner.pack_run_approvals import PackRunApproval, PackRunApprovalStore
from twinstore.taskrunner.repositories.base import TaskRunnerRepository
from twinstore.taskrunner.rules import approvals as rules

if TYPE_CHECKING:
    from twinstore.access.protocol import Rows, ServerClock


class PackRunApprovals(TaskRunnerRepository, PackRunApprovalStore):
    """Implements :class:`~twinstore.taskrunner.pack_run_approvals.PackRunApprovalStore`."""

    @override
    def save(
        self,
        run_id: str,
        approvals: Sequence[PackRunApproval],
        *,
        tenant_id: str | AllTenants | None = None,
    ) -> None:
        key = id_argument(run_id, "run_id")
        approvals = self._models(approvals, PackRunApproval, "approvals")
        scope = self._admit_run(tenant_id, "save")
        self._check_writable()
        # No run is ever removed or given to another tenant, so reading it without a lock is enough.
        rules.check_saved(self._run(scope, key), approvals)
        if not approvals:
            return
        # In the order of their ids, so that two callers which save the same ones do not deadlock.
        wanted = sorted(approvals, key=lambda approval: approval.approval_id)

        def saved(rows: Rows, now: ServerClock) -> Rows:
            del now
            found = cast("tuple[Row[PackRunApproval] | None, ...]", rows)
            return tuple(
                rows_of(rules.saved(None if row is None else row.model, approval))
                for row, approval in zip(found, wanted, strict=True)
            )

        refs = [
            Ref(PACK_RUN_APPROVALS, scope, (key, approval.approval_id), below=(key,)) for approval in wanted
        ]
        self._access.change(refs, saved)

    @override
    def get(
        self, run_id: str, approval_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunApproval | None:
        scope = self._admit_run(tenant_id, "get")
        key = (id_argument(run_id, "run_id"), id_argument(approval_id, "approval_id"))
        return self._get(PACK_RUN_APPROVALS, scope, key)

    @override
    def get_required(
        self, run_id: str, approval_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunApproval:
        found = self.get(run_id, approval_id, tenant_id=tenant_id)
        return self._required(found, PACK_RUN_APPROVALS, f"{run_id.strip()}:{approval_id.strip()}")

    @override
    def list(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> tuple[PackRunApproval, ...]:
        scope = self._admit_run(tenant_id, "list")
        return self._every(PACK_RUN_APPROVALS, queries.approvals(scope, id_argument(run_id, "run_id")))

    @override
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
        run, key = id_argument(run_id, "run_id"), id_argument(approval_id, "approval_id")
        decision = rules.Decision(
            status=member_argument(status, PackApprovalStatus, "status"),
            now=instant_argument(now, "now"),
            actor_id=optional_text_argument(actor_id, "actor_id"),
            summary=optional_text_argument(summary, "summary"),
        )
        scope = self._admit_run(tenant_id, "decide")
        self._check_writable()
        rules.check_plan(self._run(scope, run), plan_hash)

        def decided(stored: Row[PackRunApproval] | None, moment: ServerClock) -> Row[PackRunApproval] | None:
            del moment
            return None if stored is None else rows_of(decision.of(stored.model))

        row = self._change(PACK_RUN_APPROVALS, scope, (run, key), decided)
        return self._required(row, PACK_RUN_APPROVALS, f"{run}:{key}").model


def rows_of(approval: PackRunApproval | None) -> Row[PackRunApproval] | None:
    """Return the row of a model, if there is one to be stored."""
    return None if approval is None else Row(approval)
