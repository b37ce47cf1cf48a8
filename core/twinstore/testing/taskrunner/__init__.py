"""The kit of the task runner: what its drivers must do, and what cannot be derived from its description.

``TaskRunnerContract`` is the sum of the contracts named here and of those that hold for every module. The
module ``builders`` makes valid models for any test. Needs ``twinstore[testing]``.
"""

from __future__ import annotations

from twinstore.testing.contracts.driver import ModuleContract
from twinstore.testing.taskrunner.cases import TaskRunnerCases, TaskRunnerWorkspace
from twinstore.testing.taskrunner.contracts.pack_run_approvals import PackRunApprovalContract
from twinstore.testing.taskrunner.contracts.pack_runs import (
    PackArtifactContract,
    PackRunLogContract,
    PackRunStateContract,
)
from twinstore.testing.taskrunner.contracts.scopes import RunScopeContract
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES

__all__ = [
    "TASKRUNNER_EXAMPLES",
    "PackArtifactContract",
    "PackRunApprovalContract",
    "PackRunLogContract",
    "PackRunStateContract",
    "RunScopeContract",
    "TaskRunnerCases",
    "TaskRunnerContract",
    "TaskRunnerWorkspace",
]


class TaskRunnerContract(
    PackRunStateContract,
    PackRunLogContract,
    PackArtifactContract,
    PackRunApprovalContract,
    RunScopeContract,
    ModuleContract,
):
    """Everything that a driver of the task runner must do."""
