"""Pack artifacts for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.taskrunner.pack_artifacts import PackRunArtifactUploader

if TYPE_CHECKING:
    from twinstore.catalog.tenancy import AllTenants
    from twinstore.taskrunner.pack_artifacts import PackRunArtifact


__all__ = ["AsyncPackRunArtifactUploader"]


class AsyncPackRunArtifactUploader(Awaited[PackRunArtifactUploader]):
    """Awaits a :class:`PackRunArtifactUploader`, whose contracts hold."""

    async def upload(
        self, artifact: PackRunArtifact, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact:
        """Insert a record, or replace the pending one of its run and name; return it. Atomic."""
        return await self._threads.run(self._sync.upload, artifact, tenant_id=tenant_id)

    async def get(
        self, run_id: str, name: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact | None:
        """Return one record. Absent: ``None``, also for a run outside the scope."""
        return await self._threads.run(self._sync.get, run_id, name, tenant_id=tenant_id)

    async def get_required(
        self, run_id: str, name: str, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunArtifact:
        """Return one record as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, run_id, name, tenant_id=tenant_id)

    async def list(
        self, run_id: str, *, tenant_id: str | AllTenants | None = None
    ) -> tuple[PackRunArtifact, ...]:
        """Return the records of a run."""
        return await self._threads.run(self._sync.list, run_id, tenant_id=tenant_id)
