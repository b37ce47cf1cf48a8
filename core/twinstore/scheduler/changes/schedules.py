"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import (
    Actor,
    Count,
    Flag,
    Id,
    Name,
    OptionalText,
    PositiveInt,
    StringSet,
    TenantId,
    Timestamp,
)
from twinstore.scheduler.enums import ScheduleMode, SeverityRank
from twinstore.scheduler.schedules import (
    CronText,
    ScheduleLimits,
    ScheduleNotify,
    ScheduleOnlyIf,
    TimezoneName,
)
from twinstore.scheduler.selectors import Selector

__all__ = [
    "ScheduleChanges",
    "ScheduleLimitsChanges",
    "ScheduleNotifyChanges",
    "ScheduleOnlyIfChanges",
    "SoftDeletionChanges",
]


class ScheduleChanges(TypedDict, total=False):
    """What ``Schedule.evolve`` may change."""

    schema_version: str
    id: Id
    tenant_id: TenantId
    name: Name
    enabled: Flag
    when_cron: CronText
    timezone: TimezoneName
    mode: ScheduleMode
    selection: Selector
    only_if: ScheduleOnlyIf
    notify: ScheduleNotify
    limits: ScheduleLimits
    subscribers: StringSet
    created_at: Timestamp
    created_by: Actor
    updated_at: Timestamp
    updated_by: Actor


class ScheduleLimitsChanges(TypedDict, total=False):
    """What ``ScheduleLimits.evolve`` may change."""

    max_jobs: PositiveInt | None
    rate_per_second: PositiveInt | None
    parallelism: PositiveInt | None
    burst: PositiveInt | None


class ScheduleNotifyChanges(TypedDict, total=False):
    """What ``ScheduleNotify.evolve`` may change."""

    on_new_findings: Flag
    min_severity: SeverityRank | None
    include_kev: Flag
    include_quiet_findings: Flag


class ScheduleOnlyIfChanges(TypedDict, total=False):
    """What ``ScheduleOnlyIf.evolve`` may change."""

    last_report_older_than_days: Count | None
    policy_revision: OptionalText


class SoftDeletionChanges(TypedDict, total=False):
    """What ``SoftDeletion.evolve`` may change."""

    deleted_at: Timestamp
    deleted_by: Actor
