"""Impact snapshots: stored under their own or a derived id, together with their owner."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.paging import Page
from twinstore.access.repository import Repository
from twinstore.access.scope import id_argument, optional_reference_argument
from twinstore.catalog.row import Row
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.scheduler.impact_snapshots import ImpactSet, ImpactSnapshotRepository, identify
from twinstore.scheduler.rules.impact_snapshots import check_owner
from twinstore.scheduler.selectors import Selector, digest_for

if TYPE_CHECKING:
    from twinstore.catalog.tenancy import Tenant


class ImpactSnapshots(Repository, ImpactSnapshotRepository):
    """Implements :class:`~twinstore.scheduler.impact_snapshots.ImpactSnapshotRepository`."""

    @override
    def upsert(self, tenant_id: str, snapshot: ImpactSet, *, run_id: str | None = None) -> str:
        tenant = self._admit(tenant_id)
        snapshot = self._model(snapshot, ImpactSet, "snapshot")
        run = optional_reference_argument(run_id, "run_id")
        # Before the id is derived, which binds the content to this tenant.
        check_owner(snapshot.selector, tenant.id)
        key, stored = identify(tenant.id, snapshot, run)
        self._access.put(IMPACT_SNAPSHOTS, tenant, row_of(tenant, key, stored, run))
        return key

    @override
    def get(self, tenant_id: str, snapshot_id: str) -> ImpactSet | None:
        scope = self._admit(tenant_id)
        return self._get(IMPACT_SNAPSHOTS, scope, (id_argument(snapshot_id, "snapshot_id"),))

    @override
    def get_required(self, tenant_id: str, snapshot_id: str) -> ImpactSet:
        return self._required(self.get(tenant_id, snapshot_id), IMPACT_SNAPSHOTS, snapshot_id.strip())

    @override
    def get_latest_by_selector(self, tenant_id: str, selector: Selector) -> ImpactSet | None:
        tenant = self._admit(tenant_id)
        digest = digest_for(self._model(selector, Selector, "selector"), tenant)
        page = self._page(IMPACT_SNAPSHOTS, queries.latest_snapshot(tenant, digest))
        return page[0] if page else None

    @override
    def list_by_run(
        self, tenant_id: str, run_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        scope = self._admit(tenant_id)
        return self._page(IMPACT_SNAPSHOTS, queries.snapshots(scope, limit, page_token, run_id))

    @override
    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ImpactSet]:
        scope = self._admit(tenant_id)
        return self._page(IMPACT_SNAPSHOTS, queries.snapshots(scope, limit, page_token))

    @override
    def count(self, tenant_id: str) -> int:
        return self._count(IMPACT_SNAPSHOTS, queries.snapshots(self._admit(tenant_id), 1, None))

    @override
    def delete(self, tenant_id: str, snapshot_id: str) -> bool:
        scope = self._admit(tenant_id)
        return self._remove(IMPACT_SNAPSHOTS, scope, (id_argument(snapshot_id, "snapshot_id"),))

    @override
    def purge_generated(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        scope = self._admit_optional(tenant_id, "purge_generated")
        return self._purge(IMPACT_SNAPSHOTS, scope, before, batch_size)


def row_of(tenant: Tenant, key: str, snapshot: ImpactSet, run_id: str | None) -> Row[ImpactSet]:
    """Return the row of a snapshot with its markers."""
    markers = {
        "snapshotId": key,
        "tenantId": tenant.id,
        "runId": run_id,
        "selectorDigest": digest_for(snapshot.selector, tenant),
    }
    return Row(snapshot, {name: value for name, value in markers.items() if value is not None})
