"""The storage of the scheduler: its repositories and services over one driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.scheduler.options import SchedulerOptions
from twinstore.scheduler.policy_service import PolicyRuns
from twinstore.scheduler.repositories import Repositories
from twinstore.scheduler.services import AuditService, SummaryService
from twinstore.storage.module import ModuleStorage

if TYPE_CHECKING:
    from twinstore.scheduler.audit import AuditRepository, SchedulerAuditService
    from twinstore.scheduler.execution_logs import ExecutionLogRepository
    from twinstore.scheduler.graph_job_store import GraphJobStore
    from twinstore.scheduler.graph_jobs import GraphJobRepository
    from twinstore.scheduler.impact_snapshots import ImpactSnapshotRepository
    from twinstore.scheduler.locks import DistributedLock
    from twinstore.scheduler.policy_jobs import PolicyJobRepository, PolicyRunService
    from twinstore.scheduler.run_summaries import RunSummaryRepository, RunSummaryService
    from twinstore.scheduler.runs import RunRepository
    from twinstore.scheduler.schedules import ScheduleRepository
    from twinstore.scheduler.triggers import TriggerRepository
    from twinstore.scheduler.workers import WorkerRepository

__all__ = ["SchedulerSession", "SchedulerStorage"]

DEFAULTS: Final = SchedulerOptions()


@dataclass(frozen=True, eq=False, repr=False)
class SchedulerSession:
    """The repositories and services of the scheduler: a session, a unit of work, or the storage itself."""

    schedules: ScheduleRepository
    triggers: TriggerRepository
    runs: RunRepository
    execution_logs: ExecutionLogRepository
    impact_snapshots: ImpactSnapshotRepository
    audit: AuditRepository
    run_summaries: RunSummaryRepository
    workers: WorkerRepository
    policy_jobs: PolicyJobRepository
    locks: DistributedLock
    graph_jobs: GraphJobRepository
    graph_job_store: GraphJobStore
    run_summary_service: RunSummaryService
    audit_service: SchedulerAuditService
    policy_run_service: PolicyRunService


class SchedulerStorage(ModuleStorage[Repositories, SchedulerSession], SchedulerSession):
    """What a host holds. It connects on first use and closes only what it opened."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> SchedulerSession:
        options = self._options if isinstance(self._options, SchedulerOptions) else DEFAULTS
        return SchedulerSession(
            schedules=repositories.schedules,
            triggers=repositories.triggers,
            runs=repositories.runs,
            execution_logs=repositories.execution_logs,
            impact_snapshots=repositories.impact_snapshots,
            audit=repositories.audit,
            run_summaries=repositories.run_summaries,
            workers=repositories.workers,
            policy_jobs=repositories.policy_jobs,
            locks=repositories.locks,
            graph_jobs=repositories.graph_jobs,
            graph_job_store=repositories.graph_job_store,
            run_summary_service=SummaryService(
                repositories.run_summaries, repositories.runs, self._clock, in_unit=in_unit
            ),
            audit_service=AuditService(repositories.audit, self._clock, options.audit_metadata),
            policy_run_service=PolicyRuns(repositories.policy_jobs, self._clock, in_unit=in_unit),
        )
