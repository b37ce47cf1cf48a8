# The names that come from our modules and drivers, as `python -m twinstore.generate_aio` wrote it.

from collections.abc import Iterable, Mapping

from twinstore.clock import Clock
from twinstore.config import ConfigSource
from twinstore.observing.observer import Observer
from twinstore.scheduler.storage import SchedulerSession as SchedulerSession
from twinstore.scheduler.storage import SchedulerStorage as SchedulerStorage

__all__: list[str] = [
    "SchedulerSession",
    "SchedulerStorage",
    "add_scheduler_memory_storage",
    "add_scheduler_mongo_storage",
    "add_scheduler_postgres_storage",
    "add_scheduler_storage",
]

class ModuleAttributes:
    @property
    def scheduler(self) -> SchedulerStorage: ...

def add_scheduler_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
) -> SchedulerStorage: ...
def add_scheduler_memory_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
) -> SchedulerStorage: ...
def add_scheduler_mongo_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
) -> SchedulerStorage: ...
def add_scheduler_postgres_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
) -> SchedulerStorage: ...
def names() -> tuple[str, ...]: ...
