"""Triggers on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.missing import not_found, required
from twinstore.scope import id_argument, instant_argument
from twinstore_postgres.errors import Subject
from twinstore_postgres.listing import page_of
from twinstore_postgres.scheduler.pairs import lock_pair, save_trigger
from twinstore_postgres.scheduler.tables import TRIGGERS_TABLE
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.scheduler.triggers import Trigger
    from twinstore_postgres.work import Steps, Work

__all__ = ["PostgresTriggerRepository"]

SELECT: Final = TRIGGERS_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE schedule_id = %s AND tenant_id = %s"
)


class PostgresTriggerRepository:
    """Implements :class:`~twinstore.scheduler.triggers.TriggerRepository`."""

    def __init__(self, work: Work) -> None:
        """Take the access to the server."""
        self._work = work

    def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        """Return the trigger of a schedule; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        row = self._work.one(tenant, Subject(TRIGGERS, key), SELECT, (key, tenant))
        return None if row is None else TRIGGERS_TABLE.decode(row)

    def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        """Return the trigger of a schedule or raise; see the Protocol."""
        return required(self.get(tenant_id, schedule_id), TRIGGERS, schedule_id.strip(), DRIVER)

    def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        """Return a page of triggers; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        return page_of(self._work, tenant, queries.triggers(tenant, limit, page_token), TRIGGERS_TABLE)

    def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        """Set the next instant from the stored schedule; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        instant = instant_argument(now, "now")

        def once() -> Trigger:
            with self._work.unit(tenant, Subject(TRIGGERS, key)) as steps:
                return recalculate_trigger(steps, tenant, key, instant)

        return self._work.repeat(once)


def recalculate_trigger(steps: Steps, tenant: str, key: str, now: datetime) -> Trigger:
    """Lock both rows, ask the rule, and write the trigger."""
    stored, trigger = lock_pair(steps, tenant, key)
    if stored is None:
        raise not_found(SCHEDULES, key, DRIVER)
    changed = rules.recalculated(trigger, stored, now)
    steps.run(save_trigger(changed))
    return changed
