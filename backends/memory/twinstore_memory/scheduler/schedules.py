"""Schedules in memory."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from twinstore.canonical import decode_stored
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.missing import duplicate_name, required
from twinstore.scheduler.rules.schedules import StoredSchedule
from twinstore.scheduler.schedules import Schedule, ScheduleQueryOptions, SoftDeletion
from twinstore.scheduler.triggers import Trigger
from twinstore.scope import id_argument, instant_argument, text_argument
from twinstore_memory.compile import ordered
from twinstore_memory.repository import MemoryRepository, own, own_for_write, refuse_foreign
from twinstore_memory.rows import Row, decode, encode, name_of, table, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore_memory.store import Unit

__all__ = ["MemoryScheduleRepository"]


class MemoryScheduleRepository(MemoryRepository):
    """Implements :class:`~twinstore.scheduler.schedules.ScheduleRepository`."""

    def get(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule | None:
        """Return one schedule; see the Protocol."""
        tenant = self._admit(tenant_id)
        row = self._get(SCHEDULES, tenant, id_argument(schedule_id, "schedule_id"))
        if row is None or (is_deleted(row) and not include_deleted):
            return None
        return decode(row, Schedule)

    def get_required(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule:
        """Return one schedule; see the Protocol."""
        found = self.get(tenant_id, schedule_id, include_deleted=include_deleted)
        return required(found, SCHEDULES, schedule_id.strip(), DRIVER)

    def get_deletion(self, tenant_id: str, schedule_id: str) -> SoftDeletion | None:
        """Return the deletion markers; see the Protocol."""
        tenant = self._admit(tenant_id)
        row = self._get(SCHEDULES, tenant, id_argument(schedule_id, "schedule_id"))
        return None if row is None else deletion_of(row)

    def list(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> Page[Schedule]:
        """Return a page of schedules; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(SCHEDULES, queries.schedules(tenant, options), Schedule)

    def upsert(self, schedule: Schedule, *, expected_updated_at: datetime | None = None) -> Schedule:
        """Insert or replace a schedule; see the Protocol."""
        schedule = self._model(schedule, Schedule, "schedule")
        tenant = self._admit(schedule.tenant_id)
        if expected_updated_at is not None:
            expected_updated_at = instant_argument(expected_updated_at, "expected_updated_at")
        with self._link.writing() as unit:
            stored = read_for_write(unit, tenant, schedule.id)
            changed = rules.upserted(stored, schedule, expected_updated_at)
            store(unit, changed)
        return changed.schedule

    def soft_delete(self, tenant_id: str, schedule_id: str, deleted_by: str, deleted_at: datetime) -> bool:
        """Mark a schedule as deleted; see the Protocol."""
        tenant = self._admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        actor = text_argument(deleted_by, "deleted_by")
        instant = instant_argument(deleted_at, "deleted_at")
        with self._link.writing() as unit:
            changed = rules.deleted(read_for_write(unit, tenant, key), actor, instant)
            return store_changed(unit, changed)

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
        tenant = self._admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        actor, instant = (
            text_argument(restored_by, "restored_by"),
            instant_argument(restored_at, "restored_at"),
        )
        with self._link.writing() as unit:
            changed = rules.restored(read_for_write(unit, tenant, key), actor, instant, enabled=enabled)
            return store_changed(unit, changed)

    def get_due_schedules(self, now: datetime, *, limit: int = 100) -> tuple[Schedule, ...]:
        """Return the due schedules of all tenants; see the Protocol."""
        self._admit_system("get_due_schedules")
        query = queries.due_triggers(now, limit)
        with self._link.reading() as unit:
            rows = tuple(islice(due(unit, query), query.limit))
        return tuple(decode(row, Schedule) for row in rows)


def due(unit: Unit, query: Query) -> Iterator[Row]:
    """Yield the schedules of due triggers in the order of the triggers."""
    for trigger in ordered(unit.values(table(TRIGGERS)), query):
        row = own(unit, SCHEDULES, str(trigger.tenant_id), str(trigger.value("scheduleId")))
        if row is not None and row.value("enabled") and not is_deleted(row):
            yield row


def is_deleted(row: Row) -> bool:
    """Whether a schedule is soft-deleted."""
    return row.value("deletedAt") is not None


def deletion_of(row: Row) -> SoftDeletion | None:
    """Return the deletion markers of a schedule."""
    if not is_deleted(row):
        return None
    return decode_stored(SoftDeletion, row.markers, entity=SCHEDULES.name, key=row.key_text, driver=DRIVER)


def read(row: Row | None) -> StoredSchedule | None:
    """Return a schedule with its markers."""
    return None if row is None else StoredSchedule(decode(row, Schedule), deletion_of(row))


def read_for_write(unit: Unit, tenant: str, schedule_id: str) -> StoredSchedule | None:
    """Return a schedule that no other unit can change until this one ends."""
    return read(own_for_write(unit, SCHEDULES, tenant, schedule_id))


def store_changed(unit: Unit, changed: StoredSchedule | None) -> bool:
    """Store a change, if there is one; return whether there was."""
    if changed is not None:
        store(unit, changed)
    return changed is not None


def store(unit: Unit, changed: StoredSchedule) -> None:
    """Store a claimed schedule together with its trigger."""
    schedule = changed.schedule
    refuse_foreign(unit, SCHEDULES, schedule.tenant_id, schedule.id)
    if changed.deletion is None:
        refuse_taken_name(unit, schedule)
    write(unit, encode(SCHEDULES, schedule, {} if changed.deletion is None else changed.deletion.wire()))
    trigger = trigger_of(unit, schedule.tenant_id, schedule.id)
    write(unit, encode(TRIGGERS, rules.synchronised(trigger, changed)))


def refuse_taken_name(unit: Unit, schedule: Schedule) -> None:
    """Raise ``DuplicateError`` when another schedule of the tenant that is not deleted has the name."""
    name = name_of(schedule.tenant_id, schedule.name)
    unit.claim(table(SCHEDULES), name)
    if unit.holder(table(SCHEDULES), name) not in {None, (schedule.id,)}:
        raise duplicate_name(SCHEDULES, schedule.name, schedule.id, DRIVER)


def trigger_of(unit: Unit, tenant: str, schedule_id: str) -> Trigger | None:
    """Return the trigger of a schedule."""
    key = unit.holder(table(TRIGGERS), schedule_id)
    row = None if key is None else own(unit, TRIGGERS, tenant, *key)
    return None if row is None else decode(row, Trigger)
