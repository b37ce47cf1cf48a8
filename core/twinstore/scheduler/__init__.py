"""The scheduler: its models, repositories and services."""

from __future__ import annotations

from twinstore.scheduler.audit import (
    AuditActor,
    AuditEvent,
    AuditQueryOptions,
    AuditRecord,
    AuditRepository,
    SchedulerAuditService,
)
from twinstore.scheduler.enums import RunState, RunTrigger, ScheduleMode, SelectorScope, SeverityRank
from twinstore.scheduler.impact_snapshots import ImpactImage, ImpactSet, ImpactSnapshotRepository
from twinstore.scheduler.run_summaries import (
    RunSnapshot,
    RunSummary,
    RunSummaryCounters,
    RunSummaryRepository,
    RunSummaryService,
)
from twinstore.scheduler.runs import (
    Attestation,
    DeltaSummary,
    Run,
    RunQueryOptions,
    RunReason,
    RunRepository,
    RunStats,
    TopFinding,
)
from twinstore.scheduler.schedules import (
    Schedule,
    ScheduleLimits,
    ScheduleNotify,
    ScheduleOnlyIf,
    ScheduleQueryOptions,
    ScheduleRepository,
    SoftDeletion,
)
from twinstore.scheduler.selectors import LabelFilter, Selector, selector_digest
from twinstore.scheduler.triggers import Trigger, TriggerRepository, trigger_id
from twinstore.scheduler.workers import Worker, WorkerRepository, WorkerStatus

__all__ = [
    "Attestation",
    "AuditActor",
    "AuditEvent",
    "AuditQueryOptions",
    "AuditRecord",
    "AuditRepository",
    "DeltaSummary",
    "ImpactImage",
    "ImpactSet",
    "ImpactSnapshotRepository",
    "LabelFilter",
    "Run",
    "RunQueryOptions",
    "RunReason",
    "RunRepository",
    "RunSnapshot",
    "RunState",
    "RunStats",
    "RunSummary",
    "RunSummaryCounters",
    "RunSummaryRepository",
    "RunSummaryService",
    "RunTrigger",
    "Schedule",
    "ScheduleLimits",
    "ScheduleMode",
    "ScheduleNotify",
    "ScheduleOnlyIf",
    "ScheduleQueryOptions",
    "ScheduleRepository",
    "SchedulerAuditService",
    "Selector",
    "SelectorScope",
    "SeverityRank",
    "SoftDeletion",
    "TopFinding",
    "Trigger",
    "TriggerRepository",
    "Worker",
    "WorkerRepository",
    "WorkerStatus",
    "selector_digest",
    "trigger_id",
]
