"""The scheduler for asyncio, as ``python -m twinstore.generate_aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.aio.threads import Worker as CallWorker
    from twinstore.paging import Page
    from twinstore.scheduler.audit import (
        AuditEvent,
        AuditQueryOptions,
        AuditRecord,
        AuditRepository,
        SchedulerAuditService,
    )
    from twinstore.scheduler.enums import RunState
    from twinstore.scheduler.impact_snapshots import ImpactSet, ImpactSnapshotRepository
    from twinstore.scheduler.run_summaries import RunSummary, RunSummaryRepository, RunSummaryService
    from twinstore.scheduler.runs import Run, RunQueryOptions, RunRepository
    from twinstore.scheduler.schedules import Schedule, ScheduleQueryOptions, ScheduleRepository, SoftDeletion
    from twinstore.scheduler.selectors import Selector
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore.scheduler.triggers import Trigger, TriggerRepository


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
]


class AsyncScheduleRepository:
    """Awaits a :class:`ScheduleRepository`, whose contracts hold."""

    def __init__(self, sync: ScheduleRepository, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def get(
        self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False
    ) -> Schedule | None:
        """Return one schedule."""
        return await self._worker.run(self._sync.get, tenant_id, schedule_id, include_deleted=include_deleted)

    async def get_required(
        self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False
    ) -> Schedule:
        """Return one schedule as :meth:`get` does."""
        return await self._worker.run(
            self._sync.get_required, tenant_id, schedule_id, include_deleted=include_deleted
        )

    async def get_deletion(self, tenant_id: str, schedule_id: str) -> SoftDeletion | None:
        """Return the deletion markers of a soft-deleted schedule."""
        return await self._worker.run(self._sync.get_deletion, tenant_id, schedule_id)

    async def list(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> Page[Schedule]:
        """Return a page of schedules."""
        return await self._worker.run(self._sync.list, tenant_id, options)

    async def upsert(self, schedule: Schedule, *, expected_updated_at: datetime | None = None) -> Schedule:
        """Insert a schedule, or replace the caller's own one; return what is stored."""
        return await self._worker.run(self._sync.upsert, schedule, expected_updated_at=expected_updated_at)

    async def soft_delete(
        self, tenant_id: str, schedule_id: str, deleted_by: str, deleted_at: datetime
    ) -> bool:
        """Mark a schedule as deleted and disable it and its trigger, in one transaction."""
        return await self._worker.run(self._sync.soft_delete, tenant_id, schedule_id, deleted_by, deleted_at)

    async def restore(
        self,
        tenant_id: str,
        schedule_id: str,
        restored_by: str,
        restored_at: datetime,
        *,
        enabled: bool = False,
    ) -> bool:
        """Clear the deletion markers, in one transaction with the trigger."""
        return await self._worker.run(
            self._sync.restore, tenant_id, schedule_id, restored_by, restored_at, enabled=enabled
        )

    async def get_due_schedules(self, now: datetime, *, limit: int = 100) -> tuple[Schedule, ...]:
        """Return the schedules of all tenants that are due at ``now``; reads only, in system scope."""
        return await self._worker.run(self._sync.get_due_schedules, now, limit=limit)


