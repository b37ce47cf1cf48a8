"""Impact snapshots on MongoDB; tenant, run and selector digest are internal fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from twinstore.retrying import repeat
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.scheduler.impact_snapshots import ImpactSet, identify
from twinstore.scheduler.rules.impact_snapshots import check_owner
from twinstore.scheduler.rules.missing import duplicate_id, lost_race, required
from twinstore.scheduler.selectors import Selector, selector_digest
from twinstore.scope import id_argument, optional_reference_argument
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.repository import MongoRepository, one
from twinstore_mongo.scheduler.codecs import SNAPSHOT_CODEC, snapshot_document
from twinstore_mongo.units import ATTEMPTS
from twinstore_mongo.writes import replace

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.errors import TwinstoreError
    from twinstore.paging import Page
    from twinstore_mongo.compile import Names
    from twinstore_mongo.connection import Document

__all__ = ["MongoImpactSnapshotRepository"]


class MongoImpactSnapshotRepository(MongoRepository):
    """Implements :class:`~twinstore.scheduler.impact_snapshots.ImpactSnapshotRepository`."""

    names: ClassVar[Names] = {
        "snapshotId": "_id",
        "tenantId": "_tenantId",
        "runId": "_runId",
        "selectorDigest": "_selectorDigest",
    }

    def upsert(self, tenant_id: str, snapshot: ImpactSet, *, run_id: str | None = None) -> str:
        """Store a snapshot and return its id; see the Protocol."""
        tenant = self._admit(tenant_id)
        snapshot = self._model(snapshot, ImpactSet, "snapshot")
        run = optional_reference_argument(run_id, "run_id")
        check_owner(snapshot.selector, tenant)
        key, stored = identify(tenant, snapshot, run)
        document = snapshot_document(tenant, key, stored, run)
        attempts = 1 if self._unit.in_transaction else ATTEMPTS
        self._unit.check_writable()
        repeat(lambda: self._write(tenant, document), attempts=attempts)
        return key

    def _write(self, tenant: str, document: Document) -> None:
        """Replace or insert; an equal document changes nothing on the server."""
        key = document["_id"]
        condition = {"_id": key, "_tenantId": tenant}
        replace(
            self._unit,
            IMPACT_SNAPSHOTS,
            condition,
            document,
            lambda _: self._taken(tenant, key),
            upsert=True,
        )

    def _taken(self, tenant: str, key: str) -> TwinstoreError:
        """Tell a foreign id from an insert of this tenant that came first."""
        if not self._unit.in_transaction and self._own(tenant, key) is not None:
            return lost_race(IMPACT_SNAPSHOTS, key, DRIVER)
        return duplicate_id(IMPACT_SNAPSHOTS, key, DRIVER)

    def get(self, tenant_id: str, snapshot_id: str) -> ImpactSet | None:
        """Return one snapshot; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(snapshot_id, "snapshot_id")
        document = self._own(tenant, key)
        return None if document is None else SNAPSHOT_CODEC.decode(document)

    def get_required(self, tenant_id: str, snapshot_id: str) -> ImpactSet:
        """Return one snapshot; see the Protocol."""
        return required(self.get(tenant_id, snapshot_id), IMPACT_SNAPSHOTS, snapshot_id.strip(), DRIVER)

    def get_latest_by_selector(self, tenant_id: str, selector: Selector) -> ImpactSet | None:
        """Return the newest snapshot of a selector; see the Protocol."""
        tenant = self._admit(tenant_id)
        digest = selector_digest(self._model(selector, Selector, "selector"), tenant)
        found = self._first(SNAPSHOT_CODEC, queries.latest_snapshot(tenant, digest))
        return found[0] if found else None

    def list_by_run(
        self, tenant_id: str, run_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of the snapshots of a run; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(SNAPSHOT_CODEC, queries.snapshots(tenant, limit, page_token, run_id))

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ImpactSet]:
        """Return a page of all snapshots of a tenant; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(SNAPSHOT_CODEC, queries.snapshots(tenant, limit, page_token))

    def delete(self, tenant_id: str, snapshot_id: str) -> bool:
        """Remove one snapshot; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(snapshot_id, "snapshot_id")
        condition = {"_id": key, "_tenantId": tenant}
        with self._unit.writing(IMPACT_SNAPSHOTS, key):
            collection = self._unit.collection(IMPACT_SNAPSHOTS)
            return collection.delete_one(condition, session=self._unit.session).deleted_count == 1

    def purge_generated(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove old snapshots; see the Protocol."""
        tenant = self._admit_optional(tenant_id, "purge_generated")
        return self._purge(IMPACT_SNAPSHOTS, tenant, before, batch_size)

    def _own(self, tenant: str, key: str) -> Document | None:
        return one(self._unit, IMPACT_SNAPSHOTS, {"_id": key, "_tenantId": tenant}, key)
