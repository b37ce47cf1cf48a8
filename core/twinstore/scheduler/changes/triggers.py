"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Count, Flag, Id, OptionalReference, TenantId, Timestamp
from twinstore.scheduler.schedules import CronText, TimezoneName

__all__ = ["TriggerChanges"]


class TriggerChanges(TypedDict, total=False):
    """What ``Trigger.evolve`` may change."""

    id: Id
    tenant_id: TenantId
    schedule_id: Id
    when_cron: CronText
    timezone: TimezoneName
    enabled: Flag
    next_fire_at: Timestamp | None
    last_fire_at: Timestamp | None
    last_run_id: OptionalReference
    fire_count: Count
    misfire_count: Count
    created_at: Timestamp
    updated_at: Timestamp
