"""Impact snapshots on PostgreSQL: the payload is the whole snapshot, the other columns follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.scheduler.impact_snapshots import ImpactSet, identify
from twinstore.scheduler.rules.impact_snapshots import check_owner
from twinstore.scheduler.rules.missing import duplicate_id, required
from twinstore.scheduler.selectors import Selector, selector_digest
from twinstore.scope import id_argument, instant_argument, model_argument, optional_reference_argument
from twinstore_postgres.codec import Replanned
from twinstore_postgres.errors import Subject
from twinstore_postgres.listing import page_of
from twinstore_postgres.purging import purge
from twinstore_postgres.scheduler.tables import SNAPSHOTS_TABLE
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore_postgres.codec import Row
    from twinstore_postgres.work import Work

__all__ = ["PostgresImpactSnapshotRepository"]

# A rival may insert, replace or remove the row between two statements; then the first one is tried again.
TRIES: Final = 3

SELECT: Final = SNAPSHOTS_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE snapshot_id = %s AND tenant_id = %s"
)
# First row: true when the snapshot is stored now, because it replaced the own one, was inserted, or was there
# with equal content and run; false when a rival changed the own one meanwhile. No row: the id belongs to
# another tenant, or to a row that a rival inserted a moment ago.
SAVE: Final = SNAPSHOTS_TABLE.statement("""
WITH given ({columns}) AS (VALUES ({typed})),
replaced AS (
    UPDATE {table} SET ({columns}) = (SELECT * FROM given)
     WHERE snapshot_id = %s AND tenant_id = %s AND (content_digest, run_id) IS DISTINCT FROM (%s, %s)
    RETURNING true AS same
), inserted AS (
    INSERT INTO {table} ({columns}) SELECT * FROM given
    ON CONFLICT (snapshot_id) DO NOTHING RETURNING true AS same
)
SELECT same FROM replaced
UNION ALL
SELECT same FROM inserted
UNION ALL
SELECT (content_digest, run_id) IS NOT DISTINCT FROM (%s, %s)
  FROM {table} WHERE snapshot_id = %s AND tenant_id = %s
""")
DELETE: Final = SNAPSHOTS_TABLE.statement("DELETE FROM {table} WHERE snapshot_id = %s AND tenant_id = %s")
PURGE: Final = Replanned(b"""
DELETE FROM scheduler.impact_snapshots WHERE snapshot_id = ANY (ARRAY(
    SELECT snapshot_id FROM scheduler.impact_snapshots
     WHERE generated_at <= %s ORDER BY generated_at, snapshot_id LIMIT %s))
""")
PURGE_TENANT: Final = Replanned(b"""
DELETE FROM scheduler.impact_snapshots WHERE snapshot_id = ANY (ARRAY(
    SELECT snapshot_id FROM scheduler.impact_snapshots
     WHERE generated_at <= %s AND tenant_id = %s ORDER BY generated_at, snapshot_id LIMIT %s))
""")


class PostgresImpactSnapshotRepository:
    """Implements :class:`~twinstore.scheduler.impact_snapshots.ImpactSnapshotRepository`."""

    def __init__(self, work: Work) -> None:
        """Take the access to the server."""
        self._work = work

    def upsert(self, tenant_id: str, snapshot: ImpactSet, *, run_id: str | None = None) -> str:
        """Store a snapshot and return its id; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        snapshot = model_argument(snapshot, ImpactSet, "snapshot")
        run = optional_reference_argument(run_id, "run_id")
        check_owner(snapshot.selector, tenant)
        key, stored = identify(tenant, snapshot, run)
        row = snapshot_values(key, tenant, stored, run)
        for _ in range(TRIES):
            if self._save(tenant, key, row):
                return key
        raise self._work.refuse(duplicate_id(IMPACT_SNAPSHOTS, key, DRIVER))

    def _save(self, tenant: str, key: str, row: Row) -> bool:
        """Insert, leave or replace the own row; return whether it is stored now."""
        _, _, run_id, _, digest, *_ = row
        values = (*row, key, tenant, digest, run_id, digest, run_id, key, tenant)
        (found,) = self._work.write(tenant, Subject(IMPACT_SNAPSHOTS, key), (SAVE, values))
        return found.first == (True,)

    def get(self, tenant_id: str, snapshot_id: str) -> ImpactSet | None:
        """Return one snapshot; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(snapshot_id, "snapshot_id")
        row = self._work.one(tenant, Subject(IMPACT_SNAPSHOTS, key), SELECT, (key, tenant))
        return None if row is None else SNAPSHOTS_TABLE.decode(row)

    def get_required(self, tenant_id: str, snapshot_id: str) -> ImpactSet:
        """Return one snapshot or raise; see the Protocol."""
        return required(self.get(tenant_id, snapshot_id), IMPACT_SNAPSHOTS, snapshot_id.strip(), DRIVER)

    def get_latest_by_selector(self, tenant_id: str, selector: Selector) -> ImpactSet | None:
        """Return the newest snapshot of a selector; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        selector = model_argument(selector, Selector, "selector")
        query = queries.latest_snapshot(tenant, selector_digest(selector, tenant))
        page = page_of(self._work, tenant, query, SNAPSHOTS_TABLE)
        return page[0] if page else None

    def list_by_run(
        self, tenant_id: str, run_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of the snapshots of a run; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        query = queries.snapshots(tenant, limit, page_token, run_id)
        return page_of(self._work, tenant, query, SNAPSHOTS_TABLE)

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ImpactSet]:
        """Return a page of all snapshots of a tenant; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        return page_of(self._work, tenant, queries.snapshots(tenant, limit, page_token), SNAPSHOTS_TABLE)

    def delete(self, tenant_id: str, snapshot_id: str) -> bool:
        """Remove one snapshot; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(snapshot_id, "snapshot_id")
        (result,) = self._work.write(tenant, Subject(IMPACT_SNAPSHOTS, key), (DELETE, (key, tenant)))
        return result.count > 0

    def purge_generated(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove old snapshots, oldest first; see the Protocol."""
        tenant = self._work.admit_optional(tenant_id, "purge_generated")
        instant = instant_argument(before, "before")
        return purge(self._work, IMPACT_SNAPSHOTS, (PURGE, PURGE_TENANT), instant, tenant, batch_size)


def snapshot_values(key: str, tenant: str, snapshot: ImpactSet, run_id: str | None) -> Row:
    """Return the values of a row."""
    markers = {
        "snapshotId": key,
        "tenantId": tenant,
        "runId": run_id,
        "selectorDigest": selector_digest(snapshot.selector, tenant),
    }
    return SNAPSHOTS_TABLE.encode(snapshot, markers)
