"""How each entity of the scheduler is stored: what becomes ``_id``, and which fields are internal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from twinstore.canonical import CanonicalJsonSerializer
from twinstore.scheduler.audit import AuditRecord
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.impact_snapshots import ImpactSet, reunite
from twinstore.scheduler.run_summaries import RunSummary
from twinstore.scheduler.runs import Run
from twinstore.scheduler.schedules import Schedule, SoftDeletion
from twinstore.scheduler.selectors import selector_digest
from twinstore.scheduler.triggers import Trigger
from twinstore_mongo.codec import Codec, restore_reference

if TYPE_CHECKING:
    from twinstore_mongo.connection import Document

__all__ = [
    "AUDIT_CODEC",
    "CODECS",
    "RUN_CODEC",
    "SCHEDULE_CODEC",
    "SNAPSHOT_CODEC",
    "SUMMARY_CODEC",
    "TRIGGER_CODEC",
    "SnapshotCodec",
    "deletion_of",
    "snapshot_document",
    "summary_key",
]


class SnapshotCodec(Codec[ImpactSet]):
    """Impact snapshots: the own id is stored once, as ``_id``, and told from a derived one by its value."""

    def decode(self, document: Mapping[str, Any]) -> ImpactSet:
        """Return the snapshot as it was written; see :meth:`Codec.decode`."""
        key, tenant, run = document.get("_id"), document.get("_tenantId"), document.get("_runId")
        anonymous = super().decode(document)
        if not isinstance(key, str) or not isinstance(tenant, str) or not isinstance(run, str | None):
            raise self.bad(key, "_id or _tenantId is missing or no text")
        return reunite(tenant, key, anonymous, run)

    def values(self, document: Mapping[str, Any]) -> Document:
        """Return the properties without the id."""
        values = super().values(document)
        del values["snapshotId"]
        images = values.get("images")
        for image in images if isinstance(images, list) else ():
            if isinstance(image, dict):
                restore_reference(image, "labels")
        return values


SCHEDULE_CODEC: Final = Codec(SCHEDULES, Schedule, "id", frozenset({"deletedAt", "deletedBy"}))
TRIGGER_CODEC: Final = Codec(TRIGGERS, Trigger, "id", longs=("fireCount", "misfireCount"))
RUN_CODEC: Final = Codec(RUNS, Run, "id")
SNAPSHOT_CODEC: Final = SnapshotCodec(IMPACT_SNAPSHOTS, ImpactSet, "snapshotId")
AUDIT_CODEC: Final = Codec(AUDIT, AuditRecord, "id", free_maps=("metadata",))
SUMMARY_CODEC: Final = Codec(RUN_SUMMARIES, RunSummary)


def summary_key(tenant_id: str, schedule_id: str) -> str:
    """Return the internal id of a run summary."""
    return f"{tenant_id}:{schedule_id}"


def snapshot_document(tenant_id: str, key: str, snapshot: ImpactSet, run_id: str | None) -> Document:
    """Return the document of an impact snapshot with its markers and internal fields."""
    internal: Document = {"_tenantId": tenant_id}
    if run_id is not None:
        internal["_runId"] = run_id
    internal["_selectorDigest"] = selector_digest(snapshot.selector, tenant_id)
    internal["_imageCount"] = len(snapshot.images)
    internal["_contentDigest"] = CanonicalJsonSerializer.digest(snapshot)
    return SNAPSHOT_CODEC.encode(snapshot, key, internal)


def deletion_of(document: Mapping[str, Any]) -> SoftDeletion | None:
    """Return the deletion markers of a stored schedule.

    Raises:
        DocumentDecodeError: only one of them is there, or one has the wrong type.
    """
    markers = {name: document.get(name) for name in ("deletedAt", "deletedBy")}
    if all(value is None for value in markers.values()):
        return None
    return DELETION_CODEC.decode({"_id": document.get("_id"), **markers})


DELETION_CODEC: Final = Codec(SCHEDULES, SoftDeletion)
CODECS: Final[tuple[Codec[Any], ...]] = (
    SCHEDULE_CODEC,
    TRIGGER_CODEC,
    RUN_CODEC,
    SNAPSHOT_CODEC,
    AUDIT_CODEC,
    SUMMARY_CODEC,
)
