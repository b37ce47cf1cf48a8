"""What can still be done with and beside a broken row of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import DocumentDecodeError
from twinstore.scheduler.catalog import (
    IMPACT_SNAPSHOTS,
    RUNS,
    SCHEDULES,
)
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.testing.instants import at
from twinstore.testing.scheduler import calls
from twinstore.testing.scheduler.calls import StoredExamples
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["BrokenRowContract"]

# Five words, so that it would even pass for the shape of a time rule.
CONTENT: Final = "s3cr3t 1 2 3 4"


def snapshot_id(one_of_each: StoredExamples) -> str:
    """Return the id of the snapshot."""
    return one_of_each.snapshot.snapshot_id or ""


class BrokenRowContract(SchedulerCases):
    """Rows beside a broken one, lists over all tenants, removal of a broken row."""

    def test_a_broken_row_is_met_by_the_lists_over_all_tenants(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        one_of_each = calls.store_one_of_each(isolated_workspace)
        run = isolated_workspace.storage.runs.create(isolated_workspace.run("pending"))
        isolated_workspace.probe.poison(SCHEDULES, (one_of_each.schedule.id,), CONTENT)
        isolated_workspace.probe.poison(RUNS, (run.id,), CONTENT)
        with pytest.raises(DocumentDecodeError):
            isolated_workspace.storage.schedules.get_due_schedules(at(99_999))
        with pytest.raises(DocumentDecodeError):
            isolated_workspace.storage.runs.list_by_state(RunState.PLANNING)
        with pytest.raises(DocumentDecodeError):
            isolated_workspace.storage.runs.get_pending_runs(isolated_workspace.tenant)

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
