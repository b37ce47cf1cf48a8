"""An order says of each field what the description says, or a programmer hears of it on every driver."""

from __future__ import annotations

import pytest

from twinstore.access.guard import check_query
from twinstore.access.paging import SortKey
from twinstore.access.query import Query, expired_query, key_order
from twinstore.catalog.conditions import AtMost, Condition, IsNull
from twinstore.catalog.entity import Entity
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.ledger.catalog import JOBS, RANGES
from twinstore.scheduler import ScheduleQueryOptions, queries
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS, SCHEDULER, SCHEDULES, TRIGGERS
from twinstore.testing.instants import at

TENANT = Tenant("t")


def listed(entity: Entity, *order: SortKey, where: tuple[Condition, ...] = ()) -> Query:
    return Query(
        entity=entity.name, scope=ALL_TENANTS, where=where, order=(*order, *key_order(entity)), limit=1
    )


@pytest.mark.parametrize(
    ("entity", "key", "advice"),
    [
        (RANGES, SortKey("fence"), "SortKey('fence', time=False, number=True, nullable=False)"),
        (RUNS, SortKey("createdAt"), "SortKey('createdAt', time=True, number=False, nullable=False)"),
        (RUNS, SortKey("createdAt", number=True), "time=True, number=False"),
        (RUNS, SortKey("scheduleId", time=True, nullable=True), "time=False, number=False, nullable=True"),
        (RUNS, SortKey("finishedAt", time=True), "time=True, number=False, nullable=True"),
        (SCHEDULES, SortKey("deletedAt", time=True), "nullable=True"),
        (IMPACT_SNAPSHOTS, SortKey("imageCount"), "number=True"),
        (IMPACT_SNAPSHOTS, SortKey("runId"), "nullable=True"),
    ],
)
def test_a_missing_or_wrong_flag_is_refused_with_the_right_one(
    entity: Entity, key: SortKey, advice: str
) -> None:
    with pytest.raises(ValueError, match=rf"a list of {entity.name} sorts by '{key.field}'") as caught:
        check_query(entity, listed(entity, key))
    assert advice in str(caught.value)


def test_a_condition_may_exclude_what_is_absent() -> None:
    order = SortKey("finishedAt", time=True)
    check_query(RUNS, listed(RUNS, order, where=(AtMost("finishedAt", at(0)),)))
    with pytest.raises(ValueError, match="nullable=True"):
        check_query(RUNS, listed(RUNS, order, where=(IsNull("finishedAt"),)))


def test_what_is_never_absent_may_be_called_nullable() -> None:
    check_query(JOBS, listed(JOBS, SortKey("startedAt", time=True, nullable=True)))


def test_the_orders_of_ours_are_right() -> None:
    check_query(SCHEDULES, queries.schedules(TENANT, ScheduleQueryOptions()))
    check_query(TRIGGERS, queries.triggers(TENANT, 1, None))
    check_query(TRIGGERS, queries.due_triggers(at(0), 1))
    for entity in SCHEDULER.entities:
        check_query(entity, listed(entity))
        if entity.retention is not None:
            check_query(entity, expired_query(entity, ALL_TENANTS, at(0), 1))
