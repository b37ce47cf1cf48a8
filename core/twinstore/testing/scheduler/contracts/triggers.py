"""What every repository of triggers must do, how triggers follow their schedules, and what firing does.

Firing makes one run for each instant, however many callers ask.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore.errors import (
    DuplicateError,
    LeaseLostError,
    NotFoundError,
    TenantScopeError,
    ValidationError,
)
from twinstore.models.cron import next_fire
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.schedules import ScheduleClaim
from twinstore.scheduler.triggers import FiredTrigger, trigger_id
from twinstore.testing.base import needs
from twinstore.testing.contracts.access_units import until_it_waits
from twinstore.testing.instants import at
from twinstore.testing.scalars import LATEST
from twinstore.testing.scheduler.builders import make_trigger
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.scheduler.triggers import Trigger
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["ClaimContract", "FiringContract", "TriggerRepositoryContract"]

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
    def test_concurrent_recalculations_leave_one_consistent_trigger(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored(workspace)
        results = workspace.race(
            lambda storage, hour: storage.triggers.recalculate(workspace.tenant, schedule.id, hour),
            [NEXT_HOUR + timedelta(hours=hour) for hour in range(6)],
        )
        assert outcomes(results) == {"ok": 6}
        assert trigger_of(workspace, schedule) in results
        assert workspace.count(TRIGGERS) == 1

    @needs("transactions")
    def test_concurrent_changes_of_schedule_and_trigger_leave_them_in_step(
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


HOUR = timedelta(hours=1)
CONCURRENCY = 4


def stored_hourly(workspace: SchedulerWorkspace, name: str = "hourly", /, **changes: object) -> Schedule:
    """Store a schedule that is due at every full hour unless its rule is changed."""
    return workspace.storage.schedules.upsert(workspace.schedule(name, **changes))


def due_of(workspace: SchedulerWorkspace, schedule: Schedule) -> datetime:
    """Return the instant that is due next."""
    due = trigger_of(workspace, schedule).next_fire_at
    assert due is not None
    return due


def fire(workspace: SchedulerWorkspace, schedule: Schedule, now: datetime) -> FiredTrigger | None:
    """Fire the trigger of a schedule."""
    return workspace.storage.triggers.fire(workspace.tenant, schedule.id, now)


def occupy_run_id(workspace: SchedulerWorkspace, schedule: Schedule) -> Run:
    """Store a run of another tenant under the id of the run that is due next; return it."""
    other, due = workspace.elsewhere, due_of(workspace, schedule)
    taken = f"run:{workspace.tenant}:{schedule.id}:{due:%Y%m%dT%H%M%SZ}"
    return other.storage.runs.create(other.run("taken").evolve(id=taken))


class FiringContract(SchedulerCases):
    """Firing: the run, the trigger, who wins, and what must not fire."""

    def test_firing_creates_the_run_of_the_instant_and_advances_the_trigger(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(workspace)
        before, now = trigger_of(workspace, schedule), due_of(workspace, schedule) + timedelta(seconds=7)
        due = due_of(workspace, schedule)
        fired = fire(workspace, schedule, now)
        assert fired is not None
        assert (fired.scheduled_for, fired.misfires, fired.created) == (due, 0, True)
        run = fired.run
        assert run.id == f"run:{workspace.tenant}:{schedule.id}:{due:%Y%m%dT%H%M%SZ}"
        assert (run.trigger, run.state, run.schedule_id) == (RunTrigger.CRON, RunState.PLANNING, schedule.id)
        assert (run.created_at, run.stats.candidates, run.error) == (now, 0, None)
        assert workspace.storage.runs.get_required(workspace.tenant, run.id) == run
        after = trigger_of(workspace, schedule)
        assert after == fired.trigger
        assert (after.last_fire_at, after.last_run_id, after.updated_at) == (due, run.id, now)
        assert (after.fire_count, after.misfire_count) == (before.fire_count + 1, before.misfire_count)
        assert after.next_fire_at == due + HOUR

    def test_an_instant_is_due_from_its_very_moment_and_fires_once(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(workspace)
        due = due_of(workspace, schedule)
        assert fire(workspace, schedule, due - timedelta(milliseconds=1)) is None
        assert fire(workspace, schedule, due) is not None
        again = trigger_of(workspace, schedule)
        assert fire(workspace, schedule, due) is None
        assert fire(workspace, schedule, due + HOUR - timedelta(milliseconds=1)) is None
        assert trigger_of(workspace, schedule) == again

    def test_instants_that_passed_are_counted_and_not_made_up_for(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(workspace)
        due = due_of(workspace, schedule)
        late = due + 3 * HOUR
        fired = fire(workspace, schedule, late)
        assert fired is not None
        assert (fired.scheduled_for, fired.misfires) == (due, 3)
        assert (fired.trigger.misfire_count, fired.trigger.fire_count) == (3, 1)
        assert fired.trigger.next_fire_at == late + HOUR
        assert fire(workspace, schedule, late) is None

    def test_misfires_are_counted_up_to_ten_thousand(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored_hourly(workspace, when_cron="* * * * *")
        fired = fire(workspace, schedule, due_of(workspace, schedule) + timedelta(days=8))
        assert fired is not None
        assert fired.misfires == fired.trigger.misfire_count == 10_000

    @needs("transactions")
    def test_of_many_callers_one_fires_in_every_round(self, workspace: SchedulerWorkspace) -> None:
        def act(storage: SchedulerStorage, schedule: Schedule) -> object:
            return storage.triggers.fire(workspace.tenant, schedule.id, at(99_999))

        def competitors(round_number: int) -> list[Schedule]:
            return [stored_hourly(workspace, f"race {round_number}")] * CONCURRENCY

        for round_number, results in enumerate(workspace.rounds(act, competitors)):
            fired = [result for result in results if result is not None]
            assert all(isinstance(result, FiredTrigger) for result in fired), fired
            assert len(fired) == 1
            runs = workspace.storage.runs.get_runs_by_schedule(
                workspace.tenant, workspace.id(f"race {round_number}"), 50
            )
            assert len(runs) == 1

    def test_a_run_of_this_instant_that_is_there_is_carried_and_the_trigger_advances(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(workspace)
        due = due_of(workspace, schedule)
        first = workspace.storage.runs.create(
            workspace.run("first").evolve(id=f"run:{workspace.tenant}:{schedule.id}:{due:%Y%m%dT%H%M%SZ}")
        )
        fired = fire(workspace, schedule, due)
        assert fired is not None
        assert (fired.run, fired.created, fired.trigger.last_run_id) == (first, False, first.id)
        assert fired.trigger.next_fire_at == due + HOUR
        assert workspace.storage.runs.get_required(workspace.tenant, first.id) == first

    def test_a_run_of_another_tenant_with_this_id_is_not_shown(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored_hourly(workspace)
        theirs = occupy_run_id(workspace, schedule)
        due = due_of(workspace, schedule)
        fired = fire(workspace, schedule, due)
        assert fired is not None
        assert (fired.created, fired.run.tenant_id, fired.run.schedule_id) == (
            True,
            workspace.tenant,
            schedule.id,
        )
        assert fired.run.id != theirs.id
        assert workspace.storage.runs.list(workspace.tenant).items == (fired.run,)
        assert workspace.storage.runs.get(workspace.tenant, theirs.id) is None
        assert workspace.elsewhere.storage.runs.get_required(theirs.tenant_id, theirs.id) == theirs

    def test_a_schedule_is_due_once_even_if_another_tenant_has_the_id_of_its_run(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(isolated_workspace)
        occupy_run_id(isolated_workspace, schedule)
        due = due_of(isolated_workspace, schedule)
        fired = fire(isolated_workspace, schedule, due + HOUR)
        assert fired is not None
        assert (fired.trigger.fire_count, fired.misfires, fired.trigger.next_fire_at) == (
            1,
            1,
            due + 2 * HOUR,
        )
        assert fired.trigger == trigger_of(isolated_workspace, schedule)
        assert fired.trigger.last_run_id == fired.run.id
        assert fire(isolated_workspace, schedule, due + HOUR) is None
        # It would come before all others, at every call.
        assert isolated_workspace.storage.schedules.get_due_schedules(due + HOUR).items == ()

    @needs("transactions")
    def test_a_unit_in_which_the_id_of_a_run_is_taken_fires_nothing(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(workspace)
        occupy_run_id(workspace, schedule)
        before, due = trigger_of(workspace, schedule), due_of(workspace, schedule)

        def fire_in_unit() -> None:
            with workspace.storage.transaction(workspace.tenant) as unit:
                unit.triggers.fire(workspace.tenant, schedule.id, due)

        with pytest.raises(DuplicateError):
            fire_in_unit()
        assert trigger_of(workspace, schedule) == before
        assert fire(workspace, schedule, due) is not None

    def test_the_id_of_a_run_stays_short(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored_hourly(workspace, "x" * 200)
        long = workspace.storage.schedules.upsert(schedule.evolve(id="s" * 256, name="long"))
        due = due_of(workspace, long)
        fired = fire(workspace, long, due)
        assert fired is not None
        owner = sha256(f"{workspace.tenant}:{long.id}".encode()).hexdigest()[:32]
        assert fired.run.id == f"run:{owner}:{due:%Y%m%dT%H%M%SZ}"

    @pytest.mark.parametrize("state", ["absent", "foreign", "disabled", "deleted"])
    def test_what_may_not_fire_answers_none_and_changes_nothing(
        self, workspace: SchedulerWorkspace, state: str
    ) -> None:
        schedule = stored_hourly(workspace.elsewhere if state == "foreign" else workspace)
        if state == "disabled":
            workspace.storage.schedules.upsert(schedule.evolve(enabled=False))
        if state == "deleted":
            assert workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(1))
        key = "nobody" if state == "absent" else schedule.id
        assert workspace.storage.triggers.fire(workspace.tenant, key, at(99_999)) is None
        assert workspace.storage.runs.list(workspace.tenant).items == ()

    @pytest.mark.parametrize("changes", [{"enabled": False}, {"deletedAt": at(1), "deletedBy": "eve"}])
    def test_a_trigger_out_of_step_does_not_fire_a_schedule_that_may_not(
        self, workspace: SchedulerWorkspace, changes: dict[str, object]
    ) -> None:
        schedule = stored_hourly(workspace)
        due = due_of(workspace, schedule)
        # Only a copy can bring a pair out of step.
        workspace.probe.alter(SCHEDULES, (schedule.id,), {"enabled": False, **changes})
        assert fire(workspace, schedule, due) is None
        assert workspace.storage.runs.list(workspace.tenant).items == ()

    def test_the_rule_of_the_schedule_holds_where_its_trigger_has_another(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(workspace)
        due = due_of(workspace, schedule)
        workspace.probe.alter(TRIGGERS, (trigger_of(workspace, schedule).id,), {"whenCron": "30 * * * *"})
        fired = fire(workspace, schedule, due)
        assert fired is not None
        assert (fired.trigger.when_cron, fired.trigger.next_fire_at) == (schedule.when_cron, due + HOUR)

    def test_what_was_fired_is_due_no_more(self, isolated_workspace: SchedulerWorkspace) -> None:
        schedules = [stored_hourly(isolated_workspace, name) for name in ("a", "b")]
        now = due_of(isolated_workspace, schedules[0])
        assert fire(isolated_workspace, schedules[0], now) is not None
        assert isolated_workspace.storage.schedules.get_due_schedules(now).items == (schedules[1],)

    @needs("transactions")
    def test_a_unit_that_fails_takes_its_firing_back(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored_hourly(workspace)
        before, due = trigger_of(workspace, schedule), due_of(workspace, schedule)

        def fire_and_fail() -> None:
            with workspace.storage.transaction(workspace.tenant) as unit:
                assert unit.triggers.fire(workspace.tenant, schedule.id, due) is not None
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fire_and_fail()
        assert trigger_of(workspace, schedule) == before
        assert fire(workspace, schedule, due) is not None

    def test_a_trigger_is_not_fired_where_the_calendar_ends(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored_hourly(workspace)
        before = trigger_of(workspace, schedule)
        with pytest.raises(ValidationError, match="has no next instant"):
            fire(workspace, schedule, LATEST)
        assert trigger_of(workspace, schedule) == before

    @pytest.mark.parametrize("now", [None, 15, at(0).replace(tzinfo=None)])
    def test_a_trigger_is_not_fired_without_an_instant(
        self, workspace: SchedulerWorkspace, now: datetime
    ) -> None:
        with pytest.raises(ValidationError, match="now"):
            workspace.storage.triggers.fire(workspace.tenant, "x", now)


LEASE: Final = timedelta(seconds=60)
CLAIMANTS: Final = 4


def claimed(workspace: SchedulerWorkspace, now: datetime, owner: str = "w", **options: object) -> list[str]:
    """Claim what is due; return the ids of the schedules."""
    claims = workspace.storage.schedules.claim_due(owner, now, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # limit and lease
    return [claim.schedule.id for claim in claims]


def one_claim(workspace: SchedulerWorkspace, now: datetime, owner: str = "w") -> ScheduleClaim:
    """Claim the one schedule that is due."""
    (claim,) = workspace.storage.schedules.claim_due(owner, now, lease=LEASE)
    return claim


def fire_claimed(storage: SchedulerSession, claim: ScheduleClaim, now: datetime) -> FiredTrigger | None:
    """Fire what a claim is of."""
    schedule = claim.schedule
    return storage.triggers.fire(schedule.tenant_id, schedule.id, now, claim=claim)


def markers_of(workspace: SchedulerWorkspace, schedule: Schedule) -> Mapping[str, object]:
    """Return the storage markers of a trigger as they are stored."""
    row = workspace.probe.read(TRIGGERS, (trigger_id(schedule.tenant_id, schedule.id),))
    assert row is not None
    return row.markers


class ClaimContract(SchedulerCases):
    """Claims of due schedules: who gets them, how they end, and who may fire."""

    def test_a_claim_has_holder_end_and_fence_and_readers_see_nothing_of_it(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(isolated_workspace)
        before, due = trigger_of(isolated_workspace, schedule), due_of(isolated_workspace, schedule)
        schedules, triggers = isolated_workspace.storage.schedules, isolated_workspace.storage.triggers
        assert schedules.claim_due("w", due - timedelta(milliseconds=1)) == ()
        now = due + timedelta(seconds=2)
        assert one_claim(isolated_workspace, now) == ScheduleClaim(
            schedule=schedule,
            scheduled_for=due,
            lease_owner="w",
            lease_expires_at=now + LEASE,
            fence=1,
        )
        assert schedules.claim_due("other", now) == ()
        assert markers_of(isolated_workspace, schedule) == {
            "claimedBy": "w",
            "claimedUntil": now + LEASE,
            "claimFence": 1,
        }
        assert triggers.list(isolated_workspace.tenant).items == (before,)
        assert schedules.get_due_schedules(now).items == (schedule,)

    @pytest.mark.parametrize("limit", [1, 2, 100])
    def test_schedules_are_claimed_in_order_and_those_that_may_not_fire_are_passed_over(
        self, isolated_workspace: SchedulerWorkspace, limit: int
    ) -> None:
        here, there = isolated_workspace, isolated_workspace.elsewhere
        wanted = [
            stored_hourly(here, "early", when_cron="59 * * * *"),
            *sorted(
                (stored_hourly(here, "here"), stored_hourly(there, "there")), key=lambda item: item.tenant_id
            ),
        ]
        gone: dict[str, object] = {"deletedAt": at(1), "deletedBy": "eve"}
        for name, changes in (("off", {}), ("gone", gone)):
            other = stored_hourly(here, name, when_cron="58 * * * *")
            # Only a copy can bring a pair out of step.
            here.probe.alter(SCHEDULES, (other.id,), {"enabled": False, **changes})
        stored_hourly(here, "late", when_cron="1 * * * *")
        now = NEXT_HOUR
        found: list[str] = []
        while ids := claimed(here, now, limit=limit):
            assert len(ids) <= limit
            found += ids
        assert found == [schedule.id for schedule in wanted]

    @pytest.mark.parametrize("limit", [1, 5])
    def test_concurrent_workers_of_one_name_claim_each_schedule_once(
        self, isolated_workspace: SchedulerWorkspace, limit: int
    ) -> None:
        wanted = [stored_hourly(isolated_workspace, f"s{number}").id for number in range(2 * CLAIMANTS)]

        def drain(storage: SchedulerStorage, number: int) -> list[str]:
            del number  # they have one name, at one instant: only the claim itself distinguishes them
            found: list[str] = []
            misses = 0
            while misses < CLAIMANTS:
                claims = storage.schedules.claim_due("same", at(99_999), limit=limit)
                misses = 0 if claims else misses + 1
                found += [claim.schedule.id for claim in claims]
            return found

        results = isolated_workspace.race(drain, range(CLAIMANTS))
        found = [key for result in results if isinstance(result, list) for key in result]
        assert outcomes(results) == {"ok": CLAIMANTS}
        assert sorted(found) == sorted(wanted)

    def test_a_claim_fires_once_and_ends_with_that(self, isolated_workspace: SchedulerWorkspace) -> None:
        schedule = stored_hourly(isolated_workspace)
        due = due_of(isolated_workspace, schedule)
        claim = one_claim(isolated_workspace, due)
        fired = fire_claimed(isolated_workspace.storage, claim, due)
        assert fired is not None
        assert (fired.scheduled_for, fired.created, fired.trigger) == (
            due,
            True,
            trigger_of(isolated_workspace, schedule),
        )
        assert fire_claimed(isolated_workspace.storage, claim, due) is None
        # The next instant may be due before the lease would have ended, and its claim is a later one.
        assert markers_of(isolated_workspace, schedule) == {"claimFence": 1}
        assert one_claim(isolated_workspace, due + HOUR).fence == 2

    def test_a_worker_that_dies_loses_its_claim_with_the_lease(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(isolated_workspace)
        due = due_of(isolated_workspace, schedule)
        old = one_claim(isolated_workspace, due)
        end = due + LEASE
        assert claimed(isolated_workspace, end - timedelta(milliseconds=1)) == []
        storage = isolated_workspace.storage
        with pytest.raises(LeaseLostError):  # as soon as the lease has ended, whoever holds it then
            fire_claimed(storage, old, end)
        new = one_claim(isolated_workspace, end)
        assert (new.scheduled_for, new.fence) == (due, old.fence + 1)
        with pytest.raises(LeaseLostError) as lost:
            fire_claimed(storage, old, due)
        assert (lost.value.entity, lost.value.key) == ("schedules", schedule.id)
        assert storage.runs.list(isolated_workspace.tenant).items == ()
        assert fire_claimed(storage, new, end) is not None
        # The instant is fired, whoever held it.
        assert fire_claimed(storage, old, end) is None

    @pytest.mark.parametrize("change", ["time rule", "recalculate", "delete", "fire"])
    def test_a_change_of_the_trigger_ends_the_claim(
        self, isolated_workspace: SchedulerWorkspace, change: str
    ) -> None:
        schedule, storage = stored_hourly(isolated_workspace), isolated_workspace.storage
        due = due_of(isolated_workspace, schedule)
        claim = one_claim(isolated_workspace, due)
        changes: dict[str, Callable[[], object]] = {
            "time rule": lambda: storage.schedules.upsert(schedule.evolve(when_cron="*/30 * * * *")),
            "recalculate": lambda: storage.triggers.recalculate(schedule.tenant_id, schedule.id, at()),
            "delete": lambda: storage.schedules.soft_delete(schedule.tenant_id, schedule.id, "eve", at(1)),
            "fire": lambda: fire(isolated_workspace, schedule, due),
        }
        changes[change]()
        assert markers_of(isolated_workspace, schedule) == {"claimFence": 1}
        if change == "recalculate":  # to the same instant, which others may claim again
            with pytest.raises(LeaseLostError):
                fire_claimed(storage, claim, due)
        else:
            assert fire_claimed(storage, claim, due) is None

    def test_a_write_that_leaves_the_trigger_alone_leaves_the_claim(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored_hourly(isolated_workspace)
        due = due_of(isolated_workspace, schedule)
        claim = one_claim(isolated_workspace, due)
        isolated_workspace.storage.schedules.upsert(schedule.evolve(name="other", updated_at=at(1)))
        assert fire_claimed(isolated_workspace.storage, claim, due) is not None

    @needs("transactions")
    @pytest.mark.parametrize("first", ["fires", "claims"])
    def test_of_a_firing_and_a_claim_at_once_the_first_one_counts(
        self, isolated_workspace: SchedulerWorkspace, first: str
    ) -> None:
        here = isolated_workspace
        schedule = stored_hourly(here)
        due = due_of(here, schedule)
        old, end = one_claim(here, due), due + LEASE

        def claim(storage: SchedulerSession) -> object:
            return storage.schedules.claim_due("second", end)

        def fire_old(storage: SchedulerSession) -> object:
            return fire_claimed(storage, old, due)

        fires = first == "fires"
        unit = here.storage.transaction(here.tenant) if fires else here.storage.transaction(purpose="tests")
        with here.storages(1) as (other,), ThreadPoolExecutor(1) as pool:
            with unit as opened:
                assert (fire_old if fires else claim)(opened)
                running = pool.submit(claim if fires else fire_old, other)
                until_it_waits(here.deployment, running)
            if fires:
                assert running.result() == ()
            else:
                with pytest.raises(LeaseLostError):
                    running.result()
        assert len(here.storage.runs.list(here.tenant)) == fires

    def test_what_cannot_be_read_delays_no_other_claim_and_is_logged(
        self, isolated_workspace: SchedulerWorkspace, caplog: pytest.LogCaptureFixture
    ) -> None:
        here = isolated_workspace
        stored = [stored_hourly(here, name) for name in "abcd"]
        trigger = trigger_of(here, stored[0])
        here.probe.poison(TRIGGERS, (trigger.id,), "s3cr3t")
        here.probe.poison(SCHEDULES, (stored[1].id,), "s3cr3t")
        found: list[str] = []
        while ids := claimed(here, at(99_999), limit=2):
            found += ids
        assert sorted(found) == [stored[2].id, stored[3].id]
        logged = [record.getMessage() for record in caplog.records if record.name == "twinstore.undecodable"]
        assert [len([text for text in logged if key in text]) for key in (trigger.id, stored[1].id)] == [1, 1]

    def test_bad_arguments_of_a_claim_are_refused(self, workspace: SchedulerWorkspace) -> None:
        schedules = workspace.storage.schedules
        with pytest.raises(ValidationError, match="lease_owner"):
            schedules.claim_due(" ", at())
        with pytest.raises(ValidationError, match="now"):
            schedules.claim_due("w", at().replace(tzinfo=None))
        with pytest.raises(ValidationError, match="limit"):
            schedules.claim_due("w", at(), limit=1001)
        with pytest.raises(ValidationError, match="lease"):
            schedules.claim_due("w", at(), lease=timedelta(0))

    def test_a_claim_fires_no_other_schedule(self, isolated_workspace: SchedulerWorkspace) -> None:
        schedule = stored_hourly(isolated_workspace)
        due = due_of(isolated_workspace, schedule)
        claim = one_claim(isolated_workspace, due)
        other = stored_hourly(isolated_workspace, "other")
        triggers = isolated_workspace.storage.triggers
        with pytest.raises(ValidationError, match="claim is of schedule"):
            triggers.fire(other.tenant_id, other.id, due, claim=claim)
        with pytest.raises(ValidationError, match="claim"):
            triggers.fire(other.tenant_id, other.id, due, claim=cast("ScheduleClaim", schedule))
        assert isolated_workspace.storage.runs.list(isolated_workspace.tenant).items == ()

    @needs("sessions")
    def test_a_session_of_one_tenant_claims_nothing(self, workspace: SchedulerWorkspace) -> None:
        with workspace.storage.sessions.open(workspace.tenant) as session, pytest.raises(TenantScopeError):
            session.schedules.claim_due("w", at())
