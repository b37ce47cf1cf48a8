"""Whether the probe of the test module sees what it is asked for: the other contracts believe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.base import Contract
from twinstore.testing.builders import at, moved
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.testing.workspace import Workspace

__all__ = ["ProbeContract"]


class ProbeContract(Contract):
    """Counts, stamps and changes past the repositories."""

    def test_the_probe_reads_counts_and_stamps_one_row_of_each_entity(self, workspace: Workspace) -> None:
        rows = SCHEDULER_EXAMPLES.store_each(workspace.storage.unbound, workspace.tenant, workspace.id("a"))
        for entity, key in rows.keys:
            assert workspace.probe.read(entity, key) is not None
            assert workspace.count(entity) >= 1
            assert workspace.elsewhere.count(entity) <= workspace.count(entity) - 1
            assert workspace.stamp(entity, key) == workspace.stamp(entity, key)

    def test_the_probe_sees_nothing_where_nothing_is(self, workspace: Workspace) -> None:
        for example in SCHEDULER_EXAMPLES.examples:
            key = example.key(workspace.tenant, example.small(workspace.tenant, workspace.id("absent")))
            assert workspace.probe.read(example.entity, key) is None
            assert workspace.probe.stamp(example.entity, key) is None

    def test_a_stamp_changes_with_a_write_and_with_nothing_else(self, workspace: Workspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        first = workspace.stamp(RUNS, (run.id,))
        workspace.storage.runs.create(workspace.run("other"))
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run
        assert workspace.stamp(RUNS, (run.id,)) == first
        assert workspace.storage.runs.update(moved(run, RunState.QUEUED))
        assert workspace.stamp(RUNS, (run.id,)) != first

    def test_the_probe_alters_what_it_is_told_and_nothing_else(self, workspace: Workspace) -> None:
        schedule = workspace.storage.schedules.upsert(workspace.schedule())
        deletion = {"deletedAt": at(9), "deletedBy": "eve"}
        workspace.probe.alter(
            SCHEDULES, (schedule.id,), {"enabled": False, "mode": "content-refresh", **deletion}
        )
        found = workspace.storage.schedules.get(workspace.tenant, schedule.id, include_deleted=True)
        assert found == schedule.evolve(enabled=False, mode="content-refresh")
        row = workspace.probe.read(SCHEDULES, (schedule.id,))
        assert row is not None
        assert dict(row.markers) == deletion
