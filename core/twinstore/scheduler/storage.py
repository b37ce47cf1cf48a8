"""The storage of the scheduler: its repositories and services over one driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from typing_extensions import override

from twinstore.scheduler.options import SchedulerOptions
from twinstore.scheduler.policy_service import PolicyRuns
from twinstore.scheduler.repositories import Repositories
from twinstore.scheduler.services import AuditService, SummaryService
from twinstore.storage.module import ModuleStorage

if TYPE_CHECKING:
    from twinstore.clock import Clock
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

DEFAULTS: Final = SchedulerOptions()


@dataclass(frozen=True, slots=True)
class SchedulerSession:
    """The repositories and services of the scheduler, bound to one session or unit of work, or unbound."""

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

    @classmethod
    def over(
        cls,
        repositories: Repositories,
        clock: Clock,
        *,
        in_unit: bool = False,
        options: SchedulerOptions = DEFAULTS,
    ) -> Self:
        """Return the repositories of a driver with the services over them.

        Args:
            repositories: those of the driver.
            clock: the clock of the services.
            in_unit: they belong to a transaction, in which nothing can be repeated after it lost.
            options: what the host has tuned.
        """
        return cls(
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
                repositories.run_summaries, repositories.runs, clock, in_unit=in_unit
            ),
            audit_service=AuditService(repositories.audit, clock, options.audit_metadata),
            policy_run_service=PolicyRuns(repositories.policy_jobs, clock, in_unit=in_unit),
        )


class SchedulerStorage(ModuleStorage[Repositories, SchedulerSession]):
    """What a host holds. It connects on first use and closes only what it opened."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> SchedulerSession:
        options = self._options if isinstance(self._options, SchedulerOptions) else DEFAULTS
        return SchedulerSession.over(repositories, self._clock, in_unit=in_unit, options=options)

    @property
    def schedules(self) -> ScheduleRepository:
        """Schedules."""
        return self.unbound.schedules

    @property
    def triggers(self) -> TriggerRepository:
        """Triggers."""
        return self.unbound.triggers

    @property
    def runs(self) -> RunRepository:
        """Runs."""
        return self.unbound.runs

    @property
    def execution_logs(self) -> ExecutionLogRepository:
        """Logs of runs."""
        return self.unbound.execution_logs

    @property
    def impact_snapshots(self) -> ImpactSnapshotRepository:
        """Impact snapshots."""
        return self.unbound.impact_snapshots

    @property
    def audit(self) -> AuditRepository:
        """Audit records."""
        return self.unbound.audit

    @property
    def run_summaries(self) -> RunSummaryRepository:
        """Run summaries."""
        return self.unbound.run_summaries

    @property
    def workers(self) -> WorkerRepository:
        """Workers."""
        return self.unbound.workers

    @property
    def policy_jobs(self) -> PolicyJobRepository:
        """Policy jobs."""
        return self.unbound.policy_jobs

    @property
    def locks(self) -> DistributedLock:
        """Locks that exclude each other in all processes that share the store."""
        return self.unbound.locks

    @property
    def graph_jobs(self) -> GraphJobRepository:
        """Graph jobs and their events."""
        return self.unbound.graph_jobs

    @property
    def graph_job_store(self) -> GraphJobStore:
        """Graph jobs of which each change leaves an event."""
        return self.unbound.graph_job_store

    @property
    def run_summary_service(self) -> RunSummaryService:
        """Projects run updates into run summaries."""
        return self.unbound.run_summary_service

    @property
    def audit_service(self) -> SchedulerAuditService:
        """Stamps and writes audit records."""
        return self.unbound.audit_service

    @property
    def policy_run_service(self) -> PolicyRunService:
        """Accepts requests for policy runs and reports their status."""
        return self.unbound.policy_run_service
