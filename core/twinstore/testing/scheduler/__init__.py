"""The kit of the scheduler: what its drivers must do, and what cannot be derived from its description.

``SchedulerContract`` is the sum of the contracts named here and of those that hold for every module. The
modules ``builders`` and ``strategies`` make valid models for any test. Needs ``twinstore[testing]``.
"""

from __future__ import annotations

from twinstore.testing.contracts.driver import ModuleContract
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.contracts.audit import AuditRepositoryContract, AuditServiceContract
from twinstore.testing.scheduler.contracts.bulk import SchedulerBulkContract, SchedulerRangeWriterContract
from twinstore.testing.scheduler.contracts.capabilities import SchedulerCapabilitiesContract
from twinstore.testing.scheduler.contracts.decoding import BrokenRowContract, SchedulerProbeContract
from twinstore.testing.scheduler.contracts.graph_jobs import (
    GraphJobEventContract,
    GraphJobRepositoryContract,
    GraphJobStoreContract,
)
from twinstore.testing.scheduler.contracts.impact_snapshots import ImpactSnapshotRepositoryContract
from twinstore.testing.scheduler.contracts.locks import LockContract
from twinstore.testing.scheduler.contracts.paging import FilteredListContract
from twinstore.testing.scheduler.contracts.policy_jobs import (
    PolicyClaimContract,
    PolicyJobContract,
    PolicyRunServiceContract,
)
from twinstore.testing.scheduler.contracts.run_summaries import (
    RunSummaryRepositoryContract,
    RunSummaryServiceContract,
)
from twinstore.testing.scheduler.contracts.runs import (
    ExecutionLogContract,
    RunMoveContract,
    RunRepositoryContract,
    RunStateContract,
)
from twinstore.testing.scheduler.contracts.schedules import DueScheduleContract, ScheduleRepositoryContract
from twinstore.testing.scheduler.contracts.transactions import (
    SchedulerIsolationContract,
    SchedulerJoiningContract,
    SchedulerRaceContract,
    SchedulerSessionContract,
    SchedulerTransactionContract,
)
from twinstore.testing.scheduler.contracts.triggers import (
    ClaimContract,
    FiringContract,
    TriggerRepositoryContract,
)
from twinstore.testing.scheduler.contracts.values import SchedulerValueContract
from twinstore.testing.scheduler.contracts.workers import WorkerRepositoryContract
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = [
    "SCHEDULER_EXAMPLES",
    "AuditRepositoryContract",
    "AuditServiceContract",
    "BrokenRowContract",
    "ClaimContract",
    "DueScheduleContract",
    "ExecutionLogContract",
    "FilteredListContract",
    "FiringContract",
    "GraphJobEventContract",
    "GraphJobRepositoryContract",
    "GraphJobStoreContract",
    "ImpactSnapshotRepositoryContract",
    "LockContract",
    "PolicyClaimContract",
    "PolicyJobContract",
    "PolicyRunServiceContract",
    "RunMoveContract",
    "RunRepositoryContract",
    "RunStateContract",
    "RunSummaryRepositoryContract",
    "RunSummaryServiceContract",
    "ScheduleRepositoryContract",
    "SchedulerBulkContract",
    "SchedulerCapabilitiesContract",
    "SchedulerCases",
    "SchedulerContract",
    "SchedulerIsolationContract",
    "SchedulerJoiningContract",
    "SchedulerProbeContract",
    "SchedulerRaceContract",
    "SchedulerRangeWriterContract",
    "SchedulerSessionContract",
    "SchedulerTransactionContract",
    "SchedulerValueContract",
    "SchedulerWorkspace",
    "TriggerRepositoryContract",
    "WorkerRepositoryContract",
]


class SchedulerContract(
    ScheduleRepositoryContract,
    DueScheduleContract,
    TriggerRepositoryContract,
    ClaimContract,
    FiringContract,
    RunRepositoryContract,
    RunStateContract,
    RunMoveContract,
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
