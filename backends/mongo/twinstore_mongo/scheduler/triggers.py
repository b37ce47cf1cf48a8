"""Triggers on MongoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.missing import required
from twinstore.scope import id_argument, instant_argument
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.repository import MongoRepository
from twinstore_mongo.scheduler.codecs import TRIGGER_CODEC
from twinstore_mongo.scheduler.stored import decoded, own_schedule, stored_trigger, write_trigger

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.scheduler.triggers import Trigger
    from twinstore_mongo.units import Unit

__all__ = ["MongoTriggerRepository"]


class MongoTriggerRepository(MongoRepository):
    """Implements :class:`~twinstore.scheduler.triggers.TriggerRepository`."""

    def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        """Return the trigger of a schedule; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        return stored_trigger(self._unit, tenant, key)

    def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        """Return the trigger of a schedule; see the Protocol."""
        return required(self.get(tenant_id, schedule_id), TRIGGERS, schedule_id.strip(), DRIVER)

    def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        """Return a page of triggers; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(TRIGGER_CODEC, queries.triggers(tenant, limit, page_token))

    def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        """Set the next instant from the stored schedule; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        instant = instant_argument(now, "now")

        def write(unit: Unit) -> Trigger:
            schedule = required(decoded(own_schedule(unit, tenant, key)), SCHEDULES, key, DRIVER)
            stored = stored_trigger(unit, tenant, key)
            trigger = rules.recalculated(stored, schedule, instant)
            write_trigger(unit, stored, trigger)
            return trigger

        return self._unit.atomic(write)