class AsyncTriggerRepository:
    """Awaits a :class:`TriggerRepository`, whose contracts hold."""

    def __init__(self, sync: TriggerRepository, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        """Return the trigger of a schedule. Absent: ``None`` when unknown or foreign."""
        return await self._worker.run(self._sync.get, tenant_id, schedule_id)

    async def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        """Return the trigger of a schedule as :meth:`get` does."""
        return await self._worker.run(self._sync.get_required, tenant_id, schedule_id)

    async def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        """Return a page of triggers."""
        return await self._worker.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        """Set the next instant strictly after ``now`` from the stored schedule; return the trigger."""
        return await self._worker.run(self._sync.recalculate, tenant_id, schedule_id, now)


class AsyncRunRepository:
    """Awaits a :class:`RunRepository`, whose contracts hold."""

    def __init__(self, sync: RunRepository, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def get(self, tenant_id: str, run_id: str) -> Run | None:
        """Return one run. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        return await self._worker.run(self._sync.get, tenant_id, run_id)

    async def get_required(self, tenant_id: str, run_id: str) -> Run:
        """Return one run as :meth:`get` does."""
        return await self._worker.run(self._sync.get_required, tenant_id, run_id)

    async def list(self, tenant_id: str, options: RunQueryOptions | None = None) -> Page[Run]:
        """Return a page of runs."""
        return await self._worker.run(self._sync.list, tenant_id, options)

    async def create(self, run: Run) -> Run:
        """Insert a new run; return it. Repeated call: ``DuplicateError``."""
        return await self._worker.run(self._sync.create, run)

    async def update(self, run: Run, *, expected_state: RunState | None = None) -> bool:
        """Replace the stored run if the move is allowed; the check and the write are one atomic step."""
        return await self._worker.run(self._sync.update, run, expected_state=expected_state)

    async def get_pending_runs(
        self, tenant_id: str, *, limit: int = 200, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs in ``planning`` or ``queued``."""
        return await self._worker.run(
            self._sync.get_pending_runs, tenant_id, limit=limit, page_token=page_token
        )

    async def get_runs_by_schedule(
        self, tenant_id: str, schedule_id: str, limit: int, *, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs of a schedule."""
        return await self._worker.run(
            self._sync.get_runs_by_schedule, tenant_id, schedule_id, limit, page_token=page_token
        )

    async def list_by_state(
        self, state: RunState, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs of all tenants in one state; system scope."""
        return await self._worker.run(self._sync.list_by_state, state, limit=limit, page_token=page_token)

    async def retry(
        self, tenant_id: str, run_id: str, requested_by: str, now: datetime, *, new_run_id: str | None = None
    ) -> Run:
        """Create a new run in ``planning`` from a terminal one; the origin stays as it is."""
        return await self._worker.run(
            self._sync.retry, tenant_id, run_id, requested_by, now, new_run_id=new_run_id
        )

    async def purge_finished(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove the runs with ``finishedAt <= before``, oldest first; return how many."""
        return await self._worker.run(
            self._sync.purge_finished, before, tenant_id=tenant_id, batch_size=batch_size
        )


class AsyncImpactSnapshotRepository:
    """Awaits a :class:`ImpactSnapshotRepository`, whose contracts hold."""

    def __init__(self, sync: ImpactSnapshotRepository, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def upsert(self, tenant_id: str, snapshot: ImpactSet, *, run_id: str | None = None) -> str:
        """Store a snapshot and return its id (its own, or the derived one)."""
        return await self._worker.run(self._sync.upsert, tenant_id, snapshot, run_id=run_id)

    async def get(self, tenant_id: str, snapshot_id: str) -> ImpactSet | None:
        """Return one snapshot. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        return await self._worker.run(self._sync.get, tenant_id, snapshot_id)

    async def get_required(self, tenant_id: str, snapshot_id: str) -> ImpactSet:
        """Return one snapshot as :meth:`get` does."""
        return await self._worker.run(self._sync.get_required, tenant_id, snapshot_id)

    async def get_latest_by_selector(self, tenant_id: str, selector: Selector) -> ImpactSet | None:
        """Return the newest snapshot of a selector, compared by its digest."""
        return await self._worker.run(self._sync.get_latest_by_selector, tenant_id, selector)

    async def list_by_run(
        self, tenant_id: str, run_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of the snapshots of a run."""
        return await self._worker.run(
            self._sync.list_by_run, tenant_id, run_id, limit=limit, page_token=page_token
        )

    async def list(
        self, tenant_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[ImpactSet]:
        """Return a page of all snapshots of a tenant."""
        return await self._worker.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def delete(self, tenant_id: str, snapshot_id: str) -> bool:
        """Remove one snapshot. Absent, foreign or repeated: false."""
        return await self._worker.run(self._sync.delete, tenant_id, snapshot_id)

    async def purge_generated(
        self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500
    ) -> int:
        """Remove the snapshots with ``generatedAt <= before``, oldest first; return how many."""
        return await self._worker.run(
            self._sync.purge_generated, before, tenant_id=tenant_id, batch_size=batch_size
        )


class AsyncAuditRepository:
    """Awaits a :class:`AuditRepository`, whose contracts hold."""

    def __init__(self, sync: AuditRepository, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def append(self, record: AuditRecord) -> AuditRecord:
        """Store a record and return it. Repeated call with an identical record: a no-op. Atomic."""
        return await self._worker.run(self._sync.append, record)

    async def get(self, tenant_id: str, audit_id: str) -> AuditRecord | None:
        """Return one record. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        return await self._worker.run(self._sync.get, tenant_id, audit_id)

    async def get_required(self, tenant_id: str, audit_id: str) -> AuditRecord:
        """Return one record as :meth:`get` does."""
        return await self._worker.run(self._sync.get_required, tenant_id, audit_id)

    async def list(self, tenant_id: str, options: AuditQueryOptions | None = None) -> Page[AuditRecord]:
        """Return a page of records."""
        return await self._worker.run(self._sync.list, tenant_id, options)


class AsyncRunSummaryRepository:
    """Awaits a :class:`RunSummaryRepository`, whose contracts hold."""

    def __init__(self, sync: RunSummaryRepository, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule. Absent: ``None`` when unknown or foreign."""
        return await self._worker.run(self._sync.get, tenant_id, schedule_id)

    async def get_required(self, tenant_id: str, schedule_id: str) -> RunSummary:
        """Return the summary of a schedule as :meth:`get` does."""
        return await self._worker.run(self._sync.get_required, tenant_id, schedule_id)

    async def list(
        self, tenant_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[RunSummary]:
        """Return a page of summaries."""
        return await self._worker.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
        """Insert or replace a summary; return what is stored. Repeated call: same result. Atomic."""
        return await self._worker.run(self._sync.upsert, summary, expected_updated_at=expected_updated_at)

    async def modify(
        self, tenant_id: str, schedule_id: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        """Read, change and write one summary as one serialised step; return what is stored afterwards."""
        return await self._worker.run(self._sync.modify, tenant_id, schedule_id, change)


class AsyncRunSummaryService:
    """Awaits a :class:`RunSummaryService`, whose contracts hold."""

    def __init__(self, sync: RunSummaryService, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def project(self, run: Run, *, now: datetime | None = None) -> RunSummary | None:
        """Project one update of a run; return the summary, ``None`` for a run without schedule."""
        return await self._worker.run(self._sync.project, run, now=now)

    async def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule. Absent: ``None``."""
        return await self._worker.run(self._sync.get, tenant_id, schedule_id)

    async def list(
        self, tenant_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[RunSummary]:
        """Return a page of summaries in the order of :meth:`RunSummaryRepository.list`."""
        return await self._worker.run(self._sync.list, tenant_id, limit=limit, page_token=page_token)

    async def rebuild(
        self, tenant_id: str, schedule_id: str, *, now: datetime | None = None
    ) -> RunSummary | None:
        """Recompute the window from the stored runs; ``None`` when there is neither a run nor a summary."""
        return await self._worker.run(self._sync.rebuild, tenant_id, schedule_id, now=now)


class AsyncSchedulerAuditService:
    """Awaits a :class:`SchedulerAuditService`, whose contracts hold."""

    def __init__(self, sync: SchedulerAuditService, worker: CallWorker) -> None:
        """Take the synchronous answer and the threads to call it in."""
        self._sync = sync
        self._worker = worker

    async def write(self, event: AuditEvent) -> AuditRecord:
        """Stamp id and instant where absent, merge the default metadata below the event's, and append."""
        return await self._worker.run(self._sync.write, event)


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
        self.run_summary_service = AsyncRunSummaryService(session.run_summary_service, worker)
        self.audit_service = AsyncSchedulerAuditService(session.audit_service, worker)
