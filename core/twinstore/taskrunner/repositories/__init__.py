"""The repositories of the task runner, written once over :class:`~twinstore.access.protocol.Access`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from twinstore.taskrunner.repositories.pack_artifacts import PackArtifacts
from twinstore.taskrunner.repositories.pack_run_approvals import PackRunApprovals
from twinstore.taskrunner.repositories.pack_run_logs import PackRunLogs
from twinstore.taskrunner.repositories.pack_runs import PackRuns

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.taskrunner.options import TaskRunnerOptions

__all__ = ["PackArtifacts", "PackRunApprovals", "PackRunLogs", "PackRuns", "Repositories"]


@dataclass(frozen=True, slots=True)
class Repositories:
    """All of them over one access; a driver is asked for nothing else."""

    pack_runs: PackRuns
    pack_run_logs: PackRunLogs
    pack_artifacts: PackArtifacts
    pack_run_approvals: PackRunApprovals

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(
            pack_runs=PackRuns(access),
            pack_run_logs=PackRunLogs(access),
            pack_artifacts=PackArtifacts(access),
            pack_run_approvals=PackRunApprovals(access),
        )

    def tuned(self, options: TaskRunnerOptions) -> Self:
        """Return the same repositories with what a host has tuned; no instant is set by any of them."""
        return type(self)(
            pack_runs=self.pack_runs.tuned(options),
            pack_run_logs=self.pack_run_logs.tuned(options),
            pack_artifacts=self.pack_artifacts.tuned(options),
            pack_run_approvals=self.pack_run_approvals.tuned(options),
        )
