# The names that come from our modules and drivers, as `python -m twinstore.codegen.aio` wrote it.

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from twinstore.clock import Clock
from twinstore.config import ConfigSource
from twinstore.observing.observer import Observer
from twinstore.scheduler.storage import SchedulerSession as SchedulerSession
from twinstore.scheduler.storage import SchedulerStorage as SchedulerStorage
from twinstore.storage.module import SessionFactory
from twinstore.taskrunner.storage import TaskRunnerSession as TaskRunnerSession
from twinstore.taskrunner.storage import TaskRunnerStorage as TaskRunnerStorage
from twinstore.tracking.storage import TrackingStorage as TrackingStorage
from twinstore.tracking.storage import TrackingUnit as TrackingUnit

__all__: list[str] = [
    "SchedulerFilesystemSessionFactory",
    "SchedulerMemorySessionFactory",
    "SchedulerMongoSessionFactory",
    "SchedulerPostgresSessionFactory",
    "SchedulerSession",
    "SchedulerStorage",
    "TaskRunnerFilesystemSessionFactory",
    "TaskRunnerMemorySessionFactory",
    "TaskRunnerMongoSessionFactory",
    "TaskRunnerPostgresSessionFactory",
    "TaskRunnerSession",
    "TaskRunnerStorage",
    "TrackingFilesystemSessionFactory",
    "TrackingMemorySessionFactory",
    "TrackingMongoSessionFactory",
    "TrackingPostgresSessionFactory",
    "TrackingStorage",
    "TrackingUnit",
    "add_scheduler_filesystem_storage",
    "add_scheduler_memory_storage",
    "add_scheduler_mongo_storage",
    "add_scheduler_postgres_storage",
    "add_scheduler_storage",
    "add_taskrunner_filesystem_storage",
    "add_taskrunner_memory_storage",
    "add_taskrunner_mongo_storage",
    "add_taskrunner_postgres_storage",
    "add_taskrunner_storage",
    "add_tracking_filesystem_storage",
    "add_tracking_memory_storage",
    "add_tracking_mongo_storage",
    "add_tracking_postgres_storage",
    "add_tracking_storage",
]

SchedulerFilesystemSessionFactory: TypeAlias = SessionFactory[object, SchedulerSession]
SchedulerMemorySessionFactory: TypeAlias = SessionFactory[object, SchedulerSession]
SchedulerMongoSessionFactory: TypeAlias = SessionFactory[object, SchedulerSession]
SchedulerPostgresSessionFactory: TypeAlias = SessionFactory[object, SchedulerSession]
TrackingFilesystemSessionFactory: TypeAlias = SessionFactory[object, TrackingUnit]
TrackingMemorySessionFactory: TypeAlias = SessionFactory[object, TrackingUnit]
TrackingMongoSessionFactory: TypeAlias = SessionFactory[object, TrackingUnit]
TrackingPostgresSessionFactory: TypeAlias = SessionFactory[object, TrackingUnit]
TaskRunnerFilesystemSessionFactory: TypeAlias = SessionFactory[object, TaskRunnerSession]
TaskRunnerMemorySessionFactory: TypeAlias = SessionFactory[object, TaskRunnerSession]
TaskRunnerMongoSessionFactory: TypeAlias = SessionFactory[object, TaskRunnerSession]
TaskRunnerPostgresSessionFactory: TypeAlias = SessionFactory[object, TaskRunnerSession]

def add_scheduler_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> SchedulerStorage: ...
def add_scheduler_filesystem_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> SchedulerStorage: ...
def add_scheduler_memory_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> SchedulerStorage: ...
def add_scheduler_mongo_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> SchedulerStorage: ...
def add_scheduler_postgres_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> SchedulerStorage: ...
def add_tracking_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TrackingStorage: ...
def add_tracking_filesystem_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TrackingStorage: ...
def add_tracking_memory_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TrackingStorage: ...
def add_tracking_mongo_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TrackingStorage: ...
def add_tracking_postgres_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TrackingStorage: ...
def add_taskrunner_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TaskRunnerStorage: ...
def add_taskrunner_filesystem_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TaskRunnerStorage: ...
def add_taskrunner_memory_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TaskRunnerStorage: ...
def add_taskrunner_mongo_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TaskRunnerStorage: ...
def add_taskrunner_postgres_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
) -> TaskRunnerStorage: ...
def names() -> tuple[str, ...]: ...
