from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from twinstore.catalog.conditions import AtLeast, Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.entity import Entity, Module
from twinstore.catalog.indexes import Index
from twinstore.plugins.options import ModuleOptions
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUN_SUMMARIES, SCHEDULER, SCHEDULES, TRIGGERS
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.options import SchedulerOptions
from twinstore.testing.entities import COUNTERS, DEVICES, ENTRIES, EVENTS, KIT, NOTES, PARCELS, SCANS
from twinstore_mongo.bulk.survey import serves
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

if TYPE_CHECKING:
    from twinstore.catalog.conditions import Condition

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


def test_a_proposed_step_leaves_nothing_to_propose() -> None:
    text = proposed_step(KIT, ())
    assert text is not None
    step = parse_step("001_kit", text.encode())
    assert step.collections == collection_specs(KIT)
    assert proposed_step(KIT, (step,)) is None


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


def test_beside_a_generated_id_the_key_has_its_own_names_and_the_first_index() -> None:
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
