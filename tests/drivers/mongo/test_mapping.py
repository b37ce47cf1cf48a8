from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Final

import bson
import pytest
from bson import (
    Binary,
    Code,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
)
from bson.codec_options import CodecOptions, DatetimeConversion
from pydantic import Field

from tests.support.films import MODULE as FILMS
from tests.support.releases import mongo_collections
from twinstore.catalog.conditions import AtLeast, Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.entity import Entity, Module
from twinstore.catalog.indexes import Index
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DocumentDecodeError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import FreeObject, date_object
from twinstore.models.shapes import instant_paths
from twinstore.plugins.options import ModuleOptions
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULER,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.impact_snapshots import ImpactSet, identify
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.options import SchedulerOptions
from twinstore.scheduler.repositories.impact_snapshots import row_of
from twinstore.scheduler.repositories.schedules import deletion_of
from twinstore.scheduler.runs import Run
from twinstore.testing.datasets import DEVICE, NOTE, PARCEL, PLACE, SCAN, STUB, TICKET, Dataset
from twinstore.testing.entities import (
    COUNTERS,
    DEVICES,
    ENTRIES,
    EVENTS,
    KIT,
    NOTES,
    PARCELS,
    PLACES,
    SCANS,
    STUBS,
    TICKETS,
    Spot,
    Ticket,
)
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import (
    make_audit_record,
    make_impact_set,
    make_run,
    rich_impact_set,
    rich_schedule,
)
from twinstore_mongo.bulk.inventory import serves
from twinstore_mongo.bulk.scan import CollectionScan, StoredForm
from twinstore_mongo.client.bson import element_of, elements, first_of
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.layout import (
    CollectionSpec,
    IndexSpec,
    collection_specs,
    index_specs,
    joined_id,
    longs_of,
    stored_names,
)
from twinstore_mongo.schema.proposal import contradictions, proposed_step
from twinstore_mongo.schema.steps import Step, load_steps, parse_step
from twinstore_mongo.schema.validators import validator_of

if TYPE_CHECKING:
    from twinstore.catalog.conditions import Condition

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


DATASET: Final = Dataset(Tenant(TENANT), "batch")
KEY: Final = DATASET.number(0)
OF_A_NUMBER: Final = "its _id is not an integer of 64 bits"
OF_TYPES: Final = "its _id holds {} in another type than that of the key"


def test_a_key_of_a_number_is_the_id_and_of_several_parts_a_document_in_their_order() -> None:
    (number, *_), (parts, *_) = (
        stored(codec_of(factory.entity).encode(factory.row(DATASET))).values() for factory in (TICKET, STUB)
    )
    assert (number, type(number)) == (KEY, Int64)
    assert [*parts.items()] == [("ticket", KEY), ("gate", STUB.row(DATASET).model.gate)]
    assert codec_of(STUBS).place((7, "a")) == {"_id": {"ticket": 7, "gate": "a"}}
    narrow = codec_of(replace(TICKETS, narrow=("number",)))
    assert type(narrow.encode(TICKET.row(DATASET))["_id"]) is int


@pytest.mark.parametrize("form", [int, Int64, float])
def test_an_id_of_any_type_of_integer_is_the_key(form: type) -> None:
    document = stored(codec_of(TICKETS).encode(TICKET.row(DATASET))) | {"_id": form(7)}
    assert codec_of(TICKETS).decode(document).model == TICKET.row(DATASET).model.evolve(number=7)
    document = stored(codec_of(STUBS).encode(STUB.row(DATASET))) | {"_id": {"ticket": form(7), "gate": "a"}}
    assert codec_of(STUBS).decode(document) == STUB.row(DATASET, ticket=7, gate="a")


