"""The storage of the task runner: its repositories over one driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.storage.module import ModuleStorage
from twinstore.taskrunner.options import TaskRunnerOptions
from twinstore.taskrunner.repositories import Repositories

if TYPE_CHECKING:
    from twinstore.taskrunner.pack_artifacts import PackRunArtifactUploader
    from twinstore.taskrunner.pack_run_approvals import PackRunApprovalStore
    from twinstore.taskrunner.pack_run_logs import PackRunLogStore
    from twinstore.taskrunner.pack_runs import PackRunStateStore

__all__ = ["TaskRunnerSession", "TaskRunnerStorage"]


@dataclass(frozen=True, eq=False, repr=False)
class TaskRunnerSession:
    """The repositories of the task runner: a session, a unit of work, or the storage itself."""

    pack_runs: PackRunStateStore
    pack_run_logs: PackRunLogStore
    pack_artifacts: PackRunArtifactUploader
    pack_run_approvals: PackRunApprovalStore


class TaskRunnerStorage(ModuleStorage[Repositories, TaskRunnerSession], TaskRunnerSession):
    """What a host holds. It connects on first use and closes only what it opened."""

    @property
    @override
    def admits_no_tenant(self) -> bool:
        return not self._tuned.tenancy_enforced

    @property
    def _tuned(self) -> TaskRunnerOptions:
        return self._options if isinstance(self._options, TaskRunnerOptions) else TaskRunnerOptions()

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> TaskRunnerSession:
        tuned = repositories.tuned(self._tuned)
        return TaskRunnerSession(
            pack_runs=tuned.pack_runs,
            pack_run_logs=tuned.pack_run_logs,
            pack_artifacts=tuned.pack_artifacts,
            pack_run_approvals=tuned.pack_run_approvals,
        )
