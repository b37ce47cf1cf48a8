"""What happens when a stored document forms no model: loud, precise, and without its content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import DocumentDecodeError, DuplicateError
from twinstore.scheduler.catalog import (
    IMPACT_SNAPSHOTS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.base import Contract
from twinstore.testing.builders import at, make_selector, moved
from twinstore.testing.calls import Household, furnish
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.testing.bench import Bench
    from twinstore.testing.examples import Example
    from twinstore.testing.signatures import Listed, Lookup

__all__ = ["DecodingContract"]

# Five words, so that it would even pass for the shape of a time rule.
CONTENT: Final = "s3cr3t 1 2 3 4"
ALL: Final = ScheduleQueryOptions(include_deleted=True)


@dataclass(frozen=True, slots=True)
class Touch:
    """A call that must meet the broken row of an entity."""

    name: str
    entity: Entity
    call: Callable[[SchedulerStorage, str, Household], object]


def lookups_and_lists() -> Iterator[Touch]:
    """Yield the look-ups of every repository, and the lists that must show the row."""
    for item in SCHEDULER_EXAMPLES.examples:
        for lookup in item.lookups:
            yield Touch(lookup.method.name, item.entity, partial(asked, item, lookup))
        for listed in item.lists:
            if listed.sees_one_tenant and (listed.fields or listed.method.name == "list"):
                yield Touch(listed.method.name, item.entity, partial(asked, item, listed))


def asked(
    item: Example[SchedulerSession],
    question: Lookup | Listed,
    storage: SchedulerStorage,
    tenant: str,
    household: Household,
) -> object:
    """Ask a repository for the row of the household."""
    return question(getattr(storage, item.repository), tenant, household.value(item.entity))


TOUCHES: Final = (
    *lookups_and_lists(),
    Touch("list deleted", SCHEDULES, lambda s, t, _: s.schedules.list(t, ALL)),
    Touch("upsert", SCHEDULES, lambda s, _, h: s.schedules.upsert(h.schedule.evolve(updated_at=at(9)))),
    Touch("soft_delete", SCHEDULES, lambda s, t, h: s.schedules.soft_delete(t, h.schedule.id, "x", at(9))),
    Touch("recalculate", SCHEDULES, lambda s, t, h: s.triggers.recalculate(t, h.schedule.id, at())),
    Touch("recalculate", TRIGGERS, lambda s, t, h: s.triggers.recalculate(t, h.schedule.id, at())),
    Touch("upsert", TRIGGERS, lambda s, _, h: s.schedules.upsert(h.schedule.evolve(updated_at=at(9)))),
    Touch("update", RUNS, lambda s, _, h: s.runs.update(h.run)),
    Touch("retry", RUNS, lambda s, t, h: s.runs.retry(t, h.run.id, "x", at())),
    Touch("rebuild", RUNS, lambda s, t, h: s.run_summary_service.rebuild(t, h.schedule.id)),
    Touch(
        "get_latest_by_selector",
        IMPACT_SNAPSHOTS,
        lambda s, t, _: s.impact_snapshots.get_latest_by_selector(t, make_selector()),
    ),
    Touch("project", RUN_SUMMARIES, lambda s, _, h: s.run_summary_service.project(h.run)),
    Touch("rebuild", RUN_SUMMARIES, lambda s, t, h: s.run_summary_service.rebuild(t, h.schedule.id)),
    Touch("modify", RUN_SUMMARIES, lambda s, t, h: s.run_summaries.modify(t, h.schedule.id, lambda old: old)),
)


def snapshot_id(household: Household) -> str:
    """Return the id of the snapshot."""
    return household.snapshot.snapshot_id or ""


class DecodingContract(Contract):
    """Reads never skip a broken row, and writes never build on one."""

    @pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: f"{touch.entity.name}-{touch.name}")
    def test_a_broken_row_is_named_without_its_content_and_left_alone(
        self, bench: Bench, touch: Touch
    ) -> None:
        household = furnish(bench)
        key = next(key for entity, key in household.keys if entity is touch.entity)
        bench.probe.poison(touch.entity, key, CONTENT)
        before = household.stored(bench)
        with pytest.raises(DocumentDecodeError) as problem:
            touch.call(bench.storage, bench.tenant, household)
        assert problem.value.entity == touch.entity.name
        assert problem.value.key is not None
        assert problem.value.key in problem.value.message
        assert str(key[-1]) in problem.value.key
        assert CONTENT not in problem.value.message
        assert "s3cr3t" not in problem.value.message
        assert household.stored(bench) == before

    def test_a_broken_row_is_met_by_the_lists_over_all_tenants(self, lone_bench: Bench) -> None:
        household = furnish(lone_bench)
        run = lone_bench.storage.runs.create(lone_bench.run("pending"))
        lone_bench.probe.poison(SCHEDULES, (household.schedule.id,), CONTENT)
        lone_bench.probe.poison(RUNS, (run.id,), CONTENT)
        with pytest.raises(DocumentDecodeError):
            lone_bench.storage.schedules.get_due_schedules(at(99_999))
        with pytest.raises(DocumentDecodeError):
            lone_bench.storage.runs.list_by_state(RunState.PLANNING)
        with pytest.raises(DocumentDecodeError):
            lone_bench.storage.runs.get_pending_runs(lone_bench.tenant)

    def test_the_rows_beside_a_broken_one_can_be_read(self, bench: Bench) -> None:
        runs = [bench.storage.runs.create(bench.run(str(n), created_at=at(n))) for n in range(3)]
        bench.probe.poison(RUNS, (runs[0].id,), CONTENT)
        page = bench.storage.runs.list(bench.tenant, RunQueryOptions(limit=1))
        assert tuple(page) == (runs[2],)
        later = RunQueryOptions(created_after=at(0))
        assert tuple(bench.storage.runs.list(bench.tenant, later)) == (runs[2], runs[1])

    def test_a_broken_row_can_still_be_purged_or_deleted(self, bench: Bench) -> None:
        household = furnish(bench)
        bench.probe.poison(RUNS, (household.run.id,), CONTENT)
        bench.probe.poison(IMPACT_SNAPSHOTS, (snapshot_id(household),), CONTENT)
        assert bench.storage.runs.purge_finished(at(9999), tenant_id=bench.tenant) == 1
        assert bench.storage.impact_snapshots.delete(bench.tenant, snapshot_id(household)) is True

    @pytest.mark.parametrize("example", SCHEDULER_EXAMPLES.examples, ids=lambda example: example.name)
    def test_a_broken_row_is_replaced_as_a_whole_or_left_alone(
        self, bench: Bench, example: Example[SchedulerSession]
    ) -> None:
        session, tenant = bench.storage.unbound, bench.tenant
        model = SCHEDULER_EXAMPLES.store_small(session, tenant, bench.id("a"), example.entity)
        other, key = example.rich(tenant, bench.id("a")), example.key(tenant, model)
        bench.probe.poison(example.entity, key, CONTENT)
        broken = bench.probe.read(example.entity, key)
        try:
            example.store(session, tenant, other)
        except (DocumentDecodeError, DuplicateError):
            assert bench.probe.read(example.entity, key) == broken
        else:
            assert example.found(session, tenant, other) == other

    def test_a_broken_row_of_another_tenant_disturbs_nobody(self, bench: Bench) -> None:
        household = furnish(bench)
        theirs = furnish(bench.elsewhere)
        for entity, key in theirs.keys:
            bench.probe.poison(entity, key, CONTENT)
        for touch in TOUCHES:
            if touch.name in {"get", "get_required", "list", "list deleted"}:
                touch.call(bench.storage, bench.tenant, household)
        assert bench.storage.runs.update(moved(household.run, household.run.state)) is True
