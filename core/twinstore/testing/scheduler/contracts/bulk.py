"""What a scan reports of the rows of the scheduler, and what writing a range of them promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore import add_scheduler_memory_storage
from twinstore.bulk.unique_moves import UNIQUE_VALUE_TAKEN
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.testing.base import CopyContract, needs
from twinstore.testing.copying import copied
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule, moved
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerBulkContract", "SchedulerRangeWriterContract"]

EVERYTHING: Final = KeyRange()


class SchedulerBulkContract(SchedulerCases, capability="bulk"):
    """The instant by which each row expires, as a scan reports it, and names that move between rows."""

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
        assert (refused, reason.startswith(UNIQUE_VALUE_TAKEN)) == ((third,), True)
        assert workspace.id("mine") in reason
        stored = {item.id: item.name for item in source.schedules.list(tenant)}
        assert stored == {**names, first: "two", second: "one", workspace.id("mine"): "mine"}


class SchedulerRangeWriterContract(SchedulerCases, CopyContract, capability="bulk_target"):
    """Conflicts, refused rows, removed rows with their children, and life after a copy."""

    @needs("transactions")
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_other_content_is_a_conflict_and_overwritten_on_request(
        self, workspace: SchedulerWorkspace, *, overwrite: bool
    ) -> None:
        with add_scheduler_memory_storage({}) as memory:
            there = workspace.on(memory)
            theirs = [memory.schedules.upsert(there.schedule(name, updated_by="them")) for name in "abc"]
            mine = workspace.storage.schedules.upsert(workspace.schedule("b", updated_by="me"))
            result = copied(
                memory,
                workspace.storage,
                SCHEDULES,
                workspace.tenant,
                on_conflict="overwrite" if overwrite else "fail",
            )
        assert [(item.key, item.owner, item.overwritten) for item in result.conflicts] == [
            ((mine.id,), Tenant(workspace.tenant), overwrite)
        ]
        assert dict(result.written) == {workspace.tenant: 3 if overwrite else 2}
        expected: Schedule = theirs[1] if overwrite else mine
        assert workspace.storage.schedules.get(workspace.tenant, mine.id) == expected

    @needs("transactions")
    def test_an_append_only_row_is_never_overwritten(self, workspace: SchedulerWorkspace) -> None:
        mine = workspace.storage.audit.append(workspace.record("a", message="mine"))
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(workspace.record("a", message="theirs"))
            result = copied(memory, workspace.storage, AUDIT, workspace.tenant, on_conflict="overwrite")
        assert [item.overwritten for item in result.conflicts] == [False]
        assert dict(result.written) == {}
        assert workspace.storage.audit.get(workspace.tenant, mine.id) == mine

    @needs("transactions")
    def test_a_row_that_the_store_refuses_is_rejected_and_the_others_are_written(
        self, workspace: SchedulerWorkspace
    ) -> None:
        workspace.storage.schedules.upsert(workspace.schedule("mine", name="taken"))
        with add_scheduler_memory_storage({}) as memory:
            there = workspace.on(memory)
            for name in ("a", "taken", "z"):
                memory.schedules.upsert(there.schedule(name))
            result = copied(memory, workspace.storage, SCHEDULES, workspace.tenant)
        assert [item.record.key for item in result.rejected] == [(workspace.id("taken"),)]
        assert result.rejected[0].reason
        assert dict(result.written) == {workspace.tenant: 2}
        assert workspace.storage.schedules.get(workspace.tenant, workspace.id("z")) is not None

    @needs("transactions")
    def test_rows_are_removed_by_key_with_their_children(self, workspace: SchedulerWorkspace) -> None:
        kept, gone = (workspace.storage.schedules.upsert(workspace.schedule(name)) for name in "ab")
        with workspace.storage.bulk.writer(SCHEDULES) as writer:
            writer.remove([(gone.id,), (workspace.id("absent"),)])
            outcome = writer.flush()
            writer.commit()
        assert outcome.removed == 1
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (1, 1)
        assert workspace.storage.schedules.get(workspace.tenant, kept.id) == kept

    @needs("transactions")
    def test_an_imported_schedule_goes_on_like_any_other(self, workspace: SchedulerWorkspace) -> None:
        with add_scheduler_memory_storage({}) as memory:
            there = workspace.on(memory)
            schedule = memory.schedules.upsert(there.schedule())
            run = memory.runs.create(there.run(schedule_id=schedule.id))
            for entity in (SCHEDULES, TRIGGERS, RUNS):
                copied(memory, workspace.storage, entity, workspace.tenant)
        moved_run = moved(run, run.state, deltas=())
        assert workspace.storage.runs.update(moved_run) is True
        assert workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(9)) is True
        assert workspace.storage.triggers.get_required(workspace.tenant, schedule.id).enabled is False
        assert workspace.storage.run_summary_service.rebuild(workspace.tenant, schedule.id) is not None
        assert workspace.count(RUN_SUMMARIES) == 1
