from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, expired_query
from twinstore.catalog.conditions import Equals, IsPresent, OneOf
from twinstore.catalog.entity import Entity
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import text
from twinstore.catalog.tenancy import ALL_TENANTS, Tenancy, Tenant
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.entities import Note
from twinstore.testing.instants import at
from twinstore_mongo.mapping.codec import Reading, along_index, codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoServer

T = Tenant("t")


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
    assert (reading(partly_indexed(index), by_due(*where)).along is not None) == used


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
    for along in ([("at", 1), ("_id", -1)], [("at", 1)]):
        for wanted in (1, 3, 20, 40, 100):
            found = along_index(rows_in_mongo.find, {}, Reading(order, along), wanted)
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
        found = along_index(rows_in_mongo.find, {}, Reading(order, [("at", -1)]), wanted)
        assert found == expected[:wanted]
