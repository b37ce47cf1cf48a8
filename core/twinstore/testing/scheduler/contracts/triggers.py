"""What every repository of triggers must do, and how triggers follow their schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import NotFoundError, ValidationError
from twinstore.models.cron import next_fire
from twinstore.scheduler.catalog import TRIGGERS
from twinstore.scheduler.triggers import trigger_id
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_trigger
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.scheduler.triggers import Trigger
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["TriggerRepositoryContract"]

NEXT_HOUR: Final = datetime(2025, 10, 26, 15, 0, tzinfo=UTC)


def stored(workspace: SchedulerWorkspace, **changes: object) -> Schedule:
    """Store a schedule of the test."""
    return workspace.storage.schedules.upsert(workspace.schedule("a", **changes))


def trigger_of(workspace: SchedulerWorkspace, schedule: Schedule) -> Trigger:
    """Return the trigger of a schedule."""
    return workspace.storage.triggers.get_required(workspace.tenant, schedule.id)


class TriggerRepositoryContract(SchedulerCases):
    """One trigger per schedule, always in step with it."""

    def test_a_new_schedule_gets_its_trigger(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace, timezone="Europe/Vienna")
        expected = make_trigger(
            workspace.tenant, schedule.id, timezone="Europe/Vienna", next_fire_at=NEXT_HOUR, updated_at=at()
        )
        assert workspace.storage.triggers.get(workspace.tenant, schedule.id) == expected
        assert trigger_of(workspace, schedule).id == trigger_id(workspace.tenant, schedule.id)
        assert tuple(workspace.storage.triggers.list(workspace.tenant)) == (expected,)

    def test_an_unknown_trigger_is_absent(self, workspace: SchedulerWorkspace) -> None:
        triggers, missing = workspace.storage.triggers, workspace.id("missing")
        assert triggers.get(workspace.tenant, missing) is None
        assert tuple(triggers.list(workspace.tenant)) == ()
        with pytest.raises(NotFoundError) as absence:
            triggers.get_required(workspace.tenant, f" {missing} ")
        assert (absence.value.entity, absence.value.key) == ("triggers", missing)
        with pytest.raises(NotFoundError):
            triggers.recalculate(workspace.tenant, missing, at())
        assert workspace.count(TRIGGERS) == 0

    def test_a_disabled_schedule_has_a_trigger_without_instant(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace, enabled=False)
        trigger = trigger_of(workspace, schedule)
        assert (trigger.enabled, trigger.next_fire_at) == (False, None)

    def test_unrelated_fields_leave_the_trigger_alone(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        before = trigger_of(workspace, schedule)
        workspace.storage.schedules.upsert(schedule.evolve(name="other", updated_at=at(7200)))
        assert trigger_of(workspace, schedule) == before

    @pytest.mark.parametrize("change", [{"when_cron": "*/7 * * * *"}, {"timezone": "Asia/Kathmandu"}])
    def test_a_changed_time_rule_is_computed_from_the_change(
        self, workspace: SchedulerWorkspace, change: dict[str, str]
    ) -> None:
        schedule = stored(workspace)
        changed = workspace.storage.schedules.upsert(schedule.evolve(**{**change, "updated_at": at(7200)}))
        trigger = trigger_of(workspace, schedule)
        assert trigger.next_fire_at == next_fire(changed.when_cron, changed.timezone, at(7200))
        assert (trigger.when_cron, trigger.timezone) == (changed.when_cron, changed.timezone)
        assert (trigger.created_at, trigger.updated_at) == (at(), at(7200))

    def test_disabling_and_enabling_again_computes_a_new_instant(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        workspace.storage.schedules.upsert(schedule.evolve(enabled=False, updated_at=at(10)))
        assert trigger_of(workspace, schedule).next_fire_at is None
        workspace.storage.schedules.upsert(schedule.evolve(updated_at=at(86_400)))
        assert trigger_of(workspace, schedule).next_fire_at == NEXT_HOUR + timedelta(days=1)
        assert workspace.count(TRIGGERS) == 1

    def test_soft_delete_disables_and_restore_enables_the_trigger(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored(workspace)
        workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(10))
        trigger = trigger_of(workspace, schedule)
        assert (trigger.enabled, trigger.next_fire_at, trigger.updated_at) == (False, None, at(10))
        workspace.storage.schedules.restore(workspace.tenant, schedule.id, "zoe", at(20))
        assert trigger_of(workspace, schedule).enabled is False
        workspace.storage.schedules.upsert(schedule.evolve(updated_at=at(30)))
        assert trigger_of(workspace, schedule).next_fire_at == NEXT_HOUR

    def test_restoring_enabled_computes_a_new_instant(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(10))
        workspace.storage.schedules.restore(workspace.tenant, schedule.id, "zoe", at(86_400), enabled=True)
        assert trigger_of(workspace, schedule).next_fire_at == NEXT_HOUR + timedelta(days=1)

    def test_a_refused_write_of_a_schedule_leaves_the_trigger_alone(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored(workspace)
        before = trigger_of(workspace, schedule)
        with pytest.raises(ValidationError):
            workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(-1))
        assert trigger_of(workspace, schedule) == before

    def test_recalculate_moves_strictly_after_now(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        trigger = workspace.storage.triggers.recalculate(workspace.tenant, schedule.id, NEXT_HOUR)
        assert trigger.next_fire_at == NEXT_HOUR + timedelta(hours=1)
        assert trigger.updated_at == NEXT_HOUR
        assert trigger_of(workspace, schedule) == trigger
        assert workspace.storage.triggers.recalculate(workspace.tenant, schedule.id, NEXT_HOUR) == trigger

    def test_recalculate_looks_at_the_milliseconds_of_now(self, workspace: SchedulerWorkspace) -> None:
        schedule, just_before = stored(workspace), NEXT_HOUR - timedelta(milliseconds=1)
        trigger = workspace.storage.triggers.recalculate(workspace.tenant, schedule.id, just_before)
        assert (trigger.next_fire_at, trigger.updated_at) == (NEXT_HOUR, just_before)
        assert trigger_of(workspace, schedule) == trigger

    def test_recalculate_may_go_back_in_time(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        trigger = workspace.storage.triggers.recalculate(workspace.tenant, schedule.id, at(-86_400))
        assert trigger.next_fire_at == NEXT_HOUR - timedelta(days=1)

    def test_recalculate_of_a_disabled_or_deleted_schedule_gives_no_instant(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored(workspace, enabled=False)
        assert workspace.storage.triggers.recalculate(workspace.tenant, schedule.id, at(60)).enabled is False
        workspace.storage.schedules.upsert(schedule.evolve(enabled=True, updated_at=at(60)))
        workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(61))
        trigger = workspace.storage.triggers.recalculate(workspace.tenant, schedule.id, at(62))
        assert (trigger.enabled, trigger.next_fire_at, trigger.updated_at) == (False, None, at(62))

    def test_recalculate_without_a_further_instant_is_refused(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        before = trigger_of(workspace, schedule)
        with pytest.raises(ValidationError):
            workspace.storage.triggers.recalculate(
                workspace.tenant, schedule.id, at().replace(year=9999, month=12, day=31)
            )
        assert trigger_of(workspace, schedule) == before

    def test_recalculate_refuses_a_naive_instant(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        with pytest.raises(ValidationError, match="now"):
            workspace.storage.triggers.recalculate(workspace.tenant, schedule.id, at().replace(tzinfo=None))

    def test_triggers_without_instant_are_listed_first(self, workspace: SchedulerWorkspace) -> None:
        for name, cron, enabled in (
            ("a", "0 0 * * *", True),
            ("b", "* * * * *", True),
            ("c", "* * * * *", False),
        ):
            workspace.storage.schedules.upsert(workspace.schedule(name, when_cron=cron, enabled=enabled))
        listed = [trigger.schedule_id for trigger in workspace.storage.triggers.list(workspace.tenant)]
        assert listed == [workspace.id("c"), workspace.id("b"), workspace.id("a")]

    @needs("transactions")
    def test_rivals_recalculating_leave_one_consistent_trigger(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        results = workspace.race(
            lambda storage, hour: storage.triggers.recalculate(workspace.tenant, schedule.id, hour),
            [NEXT_HOUR + timedelta(hours=hour) for hour in range(6)],
        )
        assert outcomes(results) == {"ok": 6}
        assert trigger_of(workspace, schedule) in results
        assert workspace.count(TRIGGERS) == 1

    @needs("transactions")
    def test_rivals_changing_schedule_and_trigger_leave_them_in_step(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored(workspace)
        tenant, key = workspace.tenant, schedule.id
        changes: list[Callable[[SchedulerStorage], object]] = [
            lambda it: it.schedules.upsert(schedule.evolve(when_cron="*/5 * * * *", updated_at=at(1))),
            lambda it: it.triggers.recalculate(tenant, key, at(2)),
            lambda it: it.schedules.upsert(schedule.evolve(timezone="Asia/Kathmandu", updated_at=at(3))),
            lambda it: it.triggers.recalculate(tenant, key, at(4)),
            lambda it: it.schedules.soft_delete(tenant, key, "eve", at(5)),
        ]
        results = workspace.race(lambda storage, change: change(storage), changes)
        assert set(outcomes(results)) <= {"ok", "ConflictError", "ValidationError"}
        final = workspace.storage.schedules.get_required(tenant, key, include_deleted=True)
        trigger = trigger_of(workspace, schedule)
        assert (trigger.enabled, trigger.when_cron, trigger.timezone) == (
            final.enabled,
            final.when_cron,
            final.timezone,
        )
