"""Schedules on MongoDB; each is written together with its trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.missing import duplicate_id, duplicate_name, required
from twinstore.scheduler.schedules import Schedule, ScheduleQueryOptions, SoftDeletion
from twinstore.scope import id_argument, instant_argument, text_argument
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.repository import MongoRepository, rows
from twinstore_mongo.scheduler.codecs import SCHEDULE_CODEC, deletion_of
from twinstore_mongo.scheduler.stored import decoded, own_schedule, stored_trigger, write_trigger
from twinstore_mongo.writes import insert, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from twinstore.errors import TwinstoreError
    from twinstore.paging import Page
    from twinstore.scheduler.rules.schedules import StoredSchedule
    from twinstore_mongo.connection import Document
    from twinstore_mongo.units import Unit

__all__ = ["MongoScheduleRepository"]

NAME_INDEX: Final = "ux_tenantId_name"


class MongoScheduleRepository(MongoRepository):
    """Implements :class:`~twinstore.scheduler.schedules.ScheduleRepository`."""

    def get(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule | None:
        """Return one schedule; see the Protocol."""
        document = self._own(tenant_id, schedule_id)
        if document is None or (document.get("deletedAt") is not None and not include_deleted):
            return None
        return SCHEDULE_CODEC.decode(document)

    def get_required(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule:
        """Return one schedule; see the Protocol."""
        found = self.get(tenant_id, schedule_id, include_deleted=include_deleted)
        return required(found, SCHEDULES, schedule_id.strip(), DRIVER)

    def get_deletion(self, tenant_id: str, schedule_id: str) -> SoftDeletion | None:
        """Return the deletion markers; see the Protocol."""
        document = self._own(tenant_id, schedule_id)
        return None if document is None else deletion_of(document)

    def list(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> Page[Schedule]:
        """Return a page of schedules; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(SCHEDULE_CODEC, queries.schedules(tenant, options))

    def upsert(self, schedule: Schedule, *, expected_updated_at: datetime | None = None) -> Schedule:
        """Insert or replace a schedule; see the Protocol."""
        schedule = self._model(schedule, Schedule, "schedule")
        tenant = self._admit(schedule.tenant_id)
        if expected_updated_at is not None:
            expected_updated_at = instant_argument(expected_updated_at, "expected_updated_at")

        def write(unit: Unit) -> Schedule:
            document = own_schedule(unit, tenant, schedule.id)
            changed = rules.upserted(decoded(document), schedule, expected_updated_at)
            store(unit, document, changed)
            return changed.schedule

        return self._unit.atomic(write)

    def soft_delete(self, tenant_id: str, schedule_id: str, deleted_by: str, deleted_at: datetime) -> bool:
        """Mark a schedule as deleted; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        actor, instant = text_argument(deleted_by, "deleted_by"), instant_argument(deleted_at, "deleted_at")
        return self._change(tenant, key, lambda stored: rules.deleted(stored, actor, instant))

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
        tenant, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        actor, instant = (
            text_argument(restored_by, "restored_by"),
            instant_argument(restored_at, "restored_at"),
        )
        return self._change(
            tenant, key, lambda stored: rules.restored(stored, actor, instant, enabled=enabled)
        )

    def get_due_schedules(self, now: datetime, *, limit: int = 100) -> tuple[Schedule, ...]:
        """Return the due schedules of all tenants; see the Protocol."""
        self._admit_system("get_due_schedules")
        query = queries.due_triggers(now, limit)
        found = rows(self._unit, TRIGGERS, query, self.names)[: query.limit]
        due = [key for row in found if isinstance(key := row.get("scheduleId"), str)]
        active = active_schedules(self._unit, due)
        return tuple(SCHEDULE_CODEC.decode(active[key]) for key in due if key in active)

    def _own(self, tenant_id: str, schedule_id: str) -> Document | None:
        tenant, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        return own_schedule(self._unit, tenant, key)

    def _change(
        self, tenant: str, key: str, change: Callable[[StoredSchedule | None], StoredSchedule | None]
    ) -> bool:
        """Change one schedule and its trigger in one transaction; return whether there was a change."""

        def write(unit: Unit) -> bool:
            document = own_schedule(unit, tenant, key)
            changed = change(decoded(document))
            if changed is not None:
                store(unit, document, changed)
            return changed is not None

        return self._unit.atomic(write)


def active_schedules(unit: Unit, keys: Sequence[str]) -> dict[str, Document]:
    """Return the schedules that may fire, by id."""
    if not keys:
        return {}
    condition = {"_id": {"$in": list(keys)}, "enabled": True, "deletedAt": None}
    with unit.reading(SCHEDULES):
        found = unit.collection(SCHEDULES).find(condition, session=unit.session)
        return {document["_id"]: document for document in found}


def store(unit: Unit, found: Document | None, changed: StoredSchedule) -> None:
    """Write a schedule, then its trigger; what the rule refuses is refused before either."""
    schedule = changed.schedule
    trigger = stored_trigger(unit, schedule.tenant_id, schedule.id)
    following = rules.synchronised(trigger, changed)
    markers = {} if changed.deletion is None else changed.deletion.wire()
    document = SCHEDULE_CODEC.encode(schedule, schedule.id, markers)
    if found is None:
        insert(unit, SCHEDULES, document, duplicate_of(schedule))
    elif found != document:
        replace(
            unit,
            SCHEDULES,
            {"_id": schedule.id, "tenantId": schedule.tenant_id},
            document,
            duplicate_of(schedule),
        )
    write_trigger(unit, trigger, following)


def duplicate_of(schedule: Schedule) -> Callable[[str | None], TwinstoreError]:
    """Return the error of a unique index that refuses this schedule."""

    def error(index: str | None) -> TwinstoreError:
        if index == NAME_INDEX:
            return duplicate_name(SCHEDULES, schedule.name, schedule.id, DRIVER)
        return duplicate_id(SCHEDULES, schedule.id, DRIVER)

    return error
