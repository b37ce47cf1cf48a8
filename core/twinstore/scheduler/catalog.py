"""The entities of the scheduler, in the order in which they are copied."""

from __future__ import annotations

from typing import Final

from twinstore.catalog import Entity, Module, Retention
from twinstore.scheduler.audit import AuditRecord
from twinstore.scheduler.impact_snapshots import ImpactSet
from twinstore.scheduler.run_summaries import RunSummary
from twinstore.scheduler.runs import Run
from twinstore.scheduler.schedules import Schedule
from twinstore.scheduler.triggers import Trigger

__all__ = ["AUDIT", "IMPACT_SNAPSHOTS", "RUNS", "RUN_SUMMARIES", "SCHEDULER", "SCHEDULES", "TRIGGERS"]

MODULE: Final = "scheduler"

SCHEDULES: Final = Entity(
    name="schedules",
    singular="schedule",
    module=MODULE,
    model=Schedule,
    key=("id",),
    tenant_field="tenantId",
    group="definitions",
    markers=("deletedAt", "deletedBy"),
    marker_times=("deletedAt",),
)
TRIGGERS: Final = Entity(
    name="triggers",
    singular="trigger",
    module=MODULE,
    model=Trigger,
    key=("id",),
    tenant_field="tenantId",
    group="triggers",
)
RUNS: Final = Entity(
    name="runs",
    singular="run",
    module=MODULE,
    model=Run,
    key=("id",),
    tenant_field="tenantId",
    group="job_history",
    retention=Retention(field="finishedAt", option="run_retention_days"),
)
IMPACT_SNAPSHOTS: Final = Entity(
    name="impact_snapshots",
    singular="impact snapshot",
    module=MODULE,
    model=ImpactSet,
    key=("snapshotId",),
    tenant_field="tenantId",
    group="definitions",
    markers=("snapshotId", "tenantId", "runId", "selectorDigest"),
    retention=Retention(field="generatedAt", option="impact_retention_days"),
)
AUDIT: Final = Entity(
    name="audit",
    singular="audit record",
    module=MODULE,
    model=AuditRecord,
    key=("id",),
    tenant_field="tenantId",
    group="job_history",
    append_only=True,
)
RUN_SUMMARIES: Final = Entity(
    name="run_summaries",
    singular="run summary",
    module=MODULE,
    model=RunSummary,
    key=("tenantId", "scheduleId"),
    tenant_field="tenantId",
    group="metrics",
)

SCHEDULER: Final = Module(
    name=MODULE, entities=(SCHEDULES, TRIGGERS, RUNS, IMPACT_SNAPSHOTS, AUDIT, RUN_SUMMARIES)
)
