from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from twinstore.access.paging import SortKey
from twinstore.access.protocol import UniqueKey
from twinstore.access.query import Query
from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Condition,
    Equals,
    IsNull,
    IsPresent,
    OneOf,
)
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Tenant
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES
from twinstore.testing.entities import COUNTERS, DEVICES, ENTRIES
from twinstore_mongo.access.queries import FIRST_INSTANT, any_of, compiled, filter_of
from twinstore_mongo.mapping.codec import codec_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
T = Tenant("t")
NEWEST = (SortKey("createdAt", descending=True, time=True), SortKey("id"))


def query(*where: Condition, **changes: Any) -> Query:  # noqa: ANN401  # the fields of a query
    plain = Query(entity="runs", scope=T, where=where, order=NEWEST, limit=5)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Equals("state", "queued"), {"state": "queued"}),
        (Equals("id", "r"), {"_id": "r"}),
        (OneOf("state", ("queued",)), {"state": "queued"}),
        (OneOf("state", ("planning", "queued")), {"state": {"$in": ["planning", "queued"]}}),
        (After("createdAt", NOW), {"createdAt": {"$gt": NOW}}),
        (Before("createdAt", NOW), {"createdAt": {"$lt": NOW}}),
        (AtMost("createdAt", NOW), {"createdAt": {"$lte": NOW}}),
        (AtLeast("createdAt", NOW), {"createdAt": {"$gte": NOW}}),
        (IsNull("finishedAt"), {"finishedAt": None}),
        (IsPresent("finishedAt"), {"finishedAt": {"$ne": None}}),
    ],
)
def test_each_condition_becomes_a_filter(condition: Condition, expected: dict[str, object]) -> None:
    assert compiled(codec_of(RUNS), query(condition)) == {"tenantId": "t", **expected}


def test_two_bounds_on_one_field_both_hold() -> None:
    assert compiled(codec_of(RUNS), query(After("createdAt", NOW), Before("createdAt", NOW))) == {
        "tenantId": "t",
        "createdAt": {"$gt": NOW},
        "$and": [{"createdAt": {"$lt": NOW}}],
    }


def test_system_scope_has_no_tenant_condition() -> None:
    assert compiled(codec_of(RUNS), query(scope=ALL_TENANTS)) == {}


def test_no_tenant_is_a_condition_like_any_other() -> None:
    assert compiled(codec_of(DEVICES), query(scope=NO_TENANT)) == {"tenantId": None}


def test_entities_without_tenant_are_the_same_in_every_scope() -> None:
    assert compiled(codec_of(COUNTERS), query(scope=T)) == {}


def test_markers_are_looked_up_under_their_stored_names() -> None:
    found = queries.snapshots(T, 5, None, "r")
    assert compiled(codec_of(IMPACT_SNAPSHOTS), found) == {"_tenantId": "t", "_runId": "r"}


def test_the_next_page_starts_the_index_scan_at_the_key() -> None:
    assert compiled(codec_of(RUNS), query(after=(NOW, "r-1"))) == {
        "tenantId": "t",
        "createdAt": {"$lte": NOW},
        "$or": [{"createdAt": NOW, "_id": {"$gt": "r-1"}}, {"createdAt": {"$lt": NOW}}],
    }


def test_the_page_after_a_null_goes_on_with_nulls_then_with_instants() -> None:
    order = (SortKey("finishedAt", time=True, nullable=True), SortKey("id"))
    assert compiled(codec_of(RUNS), query(order=order, after=(None, "x"))) == {
        "tenantId": "t",
        "$or": [{"finishedAt": None, "_id": {"$gt": "x"}}, {"finishedAt": {"$gte": FIRST_INSTANT}}],
    }


def test_descending_nulls_come_after_everything_else() -> None:
    order = (SortKey("finishedAt", descending=True, time=True, nullable=True), SortKey("id"))
    assert compiled(codec_of(RUNS), query(order=order, after=(NOW, "x"))) == {
        "tenantId": "t",
        "$or": [{"finishedAt": NOW, "_id": {"$gt": "x"}}, {"finishedAt": {"$lt": NOW}}, {"finishedAt": None}],
    }
    assert compiled(codec_of(RUNS), query(order=order, after=(None, "x"))) == {
        "tenantId": "t",
        "$or": [{"finishedAt": None, "_id": {"$gt": "x"}}],
    }


@pytest.mark.parametrize(
    ("key", "first"),
    [
        (SortKey("scheduleId", nullable=True), ""),
        (SortKey("scheduleId", nullable=True, number=True), -(2**63)),
    ],
    ids=["text", "number"],
)
def test_the_values_after_nulls_begin_with_the_first_of_their_type(key: SortKey, first: object) -> None:
    found = compiled(codec_of(RUNS), query(order=(key, SortKey("id")), after=(None, "x")))
    assert found["$or"][1] == {"scheduleId": {"$gte": first}}


def test_a_list_with_one_key_needs_one_comparison() -> None:
    found = query(order=(SortKey("scheduleId"),), after=("s",))
    assert compiled(codec_of(RUN_SUMMARIES), found) == {"tenantId": "t", "scheduleId": {"$gt": "s"}}


def test_a_key_of_several_parts_is_looked_up_by_its_fields() -> None:
    assert filter_of(codec_of(RUN_SUMMARIES), ("t", "s")) == {"tenantId": "t", "scheduleId": "s"}
    assert filter_of(codec_of(COUNTERS), (7,)) == {"number": 7}


def test_a_unique_value_is_looked_up_among_the_rows_that_its_index_holds() -> None:
    key = UniqueKey(SCHEDULES.unique("tenant_name"), ("t", "n"))
    assert filter_of(codec_of(SCHEDULES), key) == {"tenantId": "t", "name": "n", "deletedAt": None}


def test_some_keys_are_one_filter() -> None:
    assert any_of(codec_of(RUNS), [("a",), ("b",)]) == {"_id": {"$in": ["a", "b"]}}
    entries = codec_of(ENTRIES)
    assert any_of(entries, [("a", 1), ("a", 2)]) == {"deviceId": "a", "sequence": {"$in": [1, 2]}}
    assert any_of(entries, [("a", 1), ("b", 2)]) == {
        "$or": [{"deviceId": "a", "sequence": {"$in": [1]}}, {"deviceId": "b", "sequence": {"$in": [2]}}]
    }