@pytest.mark.parametrize(
    ("entity", "identity", "reason"),
    [
        *((TICKETS, value, OF_A_NUMBER) for value in (7.5, "7", True, float("nan"), 1e300, {"number": 7})),
        (STUBS, 7, "its _id is not a document of ticket, gate"),
        (STUBS, {"ticket": 7}, "its _id lacks gate"),
        (STUBS, {}, "its _id lacks ticket, gate"),
        (STUBS, {"ticket": 7, "gate": "a", "row": 1}, "its _id has more names than ticket, gate"),
        (STUBS, {"gate": "a", "ticket": 7}, "its _id has its names in another order than ticket, gate"),
        (STUBS, {"ticket": 7.5, "gate": "a"}, OF_TYPES.format("ticket")),
        (STUBS, {"ticket": "7", "gate": 1}, OF_TYPES.format("ticket, gate")),
    ],
)
def test_an_id_that_is_no_key_makes_the_document_bad_with_its_reason(
    entity: Entity[Any], identity: object, reason: str
) -> None:
    row = (TICKET if entity is TICKETS else STUB).row(DATASET)
    document = stored(codec_of(entity).encode(row)) | {"_id": identity}
    with pytest.raises(DocumentDecodeError) as caught:
        codec_of(entity).decode(document)
    assert caught.value.reason == reason
    assert CollectionScan.of(entity).row(stored(document)).error == reason


def test_a_key_that_is_the_id_is_not_stored_next_to_it_again() -> None:
    for value in (KEY, None):
        document = stored(codec_of(TICKETS).encode(TICKET.row(DATASET))) | {"number": value}
        with pytest.raises(DocumentDecodeError, match="holds its key in its _id and next to it") as caught:
            codec_of(TICKETS).decode(document)
        assert CollectionScan.of(TICKETS).row(document).error == caught.value.reason


def test_fields_under_any_name_are_read_and_unknown_ones_are_kept_where_a_field_does() -> None:
    codec, row = codec_of(TICKETS), TICKET.row(DATASET, 2)
    document = stored(codec.encode(row))
    assert {"__v", "_updatedAt", "$price", "hall.place", "_fares"} <= document.keys()
    found = codec.decode(document | {"_other": 1, "extra": None})
    assert found.model == row.model.evolve(extra={**row.model.extra, "_other": 1, "extra": None})


def test_other_fields_with_an_underscore_are_stripped() -> None:
    codec, row = codec_of(PLACES), PLACE.row(DATASET, 2)
    document = stored(codec.encode(row)) | {"_other": 1}
    assert codec.decode(document) == row
    with pytest.raises(DocumentDecodeError, match="_other"):
        codec.decode(document, for_copy=True)


class Pointer(CanonicalModel):
    """A reference as other programs store it, described field by field."""

    collection: Annotated[str, Field(alias="$ref")]
    key: Annotated[str, Field(alias="$id")]
    labels: FreeObject = Field(default_factory=dict)


class Pointing(Ticket):
    """A row with references."""

    owner: Pointer
    more: tuple[Pointer, ...] = ()


def test_an_object_that_is_described_as_a_reference_is_read_by_its_fields() -> None:
    codec = codec_of(replace(TICKETS, model=Pointing))
    pointer = Pointer(collection="users", key="u-1", labels={"a": {"$ref": "b", "$id": 1}})
    row = Row(Pointing(**dict(TICKET.row(DATASET).model), owner=pointer, more=(pointer, pointer)))
    document = bson.decode(bson.encode(codec.encode(row)))
    assert type(document["owner"]) is DBRef
    assert codec.decode(converted(document)) == row


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


def test_a_row_whose_id_would_be_read_as_another_one_is_reported() -> None:
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


SHIPPED = load_steps(MODULE.migrations("mongo"))


class TenancyOptions(ModuleOptions):
    """Options with a switch, as an index may name one."""

    tenancy_enforced: bool = False


def test_the_shipped_steps_create_what_the_description_wants() -> None:
    shipped: dict[str, dict[str, IndexSpec]] = {}
    for item in (item for step in SHIPPED for item in step.collections):
        shipped.setdefault(item.name, {}).update({index.name: index for index in item.indexes})
    for wanted in collection_specs(SCHEDULER):
        assert shipped[wanted.name] == {index.name: index for index in wanted.indexes}
    assert proposed_step(SCHEDULER, SHIPPED) is None
    assert list(contradictions(SCHEDULER, SHIPPED)) == []


