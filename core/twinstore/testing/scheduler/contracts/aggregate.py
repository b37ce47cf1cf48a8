"""All contracts of the scheduler in one class."""

from __future__ import annotations

from twinstore.testing.contracts.module import ModuleContract
from twinstore.testing.scheduler.contracts.audit import AuditRepositoryContract, AuditServiceContract
from twinstore.testing.scheduler.contracts.bulk import SchedulerBulkContract
from twinstore.testing.scheduler.contracts.capabilities import SchedulerCapabilitiesContract
from twinstore.testing.scheduler.contracts.decoding import BrokenRowContract
from twinstore.testing.scheduler.contracts.due import DueScheduleContract
from twinstore.testing.scheduler.contracts.execution_logs import ExecutionLogContract
from twinstore.testing.scheduler.contracts.firing import FiringContract
from twinstore.testing.scheduler.contracts.graph_jobs import (
    GraphJobEventContract,
    GraphJobRepositoryContract,
    GraphJobStoreContract,
)
from twinstore.testing.scheduler.contracts.impact_snapshots import ImpactSnapshotRepositoryContract
from twinstore.testing.scheduler.contracts.isolation import SchedulerIsolationContract
from twinstore.testing.scheduler.contracts.joining import SchedulerJoiningContract
from twinstore.testing.scheduler.contracts.locks import LockContract
from twinstore.testing.scheduler.contracts.paging import FilteredListContract
from twinstore.testing.scheduler.contracts.policy_claims import PolicyClaimContract
from twinstore.testing.scheduler.contracts.policy_jobs import PolicyJobContract
from twinstore.testing.scheduler.contracts.policy_runs import PolicyRunServiceContract
from twinstore.testing.scheduler.contracts.probe import SchedulerProbeContract
from twinstore.testing.scheduler.contracts.races import SchedulerRaceContract
from twinstore.testing.scheduler.contracts.range_writer import SchedulerRangeWriterContract
from twinstore.testing.scheduler.contracts.run_states import RunStateContract
from twinstore.testing.scheduler.contracts.run_summaries import (
    RunSummaryRepositoryContract,
    RunSummaryServiceContract,
)
from twinstore.testing.scheduler.contracts.runs import RunRepositoryContract
from twinstore.testing.scheduler.contracts.schedules import ScheduleRepositoryContract
from twinstore.testing.scheduler.contracts.sessions import SchedulerSessionContract
from twinstore.testing.scheduler.contracts.transactions import SchedulerTransactionContract
from twinstore.testing.scheduler.contracts.triggers import TriggerRepositoryContract
from twinstore.testing.scheduler.contracts.values import SchedulerValueContract
from twinstore.testing.scheduler.contracts.workers import WorkerRepositoryContract

__all__ = ["SchedulerContract"]


class SchedulerContract(
    ScheduleRepositoryContract,
    DueScheduleContract,
    TriggerRepositoryContract,
    FiringContract,
    RunRepositoryContract,
    RunStateContract,
    ExecutionLogContract,
    ImpactSnapshotRepositoryContract,
    AuditRepositoryContract,
    AuditServiceContract,
    RunSummaryRepositoryContract,
    RunSummaryServiceContract,
    WorkerRepositoryContract,
    PolicyJobContract,
    PolicyClaimContract,
    PolicyRunServiceContract,
    LockContract,
    GraphJobRepositoryContract,
    GraphJobEventContract,
    GraphJobStoreContract,
    SchedulerBulkContract,
    SchedulerCapabilitiesContract,
    BrokenRowContract,
    SchedulerIsolationContract,
    SchedulerJoiningContract,
    FilteredListContract,
    SchedulerProbeContract,
    SchedulerRaceContract,
    SchedulerRangeWriterContract,
    SchedulerSessionContract,
    SchedulerTransactionContract,
    SchedulerValueContract,
    ModuleContract,
):
    """Everything that a driver of the scheduler must do."""
