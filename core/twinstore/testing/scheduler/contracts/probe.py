"""Whether the probe sees and changes rows of the scheduler as it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState, ScheduleMode
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import moved
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerProbeContract"]


class SchedulerProbeContract(SchedulerCases):
    """A stamp changes with every write; the probe alters what it is told."""

    def test_a_stamp_changes_with_a_write_and_with_nothing_else(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        first = workspace.stamp(RUNS, (run.id,))
        workspace.storage.runs.create(workspace.run("other"))
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run
        assert workspace.stamp(RUNS, (run.id,)) == first
        assert workspace.storage.runs.update(moved(run, RunState.QUEUED))
        assert workspace.stamp(RUNS, (run.id,)) != first

    def test_the_probe_alters_what_it_is_told_and_nothing_else(self, workspace: SchedulerWorkspace) -> None:
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
