from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from twinstore.access.paging import SortKey
from twinstore.access.protocol import UniqueKey
from twinstore.access.query import Query, expired_query
from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Condition,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.entity import Entity
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import text
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Tenancy, Tenant
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.entities import COUNTERS, DEVICES, ENTRIES, PLACES, STUBS, Note
from twinstore.testing.instants import at
from twinstore_mongo.access.queries import FIRST_INSTANT, any_of, compiled, filter_of, place_of
from twinstore_mongo.mapping.codec import Reading, codec_of, sorted_along_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoServer

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
        (NotAfter("finishedAt", NOW), {"finishedAt": {"$not": {"$gt": NOW}}}),
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


def test_a_key_that_is_the_id_is_looked_up_as_it_is_and_listed_by_its_parts() -> None:
    codec = codec_of(STUBS)
    assert filter_of(codec, (7, "a")) == {"_id": {"ticket": 7, "gate": "a"}}
    assert any_of(codec, [(7, "a"), (8, "b")]) == {
        "_id": {"$in": [{"ticket": 7, "gate": "a"}, {"ticket": 8, "gate": "b"}]}
    }
    assert filter_of(codec, ("7", 8)) == {"_id": {"ticket": "7", "gate": 8}}
    found = compiled(codec, replace(query(order=(SortKey("gate"),), after=("a",)), scope=ALL_TENANTS))
    assert found == {"_id.gate": {"$gt": "a"}}


def test_a_tenant_inside_of_an_id_is_not_asked_for_a_second_time() -> None:
    keyed = replace(PLACES, key_parts=(text("tenantId"), text("slot")), key_as_id=True)
    identity = {"tenantId": "t", "slot": "s"}
    assert place_of(codec_of(keyed), T, ("t", "s")) == {"_id": identity}
    other = {"_id": {**identity, "tenantId": "u"}, "_id.tenantId": "t"}
    assert place_of(codec_of(keyed), T, ("u", "s")) == other


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


def reading(entity: Entity, query: Query) -> Reading:
    return codec_of(entity).readings.of(query)


def runs(**options: Any) -> Query:  # noqa: ANN401  # options of one kind
    return queries.runs(T, RunQueryOptions(**options))


@pytest.mark.parametrize(
    ("entity", "query", "order"),
    [
        (RUNS, runs(), [("createdAt", -1), ("_id", 1)]),
        (RUNS, runs(schedule_id="s"), [("createdAt", -1), ("_id", 1)]),
        (RUNS, runs(ascending=True, states=[RunState.QUEUED]), [("createdAt", 1), ("_id", 1)]),
        (RUNS, queries.pending_runs(T, 5, None), [("createdAt", 1), ("_id", 1)]),
        (RUNS, queries.runs_by_state(RunState.QUEUED, 5, None), [("createdAt", 1), ("_id", 1)]),
        (TRIGGERS, queries.triggers(T, 5, None), [("nextFireAt", 1), ("_id", 1)]),
        (TRIGGERS, queries.due_triggers(at(0), 5), [("nextFireAt", 1), ("tenantId", 1), ("_id", 1)]),
        (IMPACT_SNAPSHOTS, queries.snapshots(T, 5, None, "r"), [("generatedAt", -1), ("_id", 1)]),
        (AUDIT, queries.audit(T, None), [("occurredAt", -1), ("_id", 1)]),
        (RUN_SUMMARIES, queries.run_summaries(T, 5, None), [("scheduleId", 1)]),
    ],
)
def test_a_list_that_an_index_has_in_order_is_read_in_its_own_order(
    entity: Entity, query: Query, order: list[tuple[str, int]]
) -> None:
    assert reading(entity, query) == Reading(order)


def test_schedules_that_are_not_deleted_are_read_in_the_order_of_their_unique_index() -> None:
    assert reading(SCHEDULES, queries.schedules(T, None)).order == [("name", 1)]


def test_names_of_deleted_schedules_may_repeat_so_the_id_decides() -> None:
    found = queries.schedules(T, ScheduleQueryOptions(include_deleted=True))
    assert reading(SCHEDULES, found).order == [("name", 1), ("_id", 1)]


def test_names_of_all_tenants_may_repeat_so_the_id_decides() -> None:
    assert reading(SCHEDULES, queries.schedules(ALL_TENANTS, None)).order == [("name", 1), ("_id", 1)]


@pytest.mark.parametrize("options", [{}, {"schedule_id": "s"}, {"created_after": at(0)}], ids=str)
def test_the_oldest_runs_come_along_the_index_of_the_newest(options: dict[str, Any]) -> None:
    found = reading(RUNS, runs(ascending=True, **options))
    assert found == Reading([("createdAt", 1), ("_id", 1)], [("createdAt", 1), ("_id", -1)])


