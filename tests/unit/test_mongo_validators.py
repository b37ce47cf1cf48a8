from __future__ import annotations

from typing import Any

import pytest

from twinstore.scheduler.runs import Run
from twinstore_mongo.bulk_scan import SCANS
from twinstore_mongo.codec import Codec
from twinstore_mongo.scheduler.codecs import CODECS, RUN_CODEC, SCHEDULE_CODEC, SNAPSHOT_CODEC
from twinstore_mongo.validators import instant_paths, validator_of


def schema(codec: Codec[Any]) -> dict[str, Any]:
    content: dict[str, Any] = validator_of(codec)["$jsonSchema"]
    return content


def test_fields_that_are_always_written_are_required() -> None:
    assert schema(RUN_CODEC)["required"] == [
        "_id",
        "schemaVersion",
        "tenantId",
        "trigger",
        "state",
        "stats",
        "createdAt",
    ]


def test_the_id_is_text_under_its_stored_name() -> None:
    properties = schema(RUN_CODEC)["properties"]
    assert properties["_id"] == {"bsonType": "string"}
    assert "id" not in properties


def test_enumerations_admit_their_wire_texts_only() -> None:
    assert schema(SCHEDULE_CODEC)["properties"]["mode"] == {"enum": ["analysis-only", "content-refresh"]}


def test_instants_are_dates_and_integers_whole_numbers_at_every_depth() -> None:
    properties = schema(RUN_CODEC)["properties"]
    delta = properties["deltas"]["items"]["properties"]
    assert properties["createdAt"] == {"bsonType": "date"}
    assert delta["detectedAt"] == {"bsonType": "date"}
    assert delta["newFindings"] == {"bsonType": ["int", "long", "double"], "multipleOf": 1}


def test_the_markers_that_a_query_needs_are_required() -> None:
    assert {"_tenantId", "_selectorDigest"} <= set(schema(SNAPSHOT_CODEC)["required"])


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.entity.name)
def test_unknown_fields_are_not_refused(codec: Codec[Any]) -> None:
    assert "additionalProperties" not in schema(codec)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.entity.name)
def test_the_scan_knows_every_instant_of_the_models(codec: Codec[Any]) -> None:
    known = set(SCANS[codec.entity.name].instants)
    markers = {(name,) for name in codec.entity.marker_times}
    assert known == set(instant_paths(codec.model)) | markers


def test_paths_of_instants_lead_through_lists() -> None:
    assert ("deltas", "detectedAt") in instant_paths(Run)
