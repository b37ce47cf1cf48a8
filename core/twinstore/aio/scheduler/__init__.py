"""The scheduler for asyncio, as ``python -m twinstore.generate_aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.scheduler.audit import AsyncAuditRepository, AsyncSchedulerAuditService
from twinstore.aio.scheduler.impact_snapshots import AsyncImpactSnapshotRepository
from twinstore.aio.scheduler.run_summaries import AsyncRunSummaryRepository, AsyncRunSummaryService
from twinstore.aio.scheduler.runs import AsyncRunRepository
from twinstore.aio.scheduler.schedules import AsyncScheduleRepository
from twinstore.aio.scheduler.triggers import AsyncTriggerRepository
from twinstore.aio.scheduler.workers import AsyncWorkerRepository

if TYPE_CHECKING:
    from twinstore.aio.threads import Worker as CallWorker
    from twinstore.scheduler.storage import SchedulerSession


__all__ = [
    "AsyncAuditRepository",
    "AsyncImpactSnapshotRepository",
    "AsyncRunRepository",
    "AsyncRunSummaryRepository",
    "AsyncRunSummaryService",
    "AsyncScheduleRepository",
    "AsyncSchedulerAuditService",
    "AsyncSchedulerSession",
    "AsyncTriggerRepository",
    "AsyncWorkerRepository",
]


class AsyncSchedulerSession:
    """The repositories and services, bound or unbound as the session behind them."""

    def __init__(self, session: SchedulerSession, worker: CallWorker) -> None:
        """Take the synchronous session and the threads to call it in."""
        self.schedules = AsyncScheduleRepository(session.schedules, worker)
        self.triggers = AsyncTriggerRepository(session.triggers, worker)
        self.runs = AsyncRunRepository(session.runs, worker)
        self.impact_snapshots = AsyncImpactSnapshotRepository(session.impact_snapshots, worker)
        self.audit = AsyncAuditRepository(session.audit, worker)
        self.run_summaries = AsyncRunSummaryRepository(session.run_summaries, worker)
        self.workers = AsyncWorkerRepository(session.workers, worker)
        self.run_summary_service = AsyncRunSummaryService(session.run_summary_service, worker)
        self.audit_service = AsyncSchedulerAuditService(session.audit_service, worker)
