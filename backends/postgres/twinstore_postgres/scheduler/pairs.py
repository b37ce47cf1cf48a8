"""A schedule and its trigger, which are locked, read and written together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler.rules.schedules import StoredSchedule
from twinstore.scheduler.schedules import SoftDeletion
from twinstore_postgres.scheduler.tables import SCHEDULES_TABLE, TRIGGERS_TABLE

if TYPE_CHECKING:
    from twinstore.scheduler.triggers import Trigger
    from twinstore_postgres.codec import Row
    from twinstore_postgres.work import Step, Steps

__all__ = ["lock_pair", "save_trigger", "stored_row", "stored_schedule"]

LOCK_SCHEDULE: Final = SCHEDULES_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE id = %s AND tenant_id = %s FOR UPDATE"
)
LOCK_TRIGGER: Final = TRIGGERS_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE schedule_id = %s AND tenant_id = %s FOR UPDATE"
)
# The conflicting row is always of the same tenant: the schedule that both belong to is locked or new.
SAVE_TRIGGER: Final = TRIGGERS_TABLE.statement(
    "INSERT INTO {table} ({columns}) VALUES ({values}) "
    "ON CONFLICT ON CONSTRAINT uq_triggers_schedule DO UPDATE SET "
    "when_cron = excluded.when_cron, timezone = excluded.timezone, enabled = excluded.enabled, "
    "next_fire_at = excluded.next_fire_at, last_fire_at = excluded.last_fire_at, "
    "last_run_id = excluded.last_run_id, fire_count = excluded.fire_count, "
    "misfire_count = excluded.misfire_count, updated_at = excluded.updated_at"
)


def stored_schedule(row: Row) -> StoredSchedule:
    """Return the schedule of a row with its deletion markers."""
    deleted_at, deleted_by = row[-2:]
    deletion = None if deleted_at is None else SoftDeletion(deleted_at=deleted_at, deleted_by=deleted_by)
    return StoredSchedule(SCHEDULES_TABLE.decode(row), deletion)


def stored_row(stored: StoredSchedule) -> Row:
    """Return the values of a row."""
    markers = {} if stored.deletion is None else stored.deletion.wire()
    return SCHEDULES_TABLE.encode(stored.schedule, markers)


def lock_pair(steps: Steps, tenant: str, schedule_id: str) -> tuple[StoredSchedule | None, Trigger | None]:
    """Lock and read a schedule and its trigger; always in this order, so that writers do not deadlock."""
    key = (schedule_id, tenant)
    schedule, trigger = (result.first for result in steps.run((LOCK_SCHEDULE, key), (LOCK_TRIGGER, key)))
    return (
        None if schedule is None else stored_schedule(schedule),
        None if trigger is None else TRIGGERS_TABLE.decode(trigger),
    )


def save_trigger(trigger: Trigger) -> Step:
    """Return the step that inserts or replaces the trigger of a schedule."""
    return SAVE_TRIGGER, TRIGGERS_TABLE.encode(trigger, {})
