"""What still works with a broken row of the scheduler and its neighbours, and that the probe makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import DocumentDecodeError, DuplicateError
from twinstore.scheduler.catalog import EXECUTION_LOGS, IMPACT_SNAPSHOTS, RUNS, SCHEDULES, TRIGGERS, WORKERS
from twinstore.scheduler.enums import RunState, ScheduleMode
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.triggers import fired_run_id
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler import calls
from twinstore.testing.scheduler.builders import moved
from twinstore.testing.scheduler.calls import StoredExamples
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.examples import make_worker

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.scheduler.runs import Run
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["BrokenRowContract", "SchedulerProbeContract"]


class SchedulerProbeContract(SchedulerCases):
    """A stamp changes with every write; the probe alters exactly the requested values."""

    def test_a_stamp_changes_with_a_write_and_with_nothing_else(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        first = workspace.stamp(RUNS, (run.id,))
        workspace.storage.runs.create(workspace.run("other"))
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run
        assert workspace.stamp(RUNS, (run.id,)) == first
        assert workspace.storage.runs.update(moved(run, RunState.QUEUED))
        assert workspace.stamp(RUNS, (run.id,)) != first

    def test_the_probe_alters_only_the_given_values(self, workspace: SchedulerWorkspace) -> None:
        schedule = workspace.storage.schedules.upsert(workspace.schedule())
        deletion = {"deletedAt": at(9), "deletedBy": "eve"}
        workspace.probe.alter(
            SCHEDULES, (schedule.id,), {"enabled": False, "mode": "content-refresh", **deletion}
        )
        found = workspace.storage.schedules.get(workspace.tenant, schedule.id, include_deleted=True)
        assert found == schedule.evolve(enabled=False, mode=ScheduleMode.CONTENT_REFRESH)
        row = workspace.probe.read(SCHEDULES, (schedule.id,))
        assert row is not None
        assert dict(row.markers) == deletion


# Five words, so that it would even pass for the shape of a time rule.
CONTENT: Final = "s3cr3t 1 2 3 4"


def named(page: Page[object]) -> list[tuple[str, str | None, str]]:
    """Return what a page passed over: entity, tenant and key."""
    return [(row.entity, row.tenant, row.key) for row in page.undecodable]


def snapshot_id(one_of_each: StoredExamples) -> str:
    """Return the id of the snapshot."""
    return one_of_each.snapshot.snapshot_id or ""


class BrokenRowContract(SchedulerCases):
    """Rows next to a broken one, lists over all tenants, removal of a broken row."""

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

    def test_the_rows_next_to_a_broken_one_can_be_read(self, workspace: SchedulerWorkspace) -> None:
        runs = [workspace.storage.runs.create(workspace.run(str(n), created_at=at(n))) for n in range(3)]
        workspace.probe.poison(RUNS, (runs[0].id,), CONTENT)
        page = workspace.storage.runs.list(workspace.tenant, RunQueryOptions(limit=1))
        assert tuple(page) == (runs[2],)
        later = RunQueryOptions(created_after=at(0))
        assert tuple(workspace.storage.runs.list(workspace.tenant, later)) == (runs[2], runs[1])

    def test_an_upsert_replaces_a_broken_schedule(self, workspace: SchedulerWorkspace) -> None:
        stored = workspace.storage.schedules.upsert(workspace.schedule("a"))
        workspace.probe.poison(SCHEDULES, (stored.id,), CONTENT)
        # The expected state of a row that cannot be decoded is unknown.
        with pytest.raises(DocumentDecodeError):
            workspace.storage.schedules.upsert(stored, expected_updated_at=stored.updated_at)
        repaired = stored.evolve(when_cron="5 5 * * *", updated_at=at(99))
        assert workspace.storage.schedules.upsert(repaired) == repaired
        assert workspace.storage.schedules.get(workspace.tenant, stored.id) == repaired
        trigger = workspace.storage.triggers.get_required(workspace.tenant, stored.id)
        assert trigger.when_cron == "5 5 * * *"

    def test_the_broken_rows_of_another_tenant_are_not_replaced(self, workspace: SchedulerWorkspace) -> None:
        there = workspace.elsewhere
        theirs = there.storage.schedules.upsert(there.schedule("a"))
        worker = there.storage.workers.register(make_worker(there.tenant, there.id("w")))
        there.probe.poison(SCHEDULES, (theirs.id,), CONTENT)
        there.probe.poison(WORKERS, (worker.id,), CONTENT)
        before = there.probe.read(SCHEDULES, (theirs.id,)), there.probe.read(WORKERS, (worker.id,))
        with pytest.raises(DuplicateError):
            workspace.storage.schedules.upsert(theirs.evolve(tenant_id=workspace.tenant))
        with pytest.raises(DuplicateError):
            workspace.storage.workers.register(worker.evolve(tenant_id=workspace.tenant))
        assert not workspace.storage.schedules.soft_delete(workspace.tenant, theirs.id, "me", at(99))
        assert (there.probe.read(SCHEDULES, (theirs.id,)), there.probe.read(WORKERS, (worker.id,))) == before

    def test_a_worker_registers_again_over_its_broken_row(self, workspace: SchedulerWorkspace) -> None:
        worker = workspace.storage.workers.register(make_worker(workspace.tenant, workspace.id("w")))
        workspace.probe.poison(WORKERS, (worker.id,), CONTENT)
        assert workspace.storage.workers.register(worker) == worker
        assert workspace.storage.workers.get(worker.id) == worker

    def test_a_broken_schedule_is_soft_deleted_as_it_is(self, isolated_workspace: SchedulerWorkspace) -> None:
        here = isolated_workspace
        schedules = here.storage.schedules
        broken, other = schedules.upsert(here.schedule("a")), schedules.upsert(here.schedule("b"))
        here.probe.poison(SCHEDULES, (broken.id,), CONTENT)
        with pytest.raises(DocumentDecodeError):
            schedules.list(here.tenant)
        assert schedules.soft_delete(here.tenant, broken.id, "operator", at(99)) is True
        assert schedules.soft_delete(here.tenant, broken.id, "operator", at(99)) is False
        assert tuple(schedules.list(here.tenant)) == (other,)
        # Its name is free again, it no longer fires, and its content remains for an operator to repair.
        again = schedules.upsert(here.schedule("c").evolve(name=broken.name))
        assert {item.id for item in schedules.get_due_schedules(at(99_999))} == {other.id, again.id}
        row = here.probe.read(SCHEDULES, (broken.id,))
        assert row is not None
        assert row.markers == {"deletedAt": at(99), "deletedBy": "operator"}
        assert (row.document["enabled"], row.document["name"]) == (False, broken.name)
        trigger = here.storage.triggers.get_required(here.tenant, broken.id)
        assert (trigger.enabled, trigger.next_fire_at) == (False, None)

    @needs("transactions")
    def test_a_broken_schedule_is_soft_deleted_with_its_broken_trigger_in_a_unit(
        self, workspace: SchedulerWorkspace
    ) -> None:
        stored = workspace.storage.schedules.upsert(workspace.schedule("a"))
        trigger = workspace.storage.triggers.get_required(workspace.tenant, stored.id)
        workspace.probe.poison(SCHEDULES, (stored.id,), CONTENT)
        workspace.probe.poison(TRIGGERS, (trigger.id,), CONTENT)
        with workspace.storage.transaction(workspace.tenant) as unit:
            assert unit.schedules.soft_delete(workspace.tenant, stored.id, "operator", at(99)) is True
        row = workspace.probe.read(TRIGGERS, (trigger.id,))
        assert row is not None
        assert (row.document["enabled"], "nextFireAt" in row.document) == (False, False)

    @pytest.mark.parametrize("write", ["upsert", "soft_delete", "restore", "recalculate"])
    def test_a_broken_trigger_is_recreated_by_every_write_of_its_schedule(
        self, workspace: SchedulerWorkspace, write: str
    ) -> None:
        tenant, schedules = workspace.tenant, workspace.storage.schedules
        stored = schedules.upsert(workspace.schedule("a"))
        if write == "restore":
            schedules.soft_delete(tenant, stored.id, "me", at(50))
        trigger = workspace.storage.triggers.get_required(tenant, stored.id)
        workspace.probe.poison(TRIGGERS, (trigger.id,), CONTENT)
        with pytest.raises(DocumentDecodeError):
            workspace.storage.triggers.get(tenant, stored.id)
        if write == "upsert":
            schedules.upsert(stored)
        elif write == "soft_delete":
            assert schedules.soft_delete(tenant, stored.id, "me", at(99)) is True
        elif write == "restore":
            assert schedules.restore(tenant, stored.id, "me", at(99), enabled=True) is True
        else:
            workspace.storage.triggers.recalculate(tenant, stored.id, at(99))
        again = workspace.storage.triggers.get_required(tenant, stored.id)
        assert (again.id, again.enabled) == (trigger.id, write != "soft_delete")

    def test_a_broken_run_keeps_no_schedule_from_firing(self, workspace: SchedulerWorkspace) -> None:
        stored = workspace.storage.schedules.upsert(workspace.schedule("a"))
        trigger = workspace.storage.triggers.get_required(workspace.tenant, stored.id)
        assert trigger.next_fire_at is not None
        taken = fired_run_id(workspace.tenant, stored.id, trigger.next_fire_at)
        workspace.storage.runs.create(workspace.run("x").evolve(id=taken))
        workspace.probe.poison(RUNS, (taken,), CONTENT)
        fired = workspace.storage.triggers.fire(workspace.tenant, stored.id, trigger.next_fire_at)
        assert fired is not None
        assert fired.created
        assert fired.run.id != taken

    def test_a_zone_that_this_host_does_not_know_stops_its_schedule_alone(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        here = isolated_workspace
        unknown, known = (here.storage.schedules.upsert(here.schedule(name)) for name in ("a", "b"))
        trigger = here.storage.triggers.get_required(here.tenant, unknown.id)
        here.probe.alter(SCHEDULES, (unknown.id,), {"timezone": "US/Pacific-New"})
        here.probe.alter(TRIGGERS, (trigger.id,), {"timezone": "US/Pacific-New"})
        due = here.storage.schedules.get_due_schedules(at(99_999))
        assert due.items == (known,)
        assert {row.tenant for row in due.undecodable} == {here.tenant}
        assert all("timezone" in row.reason for row in due.undecodable)
        assert here.storage.triggers.fire(here.tenant, known.id, at(99_999)) is not None
        with pytest.raises(DocumentDecodeError, match="timezone"):
            here.storage.triggers.fire(here.tenant, unknown.id, at(99_999))
        repaired = unknown.evolve(timezone="America/Los_Angeles", updated_at=at(99))
        here.storage.schedules.upsert(repaired)
        assert here.storage.triggers.fire(here.tenant, unknown.id, at(99_999)) is not None

    def test_a_parent_goes_with_its_broken_children(self, workspace: SchedulerWorkspace) -> None:
        one_of_each = calls.store_one_of_each(workspace)
        workspace.probe.poison(RUNS, (one_of_each.run.id,), CONTENT)
        entry = (one_of_each.run.id, one_of_each.entry.sequence or 0)
        workspace.probe.poison(EXECUTION_LOGS, entry, CONTENT)
        assert workspace.storage.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
        assert workspace.probe.read(EXECUTION_LOGS, entry) is None

    def test_a_broken_row_can_still_be_purged_or_deleted(self, workspace: SchedulerWorkspace) -> None:
        one_of_each = calls.store_one_of_each(workspace)
        workspace.probe.poison(RUNS, (one_of_each.run.id,), CONTENT)
        workspace.probe.poison(IMPACT_SNAPSHOTS, (snapshot_id(one_of_each),), CONTENT)
        assert workspace.storage.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
        assert workspace.storage.impact_snapshots.delete(workspace.tenant, snapshot_id(one_of_each)) is True