def test_a_new_entity_is_proposed_whole_and_a_new_index_alone() -> None:
    worn = Index(fields=("lastRunId", "-createdAt"), name="last_run")
    wider = replace(TRIGGERS, indexes=(*TRIGGERS.indexes, worn))
    counters = replace(COUNTERS, module=SCHEDULER.name)
    grown = replace(SCHEDULER, entities=(SCHEDULES, wider, counters))
    text = proposed_step(grown, SHIPPED)
    assert text is not None
    assert json.loads(text) == {
        "collections": [
            {
                "name": "triggers",
                "indexes": [{"name": "ix_lastRunId_createdAt", "key": [["lastRunId", 1], ["createdAt", -1]]}],
            },
            {"name": "counters", "indexes": [{"name": "ux_number", "key": [["number", 1]], "unique": True}]},
        ]
    }


@pytest.mark.parametrize("module", [KIT, FILMS.catalog], ids=lambda module: module.name)
def test_a_proposed_step_leaves_nothing_to_propose(module: Module) -> None:
    text = proposed_step(module, ())
    assert text is not None
    step = parse_step("001_all", text.encode())
    assert step.collections == collection_specs(module)
    assert proposed_step(module, (step,)) is None


def test_an_age_in_another_unit_is_named_as_another_index() -> None:
    text = proposed_step(FILMS.catalog, ())
    assert text is not None
    days = parse_step("001_films", text.replace(', "retentionUnit": "seconds"', "").encode())
    assert list(contradictions(FILMS.catalog, (days,))) == [
        "The index visits.ix_seenAt of a shipped step differs from the description."
    ]


def test_a_shipped_index_that_the_description_wants_otherwise_is_named() -> None:
    other = IndexSpec(name="ux_scheduleId", key=(("scheduleId", -1),), unique=True)
    gone = IndexSpec(name="ix_gone", key=(("timezone", 1),))
    step = Step("001_old", "sha256:0", (CollectionSpec("triggers", (other, gone)),))
    assert list(contradictions(SCHEDULER, (step,))) == [
        "The index triggers.ux_scheduleId of a shipped step differs from the description.",
        "The index triggers.ix_gone of a shipped step differs from the description.",
    ]


@pytest.mark.parametrize(
    ("condition", "partial"),
    [
        (IsNull("dueAt"), None),
        (IsPresent("dueAt"), {"$exists": True}),
        (Equals("urgent", value=True), True),
        (OneOf("level", ("low", "high")), {"$in": ["low", "high"]}),
        (AtLeast("rank", 3), {"$gte": 3}),
    ],
)
def test_a_condition_of_an_index_is_a_partial_filter(condition: Condition, partial: object) -> None:
    entity = replace(NOTES, indexes=(Index(fields=("title",), name="a", where=(condition,)),))
    (spec,) = index_specs(entity)
    assert spec.partial == {condition.field: partial}


def test_an_index_may_be_sparse_until_an_option_is_on() -> None:
    index = Index(fields=("tenantId",), name="tenant", sparse_unless="tenancy_enforced")
    (spec,) = index_specs(replace(NOTES, indexes=(index,)))
    assert IndexSpec.of(spec.content()) == spec
    assert spec.options(TenancyOptions()) == {"name": "ix_tenantId", "sparse": True}
    assert spec.options(TenancyOptions(tenancy_enforced=True)) == {"name": "ix_tenantId"}


@pytest.mark.parametrize("entity", [*SCHEDULER.entities, *KIT.entities], ids=lambda entity: entity.name)
def test_an_index_is_read_from_a_step_as_it_was_written(entity: Entity) -> None:
    for spec in index_specs(entity):
        assert IndexSpec.of(json.loads(json.dumps(spec.content()))) == spec


def test_the_retention_of_an_entity_is_an_option_of_its_index() -> None:
    spec = next(spec for spec in index_specs(IMPACT_SNAPSHOTS) if spec.retention)
    assert spec.options(SchedulerOptions(impact_retention_days=2))["expireAfterSeconds"] == 172_800


def test_one_text_is_the_id_and_every_other_key_keeps_its_fields() -> None:
    assert stored_names(TRIGGERS)["id"] == "_id"
    assert stored_names(IMPACT_SNAPSHOTS)["snapshotId"] == "_id"
    assert stored_names(EVENTS)["eventId"] == "_id"
    for entity in (RUN_SUMMARIES, ENTRIES, COUNTERS):
        assert "_id" not in stored_names(entity).values()


