"""TaskRunner for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.storage import AsyncModuleStorage
from twinstore.taskrunner.aio.pack_artifacts import AsyncPackRunArtifactUploader
from twinstore.taskrunner.aio.pack_run_approvals import AsyncPackRunApprovalStore
from twinstore.taskrunner.aio.pack_run_logs import AsyncPackRunLogStore
from twinstore.taskrunner.aio.pack_runs import AsyncPackRunStateStore
from twinstore.taskrunner.storage import TaskRunnerSession

if TYPE_CHECKING:
    from twinstore.aio.calls import CallThreads, SharedThreads
    from twinstore.taskrunner.storage import TaskRunnerStorage


__all__ = [
    "AsyncPackRunApprovalStore",
    "AsyncPackRunArtifactUploader",
    "AsyncPackRunLogStore",
    "AsyncPackRunStateStore",
    "AsyncTaskRunnerSession",
    "AsyncTaskRunnerStorage",
]


class AsyncTaskRunnerSession:
    """The repositories and services, bound or unbound as the session behind them."""

    def __init__(self, session: TaskRunnerSession, threads: CallThreads) -> None:
        """Take the synchronous session and the threads to call it in."""
        self.pack_runs = AsyncPackRunStateStore(session.pack_runs, threads)
        self.pack_run_logs = AsyncPackRunLogStore(session.pack_run_logs, threads)
        self.pack_artifacts = AsyncPackRunArtifactUploader(session.pack_artifacts, threads)
        self.pack_run_approvals = AsyncPackRunApprovalStore(session.pack_run_approvals, threads)


class AsyncTaskRunnerStorage(
    AsyncModuleStorage[TaskRunnerSession, AsyncTaskRunnerSession], AsyncTaskRunnerSession
):
    """Repositories, services, sessions and units of work."""

    def __init__(self, storage: TaskRunnerStorage, threads: SharedThreads) -> None:
        """Take the synchronous storage and the threads to call it in."""
        super().__init__(storage, threads, AsyncTaskRunnerSession)
        AsyncTaskRunnerSession.__init__(self, storage.unbound, threads)
