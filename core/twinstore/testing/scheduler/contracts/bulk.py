"""What a scan tells of the rows of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from twinstore.bulk.unique_moves import HELD
from twinstore.catalog.keys import KeyRange
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUNS, SCHEDULES
from twinstore.testing.base import needs
from twinstore.testing.copying import copied
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

EVERYTHING: Final = KeyRange()

__all__ = ["SchedulerBulkContract"]


class SchedulerBulkContract(SchedulerCases, capability="bulk"):
    """The instant by which each row expires, as a scan tells it, and names that move between rows."""

    def test_the_instant_of_retention_is_scanned(self, workspace: SchedulerWorkspace) -> None:
        self.populate(workspace)
        for entity, expected in ((RUNS, {None, at(5)}), (IMPACT_SNAPSHOTS, {at(0.123)}), (AUDIT, {None})):
            with workspace.storage.bulk.view() as view:
                batches = view.rows(entity, EVERYTHING, tenant_id=workspace.tenant)
                assert {row.expires for batch in batches for row in batch} == expected

    @needs("transactions")
    def test_names_that_move_between_rows_are_written_together(self, workspace: SchedulerWorkspace) -> None:
        tenant, source = workspace.tenant, workspace.storage
        first, second, third = (workspace.id(name) for name in "abc")
        names = {first: "one", second: "two", third: "three"}
        moved = {first: "two", second: "one", third: "mine"}
        with self.in_memory() as storage:
            memory = cast("SchedulerStorage", storage)
            for key, name in names.items():
                memory.schedules.upsert(make_schedule(tenant, key, name=name))
            copied(memory, source, SCHEDULES, tenant)
            source.schedules.upsert(make_schedule(tenant, workspace.id("mine"), name="mine"))
            for key in moved:
                memory.schedules.upsert(make_schedule(tenant, key, name=f"on the way {key}"))
            for key, name in moved.items():
                memory.schedules.upsert(make_schedule(tenant, key, name=name))
            outcome = copied(memory, source, SCHEDULES, tenant, on_conflict="overwrite")
        assert dict(outcome.written) == {tenant: 2}
        assert {item.key for item in outcome.conflicts} == {(first,), (second,)}
        ((refused, reason),) = [(item.record.key, item.reason) for item in outcome.rejected]
        assert (refused, reason.startswith(HELD)) == ((third,), True)
        assert workspace.id("mine") in reason
        stored = {item.id: item.name for item in source.schedules.list(tenant)}
        assert stored == {**names, first: "two", second: "one", workspace.id("mine"): "mine"}