def test_a_key_that_is_the_id_needs_no_index_of_its_own() -> None:
    assert stored_names(TICKETS)["number"] == "_id"
    assert [stored_names(STUBS)[name] for name in STUBS.key] == ["_id.ticket", "_id.gate"]
    assert index_specs(STUBS) == ()
    (spec,) = index_specs(replace(STUBS, indexes=(Index(fields=("gate", "ticket"), name="gate"),)))
    assert spec.key == (("_id.gate", 1), ("_id.ticket", 1))


def test_markers_and_derived_fields_are_internal_unless_their_name_is_known() -> None:
    names = stored_names(NOTES) | stored_names(DEVICES)
    assert names["archivedAt"] == "archivedAt"
    assert names["archivedBy"] == "_archivedBy"
    assert names["contentDigest"] == "_contentDigest"
    assert stored_names(IMPACT_SNAPSHOTS)["tenantId"] == "_tenantId"


def test_an_index_that_an_option_keeps_sparse_serves_its_lists_sparse_or_not() -> None:
    index = Index(fields=("tenantId",), name="tenant", sparse_unless="tenancy_enforced")
    (spec,) = index_specs(replace(NOTES, indexes=(index,)))
    (plain,) = index_specs(replace(NOTES, indexes=(replace(index, sparse_unless=None),)))
    for found in ({"key": {"tenantId": 1}}, {"key": {"tenantId": 1}, "sparse": True}):
        assert serves(spec, [found])
        assert serves(plain, [found]) is ("sparse" not in found)
        assert not serves(spec, [{**found, "hidden": True}])


def test_with_a_generated_id_the_key_has_its_own_names_and_the_first_index() -> None:
    for entity, key in ((PARCELS, ("parcelId",)), (SCANS, ("parcelId", "sequence"))):
        assert "_id" not in stored_names(entity).values()
        first, *_ = index_specs(entity)
        wanted = IndexSpec(name="_".join(("ux", *key)), key=tuple((name, 1) for name in key), unique=True)
        assert first == wanted


def test_a_joined_id_is_that_of_the_release() -> None:
    assert joined_id(("tenant", "a:b")) == "tenant:a:b"
    assert joined_id((7,)) == "7"


def test_a_number_stands_behind_the_text_that_it_counts_below() -> None:
    assert joined_id(("run:tenant:nightly:20251026T140500Z", 12)) == "run:tenant:nightly:20251026T140500Z:12"


def test_no_two_keys_of_a_text_and_a_number_have_the_same_joined_id() -> None:
    keys = [*product(["", ":", "a", "a:", ":1", "a:1", "1", "-1", "2:1:"], [1, -1, 11, 2**62])]
    assert len({joined_id(key) for key in keys}) == len(keys)


def test_no_two_keys_have_the_same_joined_id() -> None:
    parts = ["", ":", "a", "a:", ":a", "a:b", "1", "1:a", "2:1:", "b"]
    keys = [*product(parts, repeat=2), *product(parts, repeat=3)]
    for length in (2, 3):
        ids = [joined_id(key) for key in keys if len(key) == length]
        assert len(set(ids)) == len(ids)


def test_integers_with_a_column_of_64_bits_have_them_in_documents_too() -> None:
    assert longs_of(TRIGGERS) == ("fireCount", "misfireCount")
    assert longs_of(NOTES) == ("rank", "attempts", "steps")
    assert longs_of(DEVICES) == ("rank", "attempts")
    assert longs_of(ENTRIES) == ("sequence",)
    assert longs_of(IMPACT_SNAPSHOTS) == ()


def test_a_module_without_migrations_has_no_steps() -> None:
    assert load_steps(replace(MODULE, package="twinstore").migrations("mongo")) == ()
    assert proposed_step(Module(name="empty"), ()) is None


