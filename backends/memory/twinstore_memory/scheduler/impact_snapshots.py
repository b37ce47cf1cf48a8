"""Impact snapshots in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.scheduler.impact_snapshots import ImpactSet, identify
from twinstore.scheduler.rules.impact_snapshots import check_owner
from twinstore.scheduler.rules.missing import required
from twinstore.scheduler.selectors import Selector, selector_digest
from twinstore.scope import id_argument, model_argument, optional_reference_argument
from twinstore_memory.repository import MemoryRepository, own_for_write, refuse_foreign
from twinstore_memory.rows import Row, decode, encode, table, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page

__all__ = ["MemoryImpactSnapshotRepository"]


class MemoryImpactSnapshotRepository(MemoryRepository):
    """Implements :class:`~twinstore.scheduler.impact_snapshots.ImpactSnapshotRepository`."""

    def upsert(self, tenant_id: str, snapshot: ImpactSet, *, run_id: str | None = None) -> str:
        """Store a snapshot and return its id; see the Protocol."""
        tenant = self._admit(tenant_id)
        snapshot = model_argument(snapshot, ImpactSet, "snapshot")
        row = row_of(tenant, snapshot, optional_reference_argument(run_id, "run_id"))
        (key,) = row.key
        with self._link.writing() as unit:
            stored = own_for_write(unit, IMPACT_SNAPSHOTS, tenant, key)
            refuse_foreign(unit, IMPACT_SNAPSHOTS, tenant, key)
            if row != stored:
                write(unit, row)
        return key

    def get(self, tenant_id: str, snapshot_id: str) -> ImpactSet | None:
        """Return one snapshot; see the Protocol."""
        tenant = self._admit(tenant_id)
        row = self._get(IMPACT_SNAPSHOTS, tenant, id_argument(snapshot_id, "snapshot_id"))
        return None if row is None else decode(row, ImpactSet)

    def get_required(self, tenant_id: str, snapshot_id: str) -> ImpactSet:
        """Return one snapshot; see the Protocol."""
        return required(self.get(tenant_id, snapshot_id), IMPACT_SNAPSHOTS, snapshot_id.strip(), DRIVER)

    def get_latest_by_selector(self, tenant_id: str, selector: Selector) -> ImpactSet | None:
        """Return the newest snapshot of a selector; see the Protocol."""
        tenant = self._admit(tenant_id)
        digest = selector_digest(model_argument(selector, Selector, "selector"), tenant)
        rows = self._select(IMPACT_SNAPSHOTS, queries.latest_snapshot(tenant, digest))
        return decode(rows[0], ImpactSet) if rows else None

    def list_by_run(
        self, tenant_id: str, run_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of the snapshots of a run; see the Protocol."""
        tenant = self._admit(tenant_id)
        query = queries.snapshots(tenant, limit, page_token, run_id)
        return self._page(IMPACT_SNAPSHOTS, query, ImpactSet)

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ImpactSet]:
        """Return a page of all snapshots of a tenant; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(IMPACT_SNAPSHOTS, queries.snapshots(tenant, limit, page_token), ImpactSet)

    def delete(self, tenant_id: str, snapshot_id: str) -> bool:
        """Remove one snapshot; see the Protocol."""
        tenant = self._admit(tenant_id)
        key = id_argument(snapshot_id, "snapshot_id")
        with self._link.writing() as unit:
            found = own_for_write(unit, IMPACT_SNAPSHOTS, tenant, key) is not None
            if found:
                unit.remove(table(IMPACT_SNAPSHOTS), (key,))
        return found

    def purge_generated(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove old snapshots; see the Protocol."""
        tenant = self._admit_optional(tenant_id, "purge_generated")
        return self._purge_before(IMPACT_SNAPSHOTS, tenant, before, batch_size)


def row_of(tenant: str, snapshot: ImpactSet, run_id: str | None) -> Row:
    """Return the row of a snapshot with its markers."""
    check_owner(snapshot.selector, tenant)
    key, stored = identify(tenant, snapshot, run_id)
    markers = {
        "snapshotId": key,
        "tenantId": tenant,
        "runId": run_id,
        "selectorDigest": selector_digest(snapshot.selector, tenant),
    }
    return encode(IMPACT_SNAPSHOTS, stored, markers)
