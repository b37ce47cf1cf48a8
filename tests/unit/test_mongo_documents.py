from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import Code, DatetimeMS, DBRef, ObjectId, Regex
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64

from tests.releases import mongo_collections
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DocumentDecodeError
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUNS, SCHEDULER, SCHEDULES
from twinstore.scheduler.impact_snapshots import ImpactSet, identify
from twinstore.scheduler.repositories.impact_snapshots import row_of
from twinstore.scheduler.repositories.schedules import deletion_of
from twinstore.scheduler.runs import Run
from twinstore.testing.datasets import DEVICE, PARCEL, SCAN, Dataset
from twinstore.testing.entities import DEVICES, PARCELS, SCANS
from twinstore.testing.scheduler.builders import (
    make_audit_record,
    make_impact_set,
    make_run,
    rich_impact_set,
    rich_schedule,
)
from twinstore_mongo.mapping.codec import codec_of, converted

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity

TENANT = "tenant-1"
FIRST = Int64(1)


def stored(document: dict[str, Any]) -> dict[str, Any]:
    return converted(bson.decode(bson.encode(document)))


WHEN = datetime(2025, 10, 26, 14, 5, 0, 120_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (WHEN, WHEN),
        (Code("f()"), {"$code": "f()"}),
        (Code("f()", {"at": WHEN}), {"$code": "f()", "$scope": {"at": WHEN}}),
        ([1, [WHEN, Code("f()")]], [1, [WHEN, {"$code": "f()"}]]),
        ({"a": {"b": WHEN, "c": "text"}}, {"a": {"b": WHEN, "c": "text"}}),
        (DBRef("runs", WHEN, at=[WHEN]), DBRef("runs", WHEN, at=[WHEN])),
        (DBRef("runs", 1, "other", by=Code("f()")), DBRef("runs", 1, "other", by={"$code": "f()"})),
        ({"$ref": Code("f()"), "$id": 1}, {"$ref": {"$code": "f()"}, "$id": 1}),
        (DatetimeMS(10**15), DatetimeMS(10**15)),
        (Int64(5), Int64(5)),
        (Regex("a"), Regex("a")),
        (None, None),
    ],
    ids=str,
)
def test_instants_are_read_in_utc_and_code_as_an_object_wherever_they_are(
    value: object, read: object
) -> None:
    options = CodecOptions[dict[str, Any]](datetime_conversion=DatetimeConversion.DATETIME_AUTO)
    found = converted(bson.decode(bson.encode({"value": value}), options))["value"]
    assert (found, type(found)) == (read, type(read))


def run_document(run: Run) -> dict[str, Any]:
    return codec_of(RUNS).encode(Row(run))


def snapshot_document(
    snapshot: ImpactSet, run_id: str | None = None, key: str | None = None
) -> dict[str, Any]:
    found, kept = identify(TENANT, snapshot, run_id)
    return codec_of(IMPACT_SNAPSHOTS).encode(row_of(Tenant(TENANT), key or found, kept, run_id))


def test_a_generated_id_is_new_each_time_and_of_no_meaning_when_it_is_read() -> None:
    codec, row = codec_of(PARCELS), PARCEL.row(Dataset(Tenant(TENANT), "batch"), 1)
    one, two = (stored(codec.encode(row)) for _ in range(2))
    assert [next(iter(document)) for document in (one, two)] == ["_id", "_id"]
    assert (type(one["_id"]), one["_id"] != two["_id"]) == (ObjectId, True)
    assert one | {"_id": None} == two | {"_id": None}
    for identity in (None, "text", 7, {"a": 1}):
        assert codec.decode(one | {"_id": identity}) == row


def test_an_undecodable_document_with_a_generated_id_is_named_by_its_key_where_it_has_one() -> None:
    codec, row = codec_of(SCANS), SCAN.row(Dataset(Tenant(TENANT), "batch"), 1)
    document = stored(codec.encode(row)) | {"message": 5}
    with pytest.raises(DocumentDecodeError) as caught:
        codec.decode(document)
    assert caught.value.key == f"{document['parcelId']}:2"
    with pytest.raises(DocumentDecodeError) as caught:
        codec.decode(document | {"sequence": "2"})
    assert caught.value.key == repr(document["_id"])


def test_every_field_that_starts_with_an_underscore_is_stripped() -> None:
    run = make_run(TENANT, "r-1")
    document = run_document(run) | {"_version": 3, "__v": 0, "_class": "Run"}
    assert codec_of(RUNS).decode(document) == Row(run)


def test_an_instant_stored_as_text_is_read() -> None:
    run = make_run(TENANT, "r-1")
    document = run_document(run) | {"createdAt": "2025-10-26T14:05:00Z"}
    assert codec_of(RUNS).decode(document) == Row(run)


def test_a_second_copy_of_the_id_is_accepted_when_equal() -> None:
    run = make_run(TENANT, "r-1")
    assert codec_of(RUNS).decode(run_document(run) | {"id": "r-1"}) == Row(run)


def test_a_second_copy_of_the_id_that_differs_makes_the_document_bad() -> None:
    run = make_run(TENANT, "r-1")
    with pytest.raises(DocumentDecodeError, match="_id and id differ"):
        codec_of(RUNS).decode(run_document(run) | {"id": "r-2"})


def test_an_undecodable_document_is_named_without_its_content() -> None:
    document = run_document(make_run(TENANT, "r-1")) | {"state": "hunter2", "extra": "hunter2"}
    with pytest.raises(DocumentDecodeError, match="runs 'r-1'") as caught:
        codec_of(RUNS).decode(document)
    assert "hunter2" not in str(caught.value)


