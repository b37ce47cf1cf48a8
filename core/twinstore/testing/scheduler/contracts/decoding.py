"""What can still be done with and beside a broken row of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import DocumentDecodeError
from twinstore.scheduler.catalog import (
    IMPACT_SNAPSHOTS,
    RUNS,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.testing.instants import at
from twinstore.testing.scheduler import calls
from twinstore.testing.scheduler.calls import StoredExamples
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.paging import Page
    from twinstore.scheduler.runs import Run
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["BrokenRowContract"]

# Five words, so that it would even pass for the shape of a time rule.
CONTENT: Final = "s3cr3t 1 2 3 4"


def named(page: Page[object]) -> list[tuple[str, str | None, str]]:
    """Return what a page passed over: entity, tenant and key."""
    return [(row.entity, row.tenant, row.key) for row in page.undecodable]


def snapshot_id(one_of_each: StoredExamples) -> str:
    """Return the id of the snapshot."""
    return one_of_each.snapshot.snapshot_id or ""


class BrokenRowContract(SchedulerCases):
    """Rows beside a broken one, lists over all tenants, removal of a broken row."""

    def test_lists_over_all_tenants_pass_over_a_broken_row_and_name_it(
        self, isolated_workspace: SchedulerWorkspace, caplog: pytest.LogCaptureFixture
    ) -> None:
        here, there = isolated_workspace, isolated_workspace.elsewhere
        one_of_each = calls.store_one_of_each(here)
        run = here.storage.runs.create(here.run("pending"))
        other = there.storage.runs.create(there.run("pending"))
        due = there.storage.schedules.upsert(there.schedule("due"))
        here.probe.poison(SCHEDULES, (one_of_each.schedule.id,), CONTENT)
        here.probe.poison(RUNS, (run.id,), CONTENT)
        reasons: list[str] = []
        for _ in range(2):
            schedules = here.storage.schedules.get_due_schedules(at(99_999))
            assert schedules.items == (due,)
            assert named(schedules) == [("schedules", here.tenant, one_of_each.schedule.id)]
            runs = here.storage.runs.list_by_state(RunState.PLANNING)
            assert other in runs.items
            assert named(runs) == [("runs", here.tenant, run.id)]
            reasons += [row.reason for row in (*schedules.undecodable, *runs.undecodable)]
        # Each is logged once, however often it is passed over; a value of it nowhere.
        logged = [record.getMessage() for record in caplog.records if record.name == "twinstore.undecodable"]
        assert (len([text for text in logged if run.id in text]), len(logged)) == (1, 2)
        assert [text for text in (*reasons, *logged) if not text or CONTENT in text] == []

    def test_a_broken_row_is_met_by_the_lists_of_its_tenant(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run("pending"))
        workspace.probe.poison(RUNS, (run.id,), CONTENT)
        with pytest.raises(DocumentDecodeError):
            workspace.storage.runs.get_pending_runs(workspace.tenant)

    def test_pages_over_all_tenants_go_on_after_a_broken_row(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        here = isolated_workspace
        runs = [here.storage.runs.create(here.run(str(number), created_at=at(number))) for number in range(6)]
        for broken in (runs[1], runs[2], runs[4]):
            here.probe.poison(RUNS, (broken.id,), CONTENT)
        found: list[Run] = []
        passed: list[str] = []
        token: str | None = None
        while True:
            page = here.storage.runs.list_by_state(RunState.PLANNING, limit=2, page_token=token)
            assert len(page) + len(page.undecodable) <= 2
            found += list(page)
            passed += [row.key for row in page.undecodable]
            token = page.next_page_token
            if token is None:
                break
        assert found == [runs[0], runs[3], runs[5]]
        assert passed == [runs[1].id, runs[2].id, runs[4].id]

    def test_a_broken_trigger_delays_no_other_schedule(self, isolated_workspace: SchedulerWorkspace) -> None:
        here = isolated_workspace
        stored = [here.storage.schedules.upsert(here.schedule(name)) for name in ("a", "b", "c")]
        trigger = here.storage.triggers.get_required(here.tenant, stored[1].id)
        here.probe.poison(TRIGGERS, (trigger.id,), CONTENT)
        due = here.storage.schedules.get_due_schedules(at(99_999))
        assert sorted(schedule.id for schedule in due) == [stored[0].id, stored[2].id]
        assert named(due) == [("triggers", here.tenant, trigger.id)]

    def test_the_rows_beside_a_broken_one_can_be_read(self, workspace: SchedulerWorkspace) -> None:
        runs = [workspace.storage.runs.create(workspace.run(str(n), created_at=at(n))) for n in range(3)]
        workspace.probe.poison(RUNS, (runs[0].id,), CONTENT)
        page = workspace.storage.runs.list(workspace.tenant, RunQueryOptions(limit=1))
        assert tuple(page) == (runs[2],)
        later = RunQueryOptions(created_after=at(0))
        assert tuple(workspace.storage.runs.list(workspace.tenant, later)) == (runs[2], runs[1])

    def test_a_broken_row_can_still_be_purged_or_deleted(self, workspace: SchedulerWorkspace) -> None:
        one_of_each = calls.store_one_of_each(workspace)
        workspace.probe.poison(RUNS, (one_of_each.run.id,), CONTENT)
        workspace.probe.poison(IMPACT_SNAPSHOTS, (snapshot_id(one_of_each),), CONTENT)
        assert workspace.storage.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
        assert workspace.storage.impact_snapshots.delete(workspace.tenant, snapshot_id(one_of_each)) is True
