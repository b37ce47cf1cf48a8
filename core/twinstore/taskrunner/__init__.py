"""The task runner: pack runs with their logs, artifacts and approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.runtime.lazy import from_submodules

if TYPE_CHECKING:
    from twinstore.taskrunner.enums import (
        LogLevel,
        PackApprovalStatus,
        PackArtifactStatus,
        PackRunStepKind,
        PackRunStepStatus,
    )
    from twinstore.taskrunner.pack_artifacts import PackRunArtifact, PackRunArtifactUploader
    from twinstore.taskrunner.pack_run_approvals import PackRunApproval, PackRunApprovalStore
    from twinstore.taskrunner.pack_run_logs import PackRunLogDraft, PackRunLogEntry, PackRunLogStore
    from twinstore.taskrunner.pack_runs import (
        PackRunFailurePolicy,
        PackRunQueryOptions,
        PackRunState,
        PackRunStateStore,
        PackRunStep,
    )
    from twinstore.taskrunner.state_factory import PackRunStateFactory, PackRunStepPlan
    from twinstore.taskrunner.storage import TaskRunnerSession, TaskRunnerStorage

__all__ = [
    "ALL_TENANTS",
    "LogLevel",
    "PackApprovalStatus",
    "PackArtifactStatus",
    "PackRunApproval",
    "PackRunApprovalStore",
    "PackRunArtifact",
    "PackRunArtifactUploader",
    "PackRunFailurePolicy",
    "PackRunLogDraft",
    "PackRunLogEntry",
    "PackRunLogStore",
    "PackRunQueryOptions",
    "PackRunState",
    "PackRunStateFactory",
    "PackRunStateStore",
    "PackRunStep",
    "PackRunStepKind",
    "PackRunStepPlan",
    "PackRunStepStatus",
    "TaskRunnerSession",
    "TaskRunnerStorage",
]

if not TYPE_CHECKING:
    # Every application reads the plug-in of the module, and importing it imports this package.
    __getattr__ = from_submodules(
        __name__,
        tuple(name for name in __all__ if name != "ALL_TENANTS"),
        (
            "enums",
            "pack_artifacts",
            "pack_run_approvals",
            "pack_run_logs",
            "pack_runs",
            "state_factory",
            "storage",
        ),
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