def test_expired_rows_come_along_the_index_of_their_age() -> None:
    found = reading(RUNS, expired_query(RUNS, ALL_TENANTS, at(0), 5))
    assert found == Reading([("finishedAt", 1), ("_id", 1)], [("finishedAt", 1)])


def test_expired_rows_of_a_tenant_come_along_an_index_of_its_rows_where_there_is_one() -> None:
    found = reading(IMPACT_SNAPSHOTS, expired_query(IMPACT_SNAPSHOTS, T, at(0), 5))
    assert found == Reading([("generatedAt", 1), ("_id", 1)], [("generatedAt", 1), ("_id", -1)])


def test_the_values_of_conditions_make_no_other_reading() -> None:
    readings = codec_of(RUNS).readings
    assert readings.of(runs(schedule_id="a")) is readings.of(runs(schedule_id="b"))


def partly_indexed(*indexes: Index) -> Entity:
    return Entity(
        name="partly_indexed",
        singular="note",
        module="kit",
        model=Note,
        key_parts=(text("id"),),
        tenancy=Tenancy.required(),
        group="kit",
        indexes=indexes,
    )


def by_due(*where: Any) -> Query:  # noqa: ANN401  # conditions
    order = (SortKey("dueAt", time=True), SortKey("id"))
    return Query(entity="partly_indexed", scope=T, where=where, order=order, limit=5)


URGENT = Index(fields=("tenantId", "-dueAt"), name="a", where=(Equals("urgent", value=True),))
HELD = Index(fields=("tenantId", "-dueAt"), name="a", where=(IsPresent("holder"),))
IN_TABLES = Index(fields=("tenantId", "-dueAt"), name="a", stores=frozenset({StoreKind.TABLES}))


@pytest.mark.parametrize(
    ("index", "where", "used"),
    [
        (URGENT, (Equals("urgent", value=True),), True),
        (URGENT, (Equals("urgent", value=False),), False),
        (URGENT, (), False),
        (HELD, (IsPresent("holder"),), True),
        (HELD, (Equals("holder", "me"),), True),
        (HELD, (OneOf("holder", ("me", "you")),), True),
        (HELD, (), False),
        (IN_TABLES, (), False),
    ],
)
def test_an_index_of_some_rows_is_read_only_by_lists_of_such_rows(
    index: Index, where: tuple[Any, ...], *, used: bool
) -> None:
    assert (reading(partly_indexed(index), by_due(*where)).index_sort is not None) == used


@pytest.fixture
def rows_in_mongo(mongo_server: MongoServer) -> Iterator[Any]:
    with mongo_server.database() as database:
        yield mongo_server.client[database.name].rows


@pytest.mark.parametrize("size", [1, 7, 60])
def test_rows_come_by_time_and_id_whatever_the_index_does_within_one_instant(
    rows_in_mongo: Any,  # noqa: ANN401  # a collection of documents of any types
    size: int,
) -> None:
    rows = [{"_id": f"{(number * 37) % 61:02}", "at": number // size} for number in range(60)]
    rows_in_mongo.insert_many(rows)
    expected = sorted(rows, key=lambda row: (row["at"], row["_id"]))
    order = [("at", 1), ("_id", 1)]
    for index_sort in ([("at", 1), ("_id", -1)], [("at", 1)]):
        for wanted in (1, 3, 20, 40, 100):
            found = sorted_along_index(rows_in_mongo.find, {}, Reading(order, index_sort), wanted)
            assert found == expected[:wanted]


def test_rows_of_one_instant_have_the_rest_of_the_order(rows_in_mongo: Any) -> None:  # noqa: ANN401  # as above
    rows: list[dict[str, Any]] = [
        {"_id": f"{number:02}", "at": number // 20, "rank": (None, 3, -1, "x")[number % 4]}
        for number in range(60)
    ]
    rows_in_mongo.insert_many(rows)
    order = [("at", -1), ("rank", -1), ("_id", 1)]
    expected = sorted(rows, key=lambda row: row["_id"])
    expected.sort(key=lambda row: {"x": 3, 3: 2, -1: 1, None: 0}[row["rank"]], reverse=True)
    expected.sort(key=lambda row: row["at"], reverse=True)
    for wanted in (1, 20, 100):
        found = sorted_along_index(rows_in_mongo.find, {}, Reading(order, [("at", -1)]), wanted)
        assert found == expected[:wanted]