def test_a_map_that_looks_like_a_reference_stays_a_map() -> None:
    record = make_audit_record(TENANT, "a-1", metadata={"$id": "y", "$ref": "x", "a.b": "c"})
    document = stored(codec_of(AUDIT).encode(Row(record)))
    assert isinstance(document["metadata"], DBRef)
    assert codec_of(AUDIT).decode(document) == Row(record)


def test_labels_that_look_like_a_reference_stay_labels() -> None:
    image = rich_impact_set(TENANT).images[0].evolve(labels={"$id": "y", "$ref": "x"})
    snapshot = make_impact_set(images=(image,))
    document = stored(snapshot_document(snapshot))
    assert isinstance(document["images"][0]["labels"], DBRef)
    assert codec_of(IMPACT_SNAPSHOTS).decode(document).model == snapshot


@pytest.mark.parametrize("run_id", [None, "r-1"])
@pytest.mark.parametrize("own_id", [None, "own"])
def test_a_snapshot_comes_back_with_its_own_id_only(own_id: str | None, run_id: str | None) -> None:
    snapshot = rich_impact_set(TENANT).evolve(snapshot_id=own_id)
    document = stored(snapshot_document(snapshot, run_id))
    assert codec_of(IMPACT_SNAPSHOTS).decode(document).model == snapshot
    assert "snapshotId" not in document


def test_half_of_the_deletion_markers_is_a_bad_document() -> None:
    document = codec_of(SCHEDULES).encode(Row(rich_schedule(TENANT, "s-1"))) | {"deletedBy": "me"}
    with pytest.raises(DocumentDecodeError, match="deletedAt"):
        deletion_of(codec_of(SCHEDULES).decode(document), "Mongo")


def test_a_marker_is_read_from_what_other_programs_write() -> None:
    document = codec_of(SCHEDULES).encode(Row(rich_schedule(TENANT, "s-1")))
    nothing = document | {"deletedAt": None, "deletedBy": None}
    assert codec_of(SCHEDULES).decode(nothing).storage == {}
    texts = document | {"deletedAt": "2025-10-26T16:05:00+02:00", "deletedBy": "me"}
    assert codec_of(SCHEDULES).decode(texts).storage == {
        "deletedAt": datetime(2025, 10, 26, 14, 5, tzinfo=UTC),
        "deletedBy": "me",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"_tenantId": None}, "its markers tenantId are missing or not a string"),
        (
            {"_selectorDigest": 5, "_runId": 7},
            "markers runId, selectorDigest are missing or not a string",
        ),
    ],
)
def test_a_marker_that_is_missing_or_of_another_type_makes_the_document_bad(
    changes: dict[str, Any], message: str
) -> None:
    document = snapshot_document(rich_impact_set(TENANT), "r-1") | changes
    with pytest.raises(DocumentDecodeError, match=message):
        codec_of(IMPACT_SNAPSHOTS).decode(document)


def test_an_instant_that_is_none_makes_the_document_bad() -> None:
    document = codec_of(SCHEDULES).encode(Row(rich_schedule(TENANT, "s-1"))) | {"deletedAt": 5}
    with pytest.raises(DocumentDecodeError, match="its markers deletedAt are missing or not an instant"):
        codec_of(SCHEDULES).decode(document)


def test_an_id_that_no_model_admits_makes_the_document_bad() -> None:
    document = snapshot_document(make_impact_set(), None, "a\nb")
    with pytest.raises(DocumentDecodeError, match="control character"):
        codec_of(IMPACT_SNAPSHOTS).decode(document)


def test_a_row_whose_id_would_be_read_as_another_one_is_told() -> None:
    codec = codec_of(IMPACT_SNAPSHOTS)
    snapshot = rich_impact_set(TENANT).evolve(snapshot_id=None)
    key, kept = identify(TENANT, snapshot, None)
    own = row_of(Tenant(TENANT), "own", snapshot.evolve(snapshot_id="own"), None)
    assert not codec.differs_when_read(row_of(Tenant(TENANT), key, kept, None))
    assert not codec.differs_when_read(own)
    assert codec.differs_when_read(row_of(Tenant(TENANT), "other", kept, None))
    assert codec.differs_when_read(row_of(Tenant(TENANT), key, kept.evolve(snapshot_id=key), None))


def test_internal_fields_say_their_width() -> None:
    document = stored(codec_of(DEVICES).encode(DEVICE.row(Dataset(Tenant(TENANT), "batch"), 2)))
    assert type(document["_spotCount"]) is int


def test_another_description_of_the_same_name_has_a_codec_of_its_own() -> None:
    other = replace(DEVICES, derived=(), indexes=())
    assert other == DEVICES
    assert codec_of(other).entity is other
    assert codec_of(DEVICES).entity is DEVICES


RELEASED = {collection["name"]: collection["documents"] for collection in mongo_collections()}
# What 0.1.0 found there already: a field of another program, and an instant stored as text.
FOREIGN = {"acme/running", "text instant"}


@pytest.mark.parametrize(
    "entity",
    [entity for entity in SCHEDULER.entities if entity.name in RELEASED],
    ids=lambda entity: entity.name,
)
def test_the_documents_of_the_release_are_written_byte_for_byte(entity: Entity) -> None:
    codec = codec_of(entity)
    compared = 0
    for document in RELEASED[entity.name]:
        raw = bson.encode(document)
        try:
            row = codec.decode(stored(document))
        except DocumentDecodeError:
            continue
        if document["_id"] not in FOREIGN:
            assert bson.encode(codec.encode(row, document.get("_version", FIRST))) == raw
            compared += 1
    assert compared > len(RELEASED[entity.name]) / 2
