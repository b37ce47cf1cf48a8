"""The scheduler: its models, repositories and services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.runtime.lazy import from_submodules

if TYPE_CHECKING:
    from twinstore.scheduler.audit import (
        AuditActor,
        AuditEvent,
        AuditQueryOptions,
        AuditRecord,
        AuditRepository,
        SchedulerAuditService,
    )
    from twinstore.scheduler.enums import (
        GraphBuildTrigger,
        GraphJobEventKind,
        GraphJobStatus,
        GraphJobType,
        GraphOverlayKind,
        GraphOverlayTrigger,
        LogLevel,
        PolicyRunExecutionStatus,
        PolicyRunJobStatus,
        PolicyRunMode,
        PolicyRunPriority,
        RunState,
        RunTrigger,
        ScheduleMode,
        SelectorScope,
        SeverityRank,
    )
    from twinstore.scheduler.execution_logs import ExecutionLogEntry, ExecutionLogRepository
    from twinstore.scheduler.graph_job_store import GraphJobResponse, GraphJobStore
    from twinstore.scheduler.graph_jobs import (
        GraphBuildJob,
        GraphJob,
        GraphJobEvent,
        GraphJobEventPayload,
        GraphJobRepository,
        GraphOverlayJob,
        new_graph_build_job_id,
        new_graph_overlay_job_id,
    )
    from twinstore.scheduler.impact_snapshots import ImpactImage, ImpactSet, ImpactSnapshotRepository
    from twinstore.scheduler.locks import DistributedLock, LockHandle, LockInfo
    from twinstore.scheduler.policy_jobs import (
        PolicyJobQueryOptions,
        PolicyJobRepository,
        PolicyRunInputs,
        PolicyRunJob,
        PolicyRunRequest,
        PolicyRunService,
        PolicyRunStats,
        PolicyRunStatus,
        policy_job_id,
    )
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
        ScheduleClaim,
        ScheduleLimits,
        ScheduleNotify,
        ScheduleOnlyIf,
        ScheduleQueryOptions,
        ScheduleRepository,
        SoftDeletion,
    )
    from twinstore.scheduler.selectors import LabelFilter, Selector, selector_digest
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
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
    "DistributedLock",
    "ExecutionLogEntry",
    "ExecutionLogRepository",
    "GraphBuildJob",
    "GraphBuildTrigger",
    "GraphJob",
    "GraphJobEvent",
    "GraphJobEventKind",
    "GraphJobEventPayload",
    "GraphJobRepository",
    "GraphJobResponse",
    "GraphJobStatus",
    "GraphJobStore",
    "GraphJobType",
    "GraphOverlayJob",
    "GraphOverlayKind",
    "GraphOverlayTrigger",
    "ImpactImage",
    "ImpactSet",
    "ImpactSnapshotRepository",
    "LabelFilter",
    "LockHandle",
    "LockInfo",
    "LogLevel",
    "PolicyJobQueryOptions",
    "PolicyJobRepository",
    "PolicyRunExecutionStatus",
    "PolicyRunInputs",
    "PolicyRunJob",
    "PolicyRunJobStatus",
    "PolicyRunMode",
    "PolicyRunPriority",
    "PolicyRunRequest",
    "PolicyRunService",
    "PolicyRunStats",
    "PolicyRunStatus",
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
    "ScheduleClaim",
    "ScheduleLimits",
    "ScheduleMode",
    "ScheduleNotify",
    "ScheduleOnlyIf",
    "ScheduleQueryOptions",
    "ScheduleRepository",
    "SchedulerAuditService",
    "SchedulerSession",
    "SchedulerStorage",
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
    "new_graph_build_job_id",
    "new_graph_overlay_job_id",
    "policy_job_id",
    "selector_digest",
    "trigger_id",
]

if not TYPE_CHECKING:
    # Every application reads the plug-in of the module, and importing it imports this package.
    __getattr__ = from_submodules(
        __name__,
        __all__,
        (
            "audit",
            "enums",
            "execution_logs",
            "graph_job_store",
            "graph_jobs",
            "impact_snapshots",
            "policy_jobs",
            "locks",
            "run_summaries",
            "runs",
            "schedules",
            "selectors",
            "storage",
            "triggers",
            "workers",
        ),
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
