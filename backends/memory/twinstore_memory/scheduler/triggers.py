"""Triggers in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.missing import required
from twinstore.scheduler.triggers import Trigger
from twinstore.scope import id_argument, instant_argument
from twinstore_memory.repository import MemoryRepository
from twinstore_memory.rows import encode, write
from twinstore_memory.scheduler.schedules import read_for_write, trigger_of
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page

__all__ = ["MemoryTriggerRepository"]


class MemoryTriggerRepository(MemoryRepository):
    """Implements :class:`~twinstore.scheduler.triggers.TriggerRepository`."""

    def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        """Return the trigger of a schedule; see the Protocol."""
        tenant = self._admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        with self._link.reading() as unit:
            return trigger_of(unit, tenant, key)

    def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        """Return the trigger of a schedule; see the Protocol."""
        return required(self.get(tenant_id, schedule_id), TRIGGERS, schedule_id.strip(), DRIVER)

    def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        """Return a page of triggers; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(TRIGGERS, queries.triggers(tenant, limit, page_token), Trigger)

    def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        """Set the next instant from the stored schedule; see the Protocol."""
        tenant = self._admit(tenant_id)
        key, instant = id_argument(schedule_id, "schedule_id"), instant_argument(now, "now")
        with self._link.writing() as unit:
            # The claim on the schedule also covers its one trigger.
            schedule = required(read_for_write(unit, tenant, key), SCHEDULES, key, DRIVER)
            trigger = rules.recalculated(trigger_of(unit, tenant, key), schedule, instant)
            write(unit, encode(TRIGGERS, trigger))
        return trigger
