"""How the rows of each entity leave and enter MongoDB as models with storage markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bson.int64 import Int64

from twinstore.canonical import CanonicalJsonSerializer
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.impact_snapshots import ImpactSet, reunite
from twinstore_mongo.codec import VERSION, Codec
from twinstore_mongo.scheduler.codecs import (
    AUDIT_CODEC,
    RUN_CODEC,
    SCHEDULE_CODEC,
    SNAPSHOT_CODEC,
    SUMMARY_CODEC,
    TRIGGER_CODEC,
    deletion_of,
    summary_key,
)

if TYPE_CHECKING:
    from twinstore.bulk import Key, Record
    from twinstore.catalog import Entity
    from twinstore_mongo.connection import Document

__all__ = ["TRANSFERS", "Transfer", "UnfitError"]


class UnfitError(Exception):
    """A record cannot be stored in MongoDB so that a read gives the same again."""


Markers = Callable[[Mapping[str, Any]], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Transfer:
    """The two directions of one entity.

    Attributes:
        key: stored names of the key, in key order; the first index that starts with them is in that order.
        tenant: stored name of the tenant.
        markers: reads the storage markers of a document.
        encode: returns the document of a record.
        versioned: documents end with ``_version``.
    """

    codec: Codec[Any]
    key: tuple[str, ...]
    tenant: str
    markers: Markers
    encode: Callable[[Key, Any, Mapping[str, Any]], Document]
    versioned: bool = False

    def document(self, record: Record) -> Document:
        """Return the document of a record.

        Raises:
            UnfitError: there is none that reads back as the same record.
        """
        if record.model is None or record.key is None:
            raise UnfitError(record.error or "it has no usable key")
        return self.encode(record.key, record.model, record.storage)


def no_markers(document: Mapping[str, Any]) -> dict[str, object]:
    """Return nothing: most entities have no markers."""
    del document
    return {}


def schedule_markers(document: Mapping[str, Any]) -> dict[str, object]:
    """Return the deletion markers of a schedule."""
    deletion = deletion_of(document)
    return {} if deletion is None else deletion.wire()


def snapshot_markers(document: Mapping[str, Any]) -> dict[str, object]:
    """Return the markers of a snapshot."""
    markers = {name: document.get(stored) for name, stored in SNAPSHOT_MARKERS.items()}
    wrong = [name for name, value in markers.items() if not isinstance(value, str | None)]
    absent = [name for name in ("tenantId", "selectorDigest") if markers[name] is None]
    if wrong or absent:
        names = ", ".join([*wrong, *absent])
        raise SNAPSHOT_CODEC.bad(document.get("_id"), f"its markers {names} are missing or no text")
    return {name: value for name, value in markers.items() if value is not None}


SNAPSHOT_MARKERS: Final = {
    "snapshotId": "_id",
    "tenantId": "_tenantId",
    "runId": "_runId",
    "selectorDigest": "_selectorDigest",
}


def schedule_document(key: Key, model: Any, storage: Mapping[str, Any]) -> Document:  # noqa: ANN401  # a schedule
    """Return the document of a schedule with its markers in their fixed order."""
    markers = {name: storage[name] for name in ("deletedAt", "deletedBy") if storage.get(name) is not None}
    return SCHEDULE_CODEC.encode(model, key[0], markers)


def run_document(key: Key, model: Any, storage: Mapping[str, Any]) -> Document:  # noqa: ANN401  # a run
    """Return the document of a run in its first version."""
    del storage
    return RUN_CODEC.encode(model, key[0], {VERSION: Int64(1)})


def trigger_document(key: Key, model: Any, storage: Mapping[str, Any]) -> Document:  # noqa: ANN401  # a trigger
    """Return the document of a trigger."""
    del storage
    return TRIGGER_CODEC.encode(model, key[0])


def audit_document(key: Key, model: Any, storage: Mapping[str, Any]) -> Document:  # noqa: ANN401  # a record
    """Return the document of an audit record."""
    del storage
    return AUDIT_CODEC.encode(model, key[0])


def summary_document(key: Key, model: Any, storage: Mapping[str, Any]) -> Document:  # noqa: ANN401  # a summary
    """Return the document of a run summary in its first version."""
    del storage
    return SUMMARY_CODEC.encode(model, summary_key(*key), {VERSION: Int64(1)})


def snapshot_document(key: Key, model: ImpactSet, storage: Mapping[str, Any]) -> Document:
    """Return the document of a snapshot; its markers are kept as they are, not computed again."""
    tenant, run = storage["tenantId"], storage.get("runId")
    anonymous = model if model.snapshot_id is None else model.evolve(snapshot_id=None)
    if reunite(tenant, key[0], anonymous, run) != model:
        raise UnfitError("its key is neither its own snapshotId nor the one derived from its content")
    internal: Document = {"_tenantId": tenant}
    if run is not None:
        internal["_runId"] = run
    internal["_selectorDigest"] = storage["selectorDigest"]
    internal["_imageCount"] = len(model.images)
    internal["_contentDigest"] = CanonicalJsonSerializer.digest(model)
    return SNAPSHOT_CODEC.encode(model, key[0], internal)


BY_ID: Final = ("_id",)

TRANSFERS: Final[dict[Entity, Transfer]] = {
    SCHEDULES: Transfer(SCHEDULE_CODEC, BY_ID, "tenantId", schedule_markers, schedule_document),
    TRIGGERS: Transfer(TRIGGER_CODEC, BY_ID, "tenantId", no_markers, trigger_document),
    RUNS: Transfer(RUN_CODEC, BY_ID, "tenantId", no_markers, run_document, versioned=True),
    IMPACT_SNAPSHOTS: Transfer(SNAPSHOT_CODEC, BY_ID, "_tenantId", snapshot_markers, snapshot_document),
    AUDIT: Transfer(AUDIT_CODEC, BY_ID, "tenantId", no_markers, audit_document),
    RUN_SUMMARIES: Transfer(
        SUMMARY_CODEC,
        ("tenantId", "scheduleId"),
        "tenantId",
        no_markers,
        summary_document,
        versioned=True,
    ),
}
