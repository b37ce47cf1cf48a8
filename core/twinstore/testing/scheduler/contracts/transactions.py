"""What units of work over the repositories of the scheduler promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import (
    ValidationError,
)
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scalars import LATEST
from twinstore.testing.scheduler import calls
from twinstore.testing.scheduler.builders import make_run_summary, moved
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerTransactionContract"]


class SchedulerTransactionContract(SchedulerCases):
    """Changes, removals, reads and races of rows that depend on each other."""

    @needs("transactions")
    def test_changes_and_removals_are_rolled_back_too(self, workspace: SchedulerWorkspace) -> None:
        one_of_each = calls.store_one_of_each(workspace)
        before = one_of_each.stored(workspace)

        def change_everything(unit: SchedulerSession) -> None:
            unit.schedules.soft_delete(workspace.tenant, one_of_each.schedule.id, "eve", at(50))
            unit.schedules.restore(workspace.tenant, one_of_each.gone.id, "eve", at(50), enabled=True)
            unit.triggers.recalculate(workspace.tenant, one_of_each.schedule.id, at(60))
            assert unit.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
            assert unit.impact_snapshots.delete(workspace.tenant, one_of_each.snapshot.snapshot_id or "")
            unit.run_summaries.upsert(make_run_summary(workspace.tenant, one_of_each.schedule.id))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            workspace.commit(change_everything)
        assert one_of_each.stored(workspace) == before

    @needs("transactions")
    def test_reads_in_a_unit_see_its_writes(self, workspace: SchedulerWorkspace) -> None:
        with workspace.storage.transaction(workspace.tenant) as unit:
            for number in range(3):
                unit.runs.create(workspace.run(str(number), created_at=at(number)))
            assert (
                len(unit.runs.list(workspace.tenant))
                == len(unit.runs.get_pending_runs(workspace.tenant))
                == 3
            )
            run = unit.runs.get_required(workspace.tenant, workspace.id("0"))
            assert unit.runs.update(moved(run, RunState.CANCELLED))
            assert unit.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
            assert unit.runs.get(workspace.tenant, run.id) is None
            schedule = unit.schedules.upsert(workspace.schedule())
            assert unit.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(5))
            assert unit.triggers.get_required(workspace.tenant, schedule.id).enabled is False
            assert tuple(unit.schedules.list(workspace.tenant)) == ()
        assert len(workspace.storage.runs.list(workspace.tenant)) == 2

    @needs("transactions")
    def test_a_write_of_a_schedule_that_can_have_no_trigger_fails_as_a_whole(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = workspace.storage.schedules.upsert(workspace.schedule())
        trigger = workspace.storage.triggers.get_required(workspace.tenant, schedule.id)
        endless = schedule.evolve(name="other", when_cron="1 1 1 1 *", updated_at=LATEST)
        with workspace.storage.transaction(workspace.tenant) as unit:
            with pytest.raises(ValidationError, match="no next instant"):
                unit.schedules.upsert(endless)
            assert unit.schedules.get(workspace.tenant, schedule.id) == schedule
        assert workspace.storage.schedules.get(workspace.tenant, schedule.id) == schedule
        assert workspace.storage.triggers.get(workspace.tenant, schedule.id) == trigger

    @needs("transactions")
    def test_a_read_only_unit_reads_and_refuses_to_write(self, workspace: SchedulerWorkspace) -> None:
        one_of_each = calls.store_one_of_each(workspace)
        with workspace.storage.transaction(workspace.tenant, read_only=True) as unit:
            assert unit.runs.get(workspace.tenant, one_of_each.run.id) == one_of_each.run
            assert tuple(unit.schedules.list(workspace.tenant)) == (one_of_each.schedule,)
            with pytest.raises(ValidationError, match="read-only"):
                unit.runs.create(workspace.run("new"))
            with pytest.raises(ValidationError, match="read-only"):
                unit.schedules.soft_delete(workspace.tenant, one_of_each.schedule.id, "eve", at(99))
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("new")) is None

    @needs("transactions")
    def test_rival_units_lose_no_update(self, workspace: SchedulerWorkspace) -> None:
        schedule_id = workspace.id("s")

        def grow(stored: RunSummary | None) -> RunSummary:
            instant = at() if stored is None else stored.updated_at
            return make_run_summary(
                workspace.tenant, schedule_id, updated_at=instant.replace(year=instant.year + 1)
            )

        def work(storage: SchedulerStorage, number: int) -> None:
            def both(unit: SchedulerSession) -> None:
                unit.runs.create(workspace.run(str(number)))
                unit.run_summaries.modify(workspace.tenant, schedule_id, grow)

            storage.transact(both, tenant_id=workspace.tenant, attempts=30)

        results = workspace.race(work, range(6))
        assert outcomes(results) == {"ok": 6}
        assert workspace.count(RUNS) == 6
        stored = workspace.storage.run_summaries.get_required(workspace.tenant, schedule_id)
        assert stored.updated_at == at().replace(year=at().year + 6)

    @needs("transactions")
    def test_of_two_units_moving_one_run_only_one_commits(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        states = [RunState.QUEUED, RunState.CANCELLED, RunState.ERROR, RunState.COMPLETED]

        def move(storage: SchedulerStorage, state: RunState) -> None:
            def both(unit: SchedulerSession) -> None:
                unit.runs.update(moved(run, state), expected_state=RunState.PLANNING)
                unit.audit.append(workspace.record(state.value))

            storage.transact(both, tenant_id=workspace.tenant, attempts=30)

        results = workspace.race(move, states)
        assert outcomes(results) == {"ConflictError": 3, "ok": 1}
        final = workspace.storage.runs.get_required(workspace.tenant, run.id)
        records = workspace.storage.audit.list(workspace.tenant)
        assert [record.id for record in records] == [workspace.id(final.state.value)]
