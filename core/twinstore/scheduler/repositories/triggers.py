"""Triggers: written with their schedules, or recalculated from the stored one."""

from __future__ import annotations

from datetime import datetime

from typing_extensions import override

from twinstore.access import Ref, Row
from twinstore.paging import Page
from twinstore.repository import Repository
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.repositories.schedules import schedule_of, trigger_key, trigger_ref
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.schedules import Schedule
from twinstore.scheduler.triggers import Trigger, TriggerRepository
from twinstore.scope import id_argument, instant_argument

__all__ = ["Triggers"]


class Triggers(Repository, TriggerRepository):
    """Implements :class:`~twinstore.scheduler.triggers.TriggerRepository`."""

    @override
    def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        scope = self._admit(tenant_id)
        return self._get(TRIGGERS, scope, trigger_key(id_argument(schedule_id, "schedule_id")))

    @override
    def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        return self._required(self.get(tenant_id, schedule_id), TRIGGERS, schedule_id.strip())

    @override
    def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        return self._page(TRIGGERS, queries.triggers(self._admit(tenant_id), limit, page_token))

    @override
    def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        scope, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        instant = instant_argument(now, "now")

        def rule(
            schedule: Row[Schedule] | None, trigger: Row[Trigger] | None
        ) -> tuple[Row[Schedule] | None, Row[Trigger] | None]:
            # Required inside the rule: there the schedule is locked, and cannot be removed before the trigger
            # is written.
            stored = schedule_of(self._required(schedule, SCHEDULES, key), self.driver)
            before = None if trigger is None else trigger.model
            return None, Row(rules.recalculated(before, stored, instant))

        _, trigger = self._change_pair(Ref(SCHEDULES, scope, (key,)), trigger_ref(scope, key), rule)
        return self._required(trigger, TRIGGERS, key).model
