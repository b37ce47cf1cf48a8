"""The kit of the scheduler: what its drivers must do, and what cannot be derived from its description.

``SchedulerContract`` is the sum of the contracts named here and of those that hold for every module. The
modules ``builders`` and ``strategies`` make valid models for any test. Needs ``twinstore[testing]``.
"""

from __future__ import annotations

from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.contracts.aggregate import SchedulerContract
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
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = [
    "SCHEDULER_EXAMPLES",
    "AuditRepositoryContract",
    "AuditServiceContract",
    "BrokenRowContract",
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
