"""Schedules on PostgreSQL; each write brings the trigger in step in the same transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import DuplicateError
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.missing import duplicate_id, required
from twinstore.scheduler.schedules import Schedule, SoftDeletion
from twinstore.scope import id_argument, instant_argument, model_argument, text_argument
from twinstore_postgres.codec import Replanned
from twinstore_postgres.errors import Subject
from twinstore_postgres.listing import page_of
from twinstore_postgres.scheduler.pairs import lock_pair, save_trigger, stored_row, stored_schedule
from twinstore_postgres.scheduler.tables import SCHEDULES_TABLE
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.scheduler.rules.schedules import StoredSchedule
    from twinstore.scheduler.schedules import ScheduleQueryOptions
    from twinstore_postgres.work import Steps, Work

__all__ = ["PostgresScheduleRepository"]

TRIES: Final = 3

SELECT: Final = SCHEDULES_TABLE.statement("SELECT {columns} FROM {table} WHERE id = %s AND tenant_id = %s")
SELECT_PRESENT: Final = SCHEDULES_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE id = %s AND tenant_id = %s AND deleted_at IS NULL"
)
# First without saying on which conflict: then a rival that has just inserted this very schedule is waited
# for, whichever unique index meets it first, and is seen afterwards (a unit ends with a ConcurrencyError).
INSERT_NEW: Final = SCHEDULES_TABLE.statement(
    "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
)
# What is in the way is known to the transaction by now: the id, or else the name, which is an error.
INSERT_BESIDE: Final = SCHEDULES_TABLE.statement(
    "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"
)
UPDATE: Final = SCHEDULES_TABLE.statement(
    "UPDATE {table} SET ({columns}) = ROW({values}) WHERE id = %s AND tenant_id = %s"
)
# The schedules of the due triggers, in their order; both are written together, so the join loses none.
SELECT_DUE: Final = Replanned(b"""
SELECT s.id, s.tenant_id, s.name, s.when_cron, s.schema_version, s.created_by, s.updated_by, s.enabled,
       s.timezone, s.mode, s.selection, s.only_if, s.notify, s.limits, s.subscribers, s.created_at,
       s.updated_at, s.deleted_at, s.deleted_by
  FROM scheduler.triggers t
  JOIN scheduler.schedules s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id
 WHERE t.enabled AND t.next_fire_at IS NOT NULL AND t.next_fire_at <= %s
   AND s.enabled AND s.deleted_at IS NULL
 ORDER BY t.next_fire_at, t.tenant_id, t.id
 LIMIT %s
""")


class PostgresScheduleRepository:
    """Implements :class:`~twinstore.scheduler.schedules.ScheduleRepository`."""

    def __init__(self, work: Work) -> None:
        """Take the access to the server."""
        self._work = work

    def get(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule | None:
        """Return one schedule; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        statement = SELECT if include_deleted else SELECT_PRESENT
        row = self._work.one(tenant, Subject(SCHEDULES, key), statement, (key, tenant))
        return None if row is None else SCHEDULES_TABLE.decode(row)

    def get_required(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule:
        """Return one schedule or raise; see the Protocol."""
        found = self.get(tenant_id, schedule_id, include_deleted=include_deleted)
        return required(found, SCHEDULES, schedule_id.strip(), DRIVER)

    def get_deletion(self, tenant_id: str, schedule_id: str) -> SoftDeletion | None:
        """Return the deletion markers; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        row = self._work.one(tenant, Subject(SCHEDULES, key), SELECT, (key, tenant))
        return None if row is None else stored_schedule(row).deletion

    def list(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> Page[Schedule]:
        """Return a page of schedules; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        return page_of(self._work, tenant, queries.schedules(tenant, options), SCHEDULES_TABLE)

    def upsert(self, schedule: Schedule, *, expected_updated_at: datetime | None = None) -> Schedule:
        """Insert or replace a schedule with its trigger; see the Protocol."""
        self._work.check()
        schedule = model_argument(schedule, Schedule, "schedule")
        tenant = self._work.admit(schedule.tenant_id)
        expected = (
            None
            if expected_updated_at is None
            else instant_argument(expected_updated_at, "expected_updated_at")
        )
        changed = self._change(tenant, schedule.id, lambda stored: rules.upserted(stored, schedule, expected))
        return schedule if changed is None else changed.schedule

    def soft_delete(self, tenant_id: str, schedule_id: str, deleted_by: str, deleted_at: datetime) -> bool:
        """Mark a schedule as deleted; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        actor = text_argument(deleted_by, "deleted_by")
        instant = instant_argument(deleted_at, "deleted_at")
        changed = self._change(tenant, key, lambda stored: rules.deleted(stored, actor, instant))
        return changed is not None

    def restore(
        self,
        tenant_id: str,
        schedule_id: str,
        restored_by: str,
        restored_at: datetime,
        *,
        enabled: bool = False,
    ) -> bool:
        """Clear the deletion markers; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        actor = text_argument(restored_by, "restored_by")
        instant = instant_argument(restored_at, "restored_at")
        changed = self._change(
            tenant, key, lambda stored: rules.restored(stored, actor, instant, enabled=enabled)
        )
        return changed is not None

    def get_due_schedules(self, now: datetime, *, limit: int = 100) -> tuple[Schedule, ...]:
        """Return the schedules that are due; see the Protocol."""
        tenant = self._work.admit_system("get_due_schedules")
        query = queries.due_triggers(now, limit)
        instant = instant_argument(now, "now")
        found = self._work.read(tenant, Subject(SCHEDULES), SELECT_DUE, (instant, query.limit))
        return tuple(SCHEDULES_TABLE.decode(row) for row in found.rows)

    def _change(
        self,
        tenant: str,
        key: str,
        change: Callable[[StoredSchedule | None], StoredSchedule | None],
    ) -> StoredSchedule | None:
        """Read, decide and write a schedule with its trigger in one unit; return what is stored now."""

        def once() -> StoredSchedule | None:
            with self._work.unit(tenant, Subject(SCHEDULES, key)) as steps:
                return change_schedule(steps, tenant, key, change)

        try:
            return self._work.repeat(once)
        except DuplicateError:
            # A rival may have inserted this very schedule between the two checks of the insert.
            if not self._work.repeatable:
                raise
            return self._work.repeat(once)


def change_schedule(
    steps: Steps, tenant: str, key: str, change: Callable[[StoredSchedule | None], StoredSchedule | None]
) -> StoredSchedule | None:
    """Lock both rows, ask the rule, and write both; ``None`` when the rule leaves them.

    An absent row cannot be locked: the schedule that another writer inserts meanwhile is in the way of the
    insert, and is then seen and changed. One that stays out of sight belongs to another tenant.
    """
    for _ in range(TRIES):
        stored, trigger = lock_pair(steps, tenant, key)
        changed = change(stored)
        if changed is None:
            return None
        save = save_trigger(rules.synchronised(trigger, changed))
        row, subject = stored_row(changed), Subject(SCHEDULES, key, changed.schedule.name)
        if stored is not None:
            steps.run((UPDATE, (*row, key, tenant)), save, subject=subject)
            return changed
        (inserted,) = steps.run((INSERT_NEW, row), subject=subject)
        if not inserted.count:
            (inserted,) = steps.run((INSERT_BESIDE, row), subject=subject)
        if inserted.count:
            steps.run(save)
            return changed
    raise duplicate_id(SCHEDULES, key, DRIVER)
