from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from twinstore.paging import SortKey
from twinstore.query import After, AtMost, Before, Condition, Equals, IsNull, OneOf, Query
from twinstore.scheduler import queries
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore_mongo.compile import FIRST_INSTANT, compiled, sort_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NAMES = {"id": "_id"}
NEWEST = (SortKey("createdAt", descending=True, time=True), SortKey("id"))


def query(*where: Condition, **changes: Any) -> Query:  # noqa: ANN401  # the fields of a query
    plain = Query(entity="runs", tenant_id="t", where=where, order=NEWEST, limit=5)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Equals("enabled", value=True), {"enabled": True}),
        (OneOf("state", ("queued",)), {"state": "queued"}),
        (OneOf("state", ("planning", "queued")), {"state": {"$in": ["planning", "queued"]}}),
        (After("createdAt", NOW), {"createdAt": {"$gt": NOW}}),
        (Before("createdAt", NOW), {"createdAt": {"$lt": NOW}}),
        (AtMost("createdAt", NOW), {"createdAt": {"$lte": NOW}}),
        (IsNull("deletedAt"), {"deletedAt": None}),
    ],
)
def test_each_condition_becomes_a_filter(condition: Condition, expected: dict[str, object]) -> None:
    assert compiled(query(condition), NAMES) == {"tenantId": "t", **expected}


def test_two_bounds_on_one_field_both_hold() -> None:
    assert compiled(query(After("createdAt", NOW), Before("createdAt", NOW)), NAMES) == {
        "tenantId": "t",
        "createdAt": {"$gt": NOW},
        "$and": [{"createdAt": {"$lt": NOW}}],
    }


def test_system_scope_has_no_tenant_condition() -> None:
    assert compiled(query(tenant_id=None), NAMES) == {}


def test_markers_are_looked_up_under_their_stored_names() -> None:
    names = {"snapshotId": "_id", "tenantId": "_tenantId", "runId": "_runId"}
    found = queries.snapshots("t", 5, None, "r")
    assert compiled(found, names) == {"_tenantId": "t", "_runId": "r"}
    assert sort_of(found, names) == [("generatedAt", -1), ("_id", 1)]


def test_the_next_page_starts_the_index_scan_at_the_key() -> None:
    assert compiled(query(after=(NOW, "r-1")), NAMES) == {
        "tenantId": "t",
        "createdAt": {"$lte": NOW},
        "$or": [{"createdAt": NOW, "_id": {"$gt": "r-1"}}, {"createdAt": {"$lt": NOW}}],
    }


def test_the_page_after_a_null_goes_on_with_nulls_then_with_instants() -> None:
    order = (SortKey("nextFireAt", time=True, nullable=True), SortKey("id"))
    assert compiled(query(order=order, after=(None, "x")), NAMES) == {
        "tenantId": "t",
        "$or": [{"nextFireAt": None, "_id": {"$gt": "x"}}, {"nextFireAt": {"$gte": FIRST_INSTANT}}],
    }


def test_a_list_with_one_key_needs_one_comparison() -> None:
    assert compiled(query(order=(SortKey("scheduleId"),), after=("s",)), {}) == {
        "tenantId": "t",
        "scheduleId": {"$gt": "s"},
    }


def test_schedules_that_are_not_deleted_are_read_in_the_order_of_their_unique_index() -> None:
    assert sort_of(queries.schedules("t", None), NAMES) == [("name", 1)]


def test_names_of_deleted_schedules_may_repeat_so_the_id_decides() -> None:
    found = queries.schedules("t", ScheduleQueryOptions(include_deleted=True))
    assert sort_of(found, NAMES) == [("name", 1), ("_id", 1)]
