from __future__ import annotations

from typing import Any

import bson
import pytest

from tests.releases import mongo_collections
from twinstore.catalog.entity import Entity
from twinstore.models.shapes import instant_paths
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS, SCHEDULER, SCHEDULES
from twinstore.scheduler.runs import Run
from twinstore.testing.entities import DEVICES, ENTRIES, NOTES, PARCELS, SCANS
from twinstore_mongo.bulk.scan import StoredForm
from twinstore_mongo.schema.validators import validator_of

RELEASED = {collection["name"]: collection["options"] for collection in mongo_collections()}
each_entity = pytest.mark.parametrize(
    "entity",
    [entity for entity in SCHEDULER.entities if entity.name in RELEASED],
    ids=lambda entity: entity.name,
)


def schema(entity: Entity) -> dict[str, Any]:
    content: dict[str, Any] = validator_of(entity)["$jsonSchema"]
    return content


@each_entity
def test_the_validator_is_that_of_the_release_byte_for_byte(entity: Entity) -> None:
    assert bson.encode(validator_of(entity)) == bson.encode(RELEASED[entity.name]["validator"])


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


def test_a_key_of_several_parts_stays_beside_its_id() -> None:
    properties = schema(ENTRIES)["properties"]
    assert properties["_id"] == properties["deviceId"] == {"bsonType": "string"}
    assert properties["sequence"] == {"bsonType": ["int", "long", "double"], "multipleOf": 1}


@pytest.mark.parametrize("entity", [PARCELS, SCANS], ids=lambda entity: entity.name)
def test_a_generated_id_is_an_object_id_and_the_key_is_required_beside_it(entity: Entity) -> None:
    content = schema(entity)
    assert content["properties"]["_id"] == {"bsonType": "objectId"}
    assert {"_id", "parcelId"} <= set(content["required"])
    assert content["properties"]["parcelId"] == {"bsonType": "string"}


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
    markers = {(name,) for name in entity.marker_times}
    assert set(StoredForm.of(entity).instants) == set(instant_paths(entity.model)) | markers


def test_paths_of_instants_lead_through_lists() -> None:
    assert ("deltas", "detectedAt") in instant_paths(Run)
