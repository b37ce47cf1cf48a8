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
from twinstore.testing.calls import StoredExamples, store_one_of_each
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.testing.examples import Example
    from twinstore.testing.signatures import ListMethod, Lookup
    from twinstore.testing.workspace import Workspace

__all__ = ["DecodingContract"]

# Five words, so that it would even pass for the shape of a time rule.
CONTENT: Final = "s3cr3t 1 2 3 4"
ALL: Final = ScheduleQueryOptions(include_deleted=True)


@dataclass(frozen=True, slots=True)
class Touch:
    """A call that must meet the broken row of an entity."""

    name: str
    entity: Entity
    call: Callable[[SchedulerStorage, str, StoredExamples], object]


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
    question: Lookup | ListMethod,
    storage: SchedulerStorage,
    tenant: str,
    one_of_each: StoredExamples,
) -> object:
    """Ask a repository for the row of the one_of_each."""
    return question(getattr(storage, item.repository), tenant, one_of_each.value(item.entity))


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


def snapshot_id(one_of_each: StoredExamples) -> str:
    """Return the id of the snapshot."""
    return one_of_each.snapshot.snapshot_id or ""


class DecodingContract(Contract):
    """Reads never skip a broken row, and writes never build on one."""

    @pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: f"{touch.entity.name}-{touch.name}")
    def test_a_broken_row_is_named_without_its_content_and_left_alone(
        self, workspace: Workspace, touch: Touch
    ) -> None:
        one_of_each = store_one_of_each(workspace)
        key = next(key for entity, key in one_of_each.keys if entity is touch.entity)
        workspace.probe.poison(touch.entity, key, CONTENT)
        before = one_of_each.stored(workspace)
        with pytest.raises(DocumentDecodeError) as problem:
            touch.call(workspace.storage, workspace.tenant, one_of_each)
        assert problem.value.entity == touch.entity.name
        assert problem.value.key is not None
        assert problem.value.key in problem.value.message
        assert str(key[-1]) in problem.value.key
        assert CONTENT not in problem.value.message
        assert "s3cr3t" not in problem.value.message
        assert one_of_each.stored(workspace) == before

    def test_a_broken_row_is_met_by_the_lists_over_all_tenants(self, isolated_workspace: Workspace) -> None:
        one_of_each = store_one_of_each(isolated_workspace)
        run = isolated_workspace.storage.runs.create(isolated_workspace.run("pending"))
        isolated_workspace.probe.poison(SCHEDULES, (one_of_each.schedule.id,), CONTENT)
        isolated_workspace.probe.poison(RUNS, (run.id,), CONTENT)
        with pytest.raises(DocumentDecodeError):
            isolated_workspace.storage.schedules.get_due_schedules(at(99_999))
        with pytest.raises(DocumentDecodeError):
            isolated_workspace.storage.runs.list_by_state(RunState.PLANNING)
        with pytest.raises(DocumentDecodeError):
            isolated_workspace.storage.runs.get_pending_runs(isolated_workspace.tenant)

    def test_the_rows_beside_a_broken_one_can_be_read(self, workspace: Workspace) -> None:
        runs = [workspace.storage.runs.create(workspace.run(str(n), created_at=at(n))) for n in range(3)]
        workspace.probe.poison(RUNS, (runs[0].id,), CONTENT)
        page = workspace.storage.runs.list(workspace.tenant, RunQueryOptions(limit=1))
        assert tuple(page) == (runs[2],)
        later = RunQueryOptions(created_after=at(0))
        assert tuple(workspace.storage.runs.list(workspace.tenant, later)) == (runs[2], runs[1])

    def test_a_broken_row_can_still_be_purged_or_deleted(self, workspace: Workspace) -> None:
        one_of_each = store_one_of_each(workspace)
        workspace.probe.poison(RUNS, (one_of_each.run.id,), CONTENT)
        workspace.probe.poison(IMPACT_SNAPSHOTS, (snapshot_id(one_of_each),), CONTENT)
        assert workspace.storage.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
        assert workspace.storage.impact_snapshots.delete(workspace.tenant, snapshot_id(one_of_each)) is True

    @pytest.mark.parametrize("example", SCHEDULER_EXAMPLES.examples, ids=lambda example: example.name)
    def test_a_broken_row_is_replaced_as_a_whole_or_left_alone(
        self, workspace: Workspace, example: Example[SchedulerSession]
    ) -> None:
        session, tenant = workspace.storage.unbound, workspace.tenant
        model = SCHEDULER_EXAMPLES.store_small(session, tenant, workspace.id("a"), example.entity)
        other, key = example.rich(tenant, workspace.id("a")), example.key(tenant, model)
        workspace.probe.poison(example.entity, key, CONTENT)
        broken = workspace.probe.read(example.entity, key)
        try:
            example.store(session, tenant, other)
        except (DocumentDecodeError, DuplicateError):
            assert workspace.probe.read(example.entity, key) == broken
        else:
            assert example.found(session, tenant, other) == other

    def test_a_broken_row_of_another_tenant_disturbs_nobody(self, workspace: Workspace) -> None:
        one_of_each = store_one_of_each(workspace)
        theirs = store_one_of_each(workspace.elsewhere)
        for entity, key in theirs.keys:
            workspace.probe.poison(entity, key, CONTENT)
        for touch in TOUCHES:
            if touch.name in {"get", "get_required", "list", "list deleted"}:
                touch.call(workspace.storage, workspace.tenant, one_of_each)
        assert workspace.storage.runs.update(moved(one_of_each.run, one_of_each.run.state)) is True
