"""What the query of due schedules must answer; it looks at all tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.scheduler.schedules import Schedule
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["DueScheduleContract"]

HOUR = 3600


def stored(workspace: SchedulerWorkspace, name: str, /, **changes: object) -> Schedule:
    """Store a schedule that is due at 15:00 unless its rule is changed."""
    return workspace.storage.schedules.upsert(workspace.schedule(name, **changes))


class DueScheduleContract(SchedulerCases):
    """Due: enabled, not deleted, and its instant reached."""

    def test_nothing_is_due_without_schedules(self, isolated_workspace: SchedulerWorkspace) -> None:
        assert isolated_workspace.storage.schedules.get_due_schedules(at()).items == ()

    def test_a_schedule_is_due_from_its_very_instant(self, isolated_workspace: SchedulerWorkspace) -> None:
        schedule = stored(isolated_workspace, "a")
        due = isolated_workspace.storage.triggers.get_required(
            isolated_workspace.tenant, schedule.id
        ).next_fire_at
        assert due is not None
        just_before = due.replace(minute=59, hour=due.hour - 1, second=59, microsecond=999_000)
        assert isolated_workspace.storage.schedules.get_due_schedules(just_before).items == ()
        assert isolated_workspace.storage.schedules.get_due_schedules(due).items == (schedule,)

    def test_due_schedules_of_all_tenants_come_in_order(self, isolated_workspace: SchedulerWorkspace) -> None:
        rows: list[tuple[datetime | None, str, str, Schedule]] = []
        for workspace in sorted(
            [isolated_workspace, isolated_workspace.elsewhere],
            key=lambda workspace: workspace.tenant,
            reverse=True,
        ):
            for name, cron in (("b", "0 * * * *"), ("late", "30 15 * * *"), ("a", "0 * * * *")):
                schedule = stored(workspace, name, when_cron=cron)
                trigger = workspace.storage.triggers.get_required(workspace.tenant, schedule.id)
                rows.append((trigger.next_fire_at, trigger.tenant_id, trigger.id, schedule))
        due = isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)).items
        assert due == tuple(row[3] for row in sorted(rows, key=lambda row: row[:3]))
        for limit in (1, 3, 6, 7):
            assert (
                isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR), limit=limit).items
                == due[:limit]
            )

    def test_disabled_and_deleted_schedules_are_never_due(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        stored(isolated_workspace, "disabled", enabled=False)
        gone = stored(isolated_workspace, "gone")
        kept = stored(isolated_workspace, "kept")
        assert isolated_workspace.storage.schedules.soft_delete(
            isolated_workspace.tenant, gone.id, "eve", at(1)
        )
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)).items == (kept,)
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR), limit=1).items == (kept,)

    def test_a_schedule_that_may_not_fire_is_not_due_whatever_its_trigger_says(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        kept, disabled, deleted = (
            stored(isolated_workspace, name) for name in ("kept", "disabled", "deleted")
        )
        # Only a copy can bring a pair out of step.
        isolated_workspace.probe.alter(SCHEDULES, (disabled.id,), {"enabled": False})
        deletion = {"enabled": False, "deletedAt": at(1), "deletedBy": "eve"}
        isolated_workspace.probe.alter(SCHEDULES, (deleted.id,), deletion)
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)).items == (kept,)
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR), limit=1).items == (kept,)

    def test_asking_changes_nothing(self, isolated_workspace: SchedulerWorkspace) -> None:
        schedule = stored(isolated_workspace, "a")
        before = isolated_workspace.storage.triggers.get(isolated_workspace.tenant, schedule.id)
        first = isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR))
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)) == first
        assert isolated_workspace.storage.triggers.get(isolated_workspace.tenant, schedule.id) == before

    @pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1", None])
    def test_due_schedules_are_not_listed_with_a_limit_below_one(
        self, workspace: SchedulerWorkspace, limit: int
    ) -> None:
        with pytest.raises(ValidationError, match="limit"):
            workspace.storage.schedules.get_due_schedules(at(), limit=limit)
