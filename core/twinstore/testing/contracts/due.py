"""What the query of due schedules must answer; it looks at all tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing.base import Contract
from twinstore.testing.builders import at

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.scheduler.schedules import Schedule
    from twinstore.testing.bench import Bench

__all__ = ["DueScheduleContract"]

HOUR = 3600


def stored(bench: Bench, name: str, /, **changes: object) -> Schedule:
    """Store a schedule that is due at 15:00 unless its rule is changed."""
    return bench.storage.schedules.upsert(bench.schedule(name, **changes))


class DueScheduleContract(Contract):
    """Due: enabled, not deleted, and its instant reached."""

    def test_nothing_is_due_without_schedules(self, lone_bench: Bench) -> None:
        assert lone_bench.storage.schedules.get_due_schedules(at()) == ()

    def test_a_schedule_is_due_from_its_very_instant(self, lone_bench: Bench) -> None:
        schedule = stored(lone_bench, "a")
        due = lone_bench.storage.triggers.get_required(lone_bench.tenant, schedule.id).next_fire_at
        assert due is not None
        just_before = due.replace(minute=59, hour=due.hour - 1, second=59, microsecond=999_000)
        assert lone_bench.storage.schedules.get_due_schedules(just_before) == ()
        assert lone_bench.storage.schedules.get_due_schedules(due) == (schedule,)

    def test_due_schedules_of_all_tenants_come_in_order(self, lone_bench: Bench) -> None:
        rows: list[tuple[datetime | None, str, str, Schedule]] = []
        for bench in sorted([lone_bench, lone_bench.elsewhere], key=lambda bench: bench.tenant, reverse=True):
            for name, cron in (("b", "0 * * * *"), ("late", "30 15 * * *"), ("a", "0 * * * *")):
                schedule = stored(bench, name, when_cron=cron)
                trigger = bench.storage.triggers.get_required(bench.tenant, schedule.id)
                rows.append((trigger.next_fire_at, trigger.tenant_id, trigger.id, schedule))
        due = lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR))
        assert due == tuple(row[3] for row in sorted(rows, key=lambda row: row[:3]))
        for limit in (1, 3, 6, 7):
            assert lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR), limit=limit) == due[:limit]

    def test_disabled_and_deleted_schedules_are_never_due(self, lone_bench: Bench) -> None:
        stored(lone_bench, "disabled", enabled=False)
        gone = stored(lone_bench, "gone")
        kept = stored(lone_bench, "kept")
        assert lone_bench.storage.schedules.soft_delete(lone_bench.tenant, gone.id, "eve", at(1))
        assert lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR)) == (kept,)
        assert lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR), limit=1) == (kept,)

    def test_a_schedule_that_may_not_fire_is_not_due_whatever_its_trigger_says(
        self, lone_bench: Bench
    ) -> None:
        kept, disabled, deleted = (stored(lone_bench, name) for name in ("kept", "disabled", "deleted"))
        # Only a copy can bring a pair out of step.
        lone_bench.probe.alter(SCHEDULES, (disabled.id,), {"enabled": False})
        deletion = {"enabled": False, "deletedAt": at(1), "deletedBy": "eve"}
        lone_bench.probe.alter(SCHEDULES, (deleted.id,), deletion)
        assert lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR)) == (kept,)
        assert lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR), limit=1) == (kept,)

    def test_asking_changes_nothing(self, lone_bench: Bench) -> None:
        schedule = stored(lone_bench, "a")
        before = lone_bench.storage.triggers.get(lone_bench.tenant, schedule.id)
        first = lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR))
        assert lone_bench.storage.schedules.get_due_schedules(at(4 * HOUR)) == first
        assert lone_bench.storage.triggers.get(lone_bench.tenant, schedule.id) == before

    @pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1", None])
    def test_due_schedules_are_not_listed_with_a_limit_below_one(self, bench: Bench, limit: int) -> None:
        with pytest.raises(ValidationError, match="limit"):
            bench.storage.schedules.get_due_schedules(at(), limit=limit)
