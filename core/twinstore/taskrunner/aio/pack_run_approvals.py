"""Pack run approvals for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.taskrunner.pack_run_approvals import PackRunApprovalStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.catalog.tenancy import AllTenants
    from twinstore.taskrunner.enums import PackApprovalStatus
    from twinstore.taskrunner.pack_run_approvals import PackRunApproval


__all__ = ["AsyncPackRunApprovalStore"]


class AsyncPackRunApprovalStore(Awaited[PackRunApprovalStore]):
    """Awaits a :class:`PackRunApprovalStore`, whose contracts hold."""

    async def save(
        self, run_id: str, approvals: Sequence[PackRunApproval], *, tenant_id: str | AllTenants | None = None
    ) -> None:
        """Insert the approvals of a run that are not stored, and replace pending ones by pending ones."""
        return await self._threads.run(self._sync.save, run_id, approvals, tenant_id=tenant_id)

    async def get(
        self, run_id: str, approval_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunApproval | None:
        """Return one approval. Absent: ``None``, also for a run outside the scope."""
        return await self._threads.run(self._sync.get, run_id, approval_id, tenant_id=tenant_id)

    async def get_required(
        self, run_id: str, approval_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunApproval:
        """Return one approval as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, run_id, approval_id, tenant_id=tenant_id)

    async def list(
        self, run_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> tuple[PackRunApproval, ...]:
        """Return the approvals of a run."""
        return await self._threads.run(self._sync.list, run_id, tenant_id=tenant_id)

    async def decide(
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
        """Decide a pending approval; return it as it is stored. Atomic: of several callers one decides."""
        return await self._threads.run(
            self._sync.decide,
            run_id,
            approval_id,
            status,
            now,
            actor_id=actor_id,
            summary=summary,
            plan_hash=plan_hash,
            tenant_id=tenant_id,
        )
