# The attributes of a storage, one for each of our modules, as `python -m twinstore.codegen.aio` wrote it.

from twinstore.scheduler.storage import SchedulerStorage
from twinstore.taskrunner.storage import TaskRunnerStorage
from twinstore.tracking.storage import TrackingStorage

__all__: list[str] = ["ModuleAttributes"]

class ModuleAttributes:
    @property
    def scheduler(self) -> SchedulerStorage: ...
    @property
    def tracking(self) -> TrackingStorage: ...
    @property
    def taskrunner(self) -> TaskRunnerStorage: ...