VALUES: Final[dict[str, Any]] = {
    "double": 1.5,
    "text": "a\u00e9",
    "empty": "",
    "map": {"tenantId": "inner"},
    "list": ["x", 1],
    "binary": b"\x00\x01",
    "old binary": Binary(b"abc", 2),
    "id": ObjectId(),
    "flag": True,
    "date": datetime(2025, 10, 26, tzinfo=UTC),
    "null": None,
    "pattern": Regex("a.b", "im"),
    "pointer": DBRef("runs", "r"),
    "code": Code("return 1"),
    "scoped": Code("return a", {"a": 1}),
    "int": 5,
    "stamp": Timestamp(1, 2),
    "long": Int64(5),
    "decimal": Decimal128("1.50"),
    "least": MinKey(),
    "most": MaxKey(),
}
# Types that the client writes no more: a symbol, undefined, a pointer to a document.
OLD: Final = {
    "symbol": b"\x0esymbol\x00\x02\x00\x00\x00x\x00",
    "undefined": b"\x06undefined\x00",
    "old pointer": b"\x0cold pointer\x00\x05\x00\x00\x00runs\x00" + b"\x01" * 12,
}


def document(inner: bytes) -> bytes:
    return (len(inner) + 5).to_bytes(4, "little") + inner + b"\x00"


def inner(values: dict[str, Any]) -> bytes:
    return bson.encode(values)[4:-1]


def test_every_type_is_walked_past() -> None:
    raw = document(inner(VALUES) + b"".join(OLD.values()))
    found = list(elements(raw))
    assert [name.decode() for _, name, _, _ in found] == [*VALUES, *OLD]
    assert found[-1][3] == len(raw) - 1


@pytest.mark.parametrize("name", VALUES)
def test_the_first_value_of_a_name_is_found_behind_any_other(name: str) -> None:
    twice = inner({name: VALUES[name]}) + inner({"tenantId": "acme"}) + inner({"tenantId": "globex"})
    assert bson.decode(document(twice))["tenantId"] == "globex"
    assert first_of(document(twice), "tenantId") == "acme"


@pytest.mark.parametrize(
    ("value", "found"), [("acme", "acme"), (5, 5), (Int64(-5), -5), (None, None), (True, b"\x01")]
)
def test_a_text_and_an_integer_are_returned_and_an_absent_value_is_none(value: object, found: object) -> None:
    assert first_of(bson.encode({"tenantId": value}), "tenantId") == found
    assert first_of(bson.encode({"other": value}), "tenantId") is None


def test_anything_else_is_returned_as_its_bytes() -> None:
    assert first_of(bson.encode({"tenantId": {"a": "acme"}}), "tenantId") == bson.encode({"a": "acme"})
    raw = bson.encode({"tenantId": "acme"}).replace(b"acme", b"\xff\xfe\xff\xfe")
    assert first_of(raw, "tenantId") == b"\x05\x00\x00\x00\xff\xfe\xff\xfe\x00"


def test_an_element_is_taken_with_its_type_and_name() -> None:
    raw = bson.encode({"a": 1, "_id": "x", "b": 2})
    assert element_of(raw, "_id") == inner({"_id": "x"})


RELEASED_VALIDATORS = {collection["name"]: collection["options"] for collection in mongo_collections()}
each_entity = pytest.mark.parametrize(
    "entity",
    [entity for entity in SCHEDULER.entities if entity.name in RELEASED_VALIDATORS],
    ids=lambda entity: entity.name,
)


def schema(entity: Entity) -> dict[str, Any]:
    content: dict[str, Any] = validator_of(entity)["$jsonSchema"]
    return content


ADDED: Final = frozenset({"_claimedBy", "_claimedUntil", "_claimFence"})


@each_entity
def test_the_validator_is_that_of_the_release_byte_for_byte(entity: Entity) -> None:
    released = RELEASED_VALIDATORS[entity.name]["validator"]
    # A marker that a release did not have may be absent.
    added = [name for name in schema(entity)["properties"] if name in ADDED]
    found = {**schema(entity), "properties": dict(schema(entity)["properties"])}
    for name in added:
        del found["properties"][name]
    assert bson.encode({"$jsonSchema": found}) == bson.encode(released)
    assert set(schema(entity)["required"]).isdisjoint(ADDED)


def test_fields_that_are_always_written_are_required() -> None:
    assert schema(RUNS)["required"] == [
        "_id",
        "schemaVersion",
        "tenantId",
        "trigger",
        "state",
        "stats",
        "createdAt",
    ]


