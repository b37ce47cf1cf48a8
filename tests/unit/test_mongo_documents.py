from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import DBRef
from bson.codec_options import CodecOptions
from bson.int64 import Int64

from twinstore.errors import DocumentDecodeError
from twinstore.scheduler.impact_snapshots import identify
from twinstore.scheduler.selectors import selector_digest
from twinstore.testing.builders import (
    make_audit_record,
    make_impact_set,
    make_run,
    make_trigger,
    rich_audit_record,
    rich_impact_set,
    rich_run,
    rich_run_summary,
    rich_schedule,
)
from twinstore_mongo.scheduler.codecs import (
    AUDIT_CODEC,
    RUN_CODEC,
    SCHEDULE_CODEC,
    SNAPSHOT_CODEC,
    SUMMARY_CODEC,
    TRIGGER_CODEC,
    deletion_of,
    snapshot_document,
    summary_key,
)

if TYPE_CHECKING:
    from twinstore_mongo.codec import Codec

AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)
TENANT = "tenant-1"


def stored(document: dict[str, Any]) -> dict[str, Any]:
    return bson.decode(bson.encode(document), AWARE)


@pytest.mark.parametrize(
    ("codec", "model", "key"),
    [
        (SCHEDULE_CODEC, rich_schedule(TENANT, "s-1"), "s-1"),
        (RUN_CODEC, rich_run(TENANT, "r-1"), "r-1"),
        (AUDIT_CODEC, rich_audit_record(TENANT, "a-1"), "a-1"),
        (SUMMARY_CODEC, rich_run_summary(TENANT, "s-1"), summary_key(TENANT, "s-1")),
    ],
)
def test_a_model_comes_back_from_its_document(codec: Codec[Any], model: Any, key: str) -> None:  # noqa: ANN401  # one of the models
    document = stored(codec.encode(model, key))
    assert codec.decode(document) == model
    assert next(iter(document)) == "_id"
    assert document["_id"] == key
    assert "id" not in document


def test_the_fields_stand_in_canonical_order_and_internal_ones_last() -> None:
    run = rich_run(TENANT, "r-1")
    document = RUN_CODEC.encode(run, run.id, {"_version": Int64(1)})
    wire = [name for name in run.wire() if name != "id"]
    assert list(document) == ["_id", *wire, "_version"]


def test_instants_are_dates_at_every_depth() -> None:
    document = stored(RUN_CODEC.encode(rich_run(TENANT, "r-1"), "r-1"))
    assert isinstance(document["createdAt"], datetime)
    assert isinstance(document["reason"]["impactWindowFrom"], datetime)
    assert isinstance(document["deltas"][0]["detectedAt"], datetime)


def test_counters_of_a_trigger_are_stored_in_64_bits() -> None:
    trigger = make_trigger(TENANT, "s-1")
    document = stored(TRIGGER_CODEC.encode(trigger, trigger.id))
    assert isinstance(document["fireCount"], Int64)
    assert isinstance(document["misfireCount"], Int64)
    assert TRIGGER_CODEC.decode(document) == trigger


def test_every_field_that_starts_with_an_underscore_is_stripped() -> None:
    run = make_run(TENANT, "r-1")
    document = RUN_CODEC.encode(run, run.id, {"_version": 3, "__v": 0, "_class": "Run"})
    assert RUN_CODEC.decode(document) == run


def test_an_instant_stored_as_text_is_read() -> None:
    run = make_run(TENANT, "r-1")
    document = RUN_CODEC.encode(run, run.id) | {"createdAt": "2025-10-26T14:05:00Z"}
    assert RUN_CODEC.decode(document) == run


def test_a_second_copy_of_the_id_is_accepted_when_equal() -> None:
    run = make_run(TENANT, "r-1")
    assert RUN_CODEC.decode(RUN_CODEC.encode(run, run.id) | {"id": "r-1"}) == run


def test_a_second_copy_of_the_id_that_differs_makes_the_document_bad() -> None:
    run = make_run(TENANT, "r-1")
    with pytest.raises(DocumentDecodeError, match="_id and id differ"):
        RUN_CODEC.decode(RUN_CODEC.encode(run, run.id) | {"id": "r-2"})


def test_an_undecodable_document_is_named_without_its_content() -> None:
    document = RUN_CODEC.encode(make_run(TENANT, "r-1"), "r-1") | {"state": "hunter2", "extra": "hunter2"}
    with pytest.raises(DocumentDecodeError, match="runs 'r-1'") as caught:
        RUN_CODEC.decode(document)
    assert "hunter2" not in str(caught.value)


def test_a_map_that_looks_like_a_reference_stays_a_map() -> None:
    record = make_audit_record(TENANT, "a-1", metadata={"$id": "y", "$ref": "x", "a.b": "c"})
    document = stored(AUDIT_CODEC.encode(record, record.id))
    assert isinstance(document["metadata"], DBRef)
    assert AUDIT_CODEC.decode(document) == record


def test_labels_that_look_like_a_reference_stay_labels() -> None:
    image = rich_impact_set(TENANT).images[0].evolve(labels={"$id": "y", "$ref": "x"})
    snapshot = make_impact_set(images=(image,))
    key, kept = identify(TENANT, snapshot, None)
    assert SNAPSHOT_CODEC.decode(stored(snapshot_document(TENANT, key, kept, None))) == snapshot


@pytest.mark.parametrize("run_id", [None, "r-1"])
@pytest.mark.parametrize("own_id", [None, "own"])
def test_a_snapshot_comes_back_with_its_own_id_only(own_id: str | None, run_id: str | None) -> None:
    snapshot = rich_impact_set(TENANT).evolve(snapshot_id=own_id)
    key, kept = identify(TENANT, snapshot, run_id)
    document = stored(snapshot_document(TENANT, key, kept, run_id))
    assert SNAPSHOT_CODEC.decode(document) == snapshot
    assert "snapshotId" not in document


def test_a_snapshot_carries_its_markers_and_internal_fields_last() -> None:
    snapshot = rich_impact_set(TENANT)
    document = snapshot_document(TENANT, "k", snapshot, "r-1")
    assert list(document)[-5:] == ["_tenantId", "_runId", "_selectorDigest", "_imageCount", "_contentDigest"]
    assert document["_selectorDigest"] == selector_digest(snapshot.selector, TENANT)
    assert document["_imageCount"] == len(snapshot.images)


def test_half_of_the_deletion_markers_is_a_bad_document() -> None:
    document = SCHEDULE_CODEC.encode(rich_schedule(TENANT, "s-1"), "s-1") | {"deletedBy": "me"}
    with pytest.raises(DocumentDecodeError, match="deletedAt"):
        deletion_of(document)
