"""Scheduler for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.storage import AsyncModuleStorage
from twinstore.scheduler.aio.audit import AsyncAuditRepository, AsyncSchedulerAuditService
from twinstore.scheduler.aio.execution_logs import AsyncExecutionLogRepository
from twinstore.scheduler.aio.graph_job_store import AsyncGraphJobStore
from twinstore.scheduler.aio.graph_jobs import AsyncGraphJobRepository
from twinstore.scheduler.aio.impact_snapshots import AsyncImpactSnapshotRepository
from twinstore.scheduler.aio.locks import AsyncDistributedLock
from twinstore.scheduler.aio.policy_jobs import AsyncPolicyJobRepository, AsyncPolicyRunService
from twinstore.scheduler.aio.run_summaries import AsyncRunSummaryRepository, AsyncRunSummaryService
from twinstore.scheduler.aio.runs import AsyncRunRepository
from twinstore.scheduler.aio.schedules import AsyncScheduleRepository
from twinstore.scheduler.aio.triggers import AsyncTriggerRepository
from twinstore.scheduler.aio.workers import AsyncWorkerRepository
from twinstore.scheduler.storage import SchedulerSession

if TYPE_CHECKING:
    from twinstore.aio.calls import CallThreads, SharedThreads
    from twinstore.scheduler.storage import SchedulerStorage


__all__ = [
    "AsyncAuditRepository",
    "AsyncDistributedLock",
    "AsyncExecutionLogRepository",
    "AsyncGraphJobRepository",
    "AsyncGraphJobStore",
    "AsyncImpactSnapshotRepository",
    "AsyncPolicyJobRepository",
    "AsyncPolicyRunService",
    "AsyncRunRepository",
    "AsyncRunSummaryRepository",
    "AsyncRunSummaryService",
    "AsyncScheduleRepository",
    "AsyncSchedulerAuditService",
    "AsyncSchedulerSession",
    "AsyncSchedulerStorage",
    "AsyncTriggerRepository",
    "AsyncWorkerRepository",
]


class AsyncSchedulerSession:
    """The repositories and services, bound or unbound as the session behind them."""

    def __init__(self, session: SchedulerSession, threads: CallThreads) -> None:
        """Take the synchronous session and the threads to call it in."""
        self.schedules = AsyncScheduleRepository(session.schedules, threads)
        self.triggers = AsyncTriggerRepository(session.triggers, threads)
        self.runs = AsyncRunRepository(session.runs, threads)
        self.execution_logs = AsyncExecutionLogRepository(session.execution_logs, threads)
        self.impact_snapshots = AsyncImpactSnapshotRepository(session.impact_snapshots, threads)
        self.audit = AsyncAuditRepository(session.audit, threads)
        self.run_summaries = AsyncRunSummaryRepository(session.run_summaries, threads)
        self.workers = AsyncWorkerRepository(session.workers, threads)
        self.policy_jobs = AsyncPolicyJobRepository(session.policy_jobs, threads)
        self.locks = AsyncDistributedLock(session.locks, threads)
        self.graph_jobs = AsyncGraphJobRepository(session.graph_jobs, threads)
        self.graph_job_store = AsyncGraphJobStore(session.graph_job_store, threads)
        self.run_summary_service = AsyncRunSummaryService(session.run_summary_service, threads)
        self.audit_service = AsyncSchedulerAuditService(session.audit_service, threads)
        self.policy_run_service = AsyncPolicyRunService(session.policy_run_service, threads)


class AsyncSchedulerStorage(
    AsyncModuleStorage[SchedulerSession, AsyncSchedulerSession], AsyncSchedulerSession
):
    """Repositories, services, sessions and units of work."""

    def __init__(self, storage: SchedulerStorage, threads: SharedThreads) -> None:
        """Take the synchronous storage and the threads to call it in."""
        super().__init__(storage, threads, AsyncSchedulerSession)
        AsyncSchedulerSession.__init__(self, storage.unbound, threads)