def test_the_id_is_text_under_its_stored_name() -> None:
    properties = schema(RUNS)["properties"]
    assert properties["_id"] == {"bsonType": "string"}
    assert "id" not in properties


def test_a_key_of_several_parts_is_stored_in_addition_to_its_id() -> None:
    properties = schema(ENTRIES)["properties"]
    assert properties["_id"] == properties["deviceId"] == {"bsonType": "string"}
    assert properties["sequence"] == {"bsonType": ["int", "long", "double"], "multipleOf": 1}


@pytest.mark.parametrize("entity", [PARCELS, SCANS], ids=lambda entity: entity.name)
def test_a_generated_id_is_an_object_id_and_the_key_is_required_in_addition(entity: Entity) -> None:
    content = schema(entity)
    assert content["properties"]["_id"] == {"bsonType": "objectId"}
    assert {"_id", "parcelId"} <= set(content["required"])
    assert content["properties"]["parcelId"] == {"bsonType": "string"}


def test_a_key_that_is_the_id_has_its_types_there() -> None:
    number = {"bsonType": ["int", "long", "double"], "multipleOf": 1}
    assert schema(TICKETS)["properties"]["_id"] == number
    assert schema(STUBS)["properties"]["_id"] == {
        "bsonType": "object",
        "required": ["ticket", "gate"],
        "properties": {"ticket": number, "gate": {"bsonType": "string"}},
        "additionalProperties": False,
    }
    assert {"number", "ticket", "gate", "$price", "hall.place"}.isdisjoint(
        name for entity in (TICKETS, STUBS) for name in schema(entity)["properties"]
    )


def test_enumerations_admit_their_wire_texts_only() -> None:
    assert schema(SCHEDULES)["properties"]["mode"] == {"enum": ["analysis-only", "content-refresh"]}
    assert schema(NOTES)["properties"]["colour"] == {"enum": ["red", "dark-green"]}


def test_instants_are_dates_and_integers_whole_numbers_at_every_depth() -> None:
    properties = schema(RUNS)["properties"]
    delta = properties["deltas"]["items"]["properties"]
    assert properties["createdAt"] == {"bsonType": "date"}
    assert delta["detectedAt"] == {"bsonType": "date"}
    assert delta["newFindings"] == {"bsonType": ["int", "long", "double"], "multipleOf": 1}


def test_the_markers_that_a_query_needs_are_required() -> None:
    assert {"_tenantId", "_selectorDigest"} <= set(schema(IMPACT_SNAPSHOTS)["required"])


def test_markers_have_their_types_and_plain_ones_may_be_null() -> None:
    properties = schema(NOTES)["properties"]
    assert properties["archivedAt"] == {"bsonType": ["date", "null"]}
    assert properties["_archivedBy"] == {"bsonType": "string"}
    assert properties["_revision"] == {"bsonType": ["int", "long", "double"], "multipleOf": 1}


def test_derived_fields_are_not_asked_for() -> None:
    assert not {"_contentDigest", "_spotCount"} & schema(DEVICES)["properties"].keys()


@each_entity
def test_unknown_fields_are_not_refused(entity: Entity) -> None:
    assert "additionalProperties" not in schema(entity)


@each_entity
def test_the_scan_knows_every_instant_of_the_models(entity: Entity) -> None:
    markers = {(codec_of(entity).names[name],) for name in entity.marker_times}
    assert set(StoredForm.of(entity).instants) == set(instant_paths(entity.model)) | markers


def test_paths_of_instants_lead_through_lists() -> None:
    assert ("deltas", "detectedAt") in instant_paths(Run)


def test_reading_a_document_changes_nothing_in_it_because_a_write_compares_with_it() -> None:
    codec = codec_of(NOTES)
    model = NOTE.row(Dataset(Tenant("acme"), "batch"), 0).model
    dated: dict[str, Any] = {"a": [date_object(at(1))]}
    spot = Spot(label="l", seen_at=at(0), details=dated)
    row = Row(model.evolve(extra=dated, spot=spot, spots=(spot,)))
    found = codec.encode(row)
    before = deepcopy(found)
    codec.decode(found)
    assert found == before
