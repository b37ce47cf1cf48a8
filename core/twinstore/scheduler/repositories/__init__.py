"""The repositories of the scheduler, written once over :class:`~twinstore.access.protocol.Access`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from twinstore.scheduler.repositories.audit import AuditRecords
from twinstore.scheduler.repositories.execution_logs import ExecutionLogs
from twinstore.scheduler.repositories.graph_jobs import GraphJobEventStore, GraphJobs
from twinstore.scheduler.repositories.impact_snapshots import ImpactSnapshots
from twinstore.scheduler.repositories.locks import Locks
from twinstore.scheduler.repositories.policy_jobs import PolicyJobs
from twinstore.scheduler.repositories.run_summaries import RunSummaries
from twinstore.scheduler.repositories.runs import Runs
from twinstore.scheduler.repositories.schedules import Schedules
from twinstore.scheduler.repositories.triggers import Triggers
from twinstore.scheduler.repositories.workers import Workers

if TYPE_CHECKING:
    from twinstore.access.protocol import Access

__all__ = [
    "AuditRecords",
    "ExecutionLogs",
    "GraphJobEventStore",
    "GraphJobs",
    "ImpactSnapshots",
    "Locks",
    "PolicyJobs",
    "Repositories",
    "RunSummaries",
    "Runs",
    "Schedules",
    "Triggers",
    "Workers",
]


@dataclass(frozen=True, slots=True)
class Repositories:
    """All of them over one access; a driver is asked for nothing else."""

    schedules: Schedules
    triggers: Triggers
    runs: Runs
    execution_logs: ExecutionLogs
    impact_snapshots: ImpactSnapshots
    audit: AuditRecords
    run_summaries: RunSummaries
    workers: Workers
    policy_jobs: PolicyJobs
    locks: Locks
    graph_jobs: GraphJobs
    graph_job_store: GraphJobEventStore

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(
            schedules=Schedules(access),
            triggers=Triggers(access),
            runs=Runs(access),
            execution_logs=ExecutionLogs(access),
            impact_snapshots=ImpactSnapshots(access),
            audit=AuditRecords(access),
            run_summaries=RunSummaries(access),
            workers=Workers(access),
            policy_jobs=PolicyJobs(access),
            locks=Locks(access),
            graph_jobs=GraphJobs(access),
            graph_job_store=GraphJobEventStore(access),
        )
