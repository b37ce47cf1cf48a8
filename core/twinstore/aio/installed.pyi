# The names for asyncio that come from our modules, as `python -m twinstore.codegen.aio` wrote it.

from collections.abc import Callable

from twinstore.aio.calls import CallThreads
from twinstore.scheduler.aio import AsyncSchedulerSession as AsyncSchedulerSession
from twinstore.scheduler.aio import AsyncSchedulerStorage as AsyncSchedulerStorage
from twinstore.taskrunner.aio import AsyncTaskRunnerSession as AsyncTaskRunnerSession
from twinstore.taskrunner.aio import AsyncTaskRunnerStorage as AsyncTaskRunnerStorage
from twinstore.tracking.aio import AsyncTrackingStorage as AsyncTrackingStorage
from twinstore.tracking.aio import AsyncTrackingUnit as AsyncTrackingUnit

__all__: list[str] = [
    "AsyncSchedulerSession",
    "AsyncSchedulerStorage",
    "AsyncTaskRunnerSession",
    "AsyncTaskRunnerStorage",
    "AsyncTrackingStorage",
    "AsyncTrackingUnit",
]

class AsyncModuleAttributes:
    @property
    def scheduler(self) -> AsyncSchedulerStorage: ...
    @property
    def tracking(self) -> AsyncTrackingStorage: ...
    @property
    def taskrunner(self) -> AsyncTaskRunnerStorage: ...

def facade_of(module: str) -> Callable[[object, CallThreads], object]: ...
def names() -> tuple[str, ...]: ...
