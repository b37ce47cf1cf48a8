"""Opening storage: the one switch that decides which driver answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from twinstore.backend import Lifetime, OpenRequest, SharedResources
from twinstore.clock import SystemClock
from twinstore.config import load_settings
from twinstore.driver_checks import opened
from twinstore.forks import ForkSafeLock
from twinstore.modules import module_spec
from twinstore.plugins import load_backend
from twinstore.scheduler.storage import SchedulerStorage

if TYPE_CHECKING:
    from types import TracebackType

    from twinstore.backend import ModuleBackend
    from twinstore.clock import Clock
    from twinstore.config import ConfigSource, Settings
    from twinstore.scheduler.repositories import Repositories

__all__ = [
    "Storage",
    "add_scheduler_memory_storage",
    "add_scheduler_mongo_storage",
    "add_scheduler_postgres_storage",
    "add_scheduler_storage",
    "open_storage",
]


class Storage:
    """The storages of all modules; each is opened when first used."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Take the settings; nothing is loaded or connected yet."""
        self._settings = settings
        self._clock = clock
        self._resources = SharedResources()
        self._scheduler: SchedulerStorage | None = None
        self._lock = ForkSafeLock()
        self._lifetime = Lifetime()

    @property
    def scheduler(self) -> SchedulerStorage:
        """The storage of the scheduler."""
        with self._lock:  # two threads may meet here at the first use
            if self._scheduler is None:
                self._lifetime.check()
                self._scheduler = self._open_scheduler()
            return self._scheduler

    def _open_scheduler(self) -> SchedulerStorage:
        name = self._settings.backend_name("scheduler")
        backend = open_module("scheduler", name, self._settings, self._resources, self._clock)
        return SchedulerStorage(cast("ModuleBackend[Repositories]", backend), self._clock)

    def close(self) -> None:
        """Close every module that was opened, then the resources they share."""
        self._lifetime.closed = True
        if self._scheduler is not None:
            self._scheduler.close()
        self._resources.close()

    def __enter__(self) -> Self:
        """Return the storage."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything that was opened."""
        self.close()


def open_storage(config: ConfigSource = None, *, clock: Clock | None = None) -> Storage:
    """Return the storage that the configuration names; it does no I/O and is a context manager.

    Args:
        config: a mapping, the path of a JSON, TOML or YAML file, settings, or ``None`` for the file
            that ``TWINSTORE_CONFIG`` names; the environment is read in each case but the last.
        clock: the clock of the services; default: the system's, in UTC with whole milliseconds.

    Raises:
        ConfigurationError: unreadable, unknown or contradictory settings.
    """
    return Storage(load_settings(config), clock or SystemClock())


def add_scheduler_storage(config: ConfigSource = None, *, clock: Clock | None = None) -> SchedulerStorage:
    """Return the scheduler on the driver that ``Persistence:Scheduler`` names."""
    settings = load_settings(config)
    return _scheduler(settings.backend_name("scheduler"), settings, clock)


def add_scheduler_mongo_storage(
    config: ConfigSource = None, *, clock: Clock | None = None
) -> SchedulerStorage:
    """Return the scheduler on MongoDB, whatever the switch says."""
    return _scheduler("Mongo", load_settings(config), clock)


def add_scheduler_postgres_storage(
    config: ConfigSource = None, *, clock: Clock | None = None
) -> SchedulerStorage:
    """Return the scheduler on PostgreSQL, whatever the switch says."""
    return _scheduler("Postgres", load_settings(config), clock)


def add_scheduler_memory_storage(
    config: ConfigSource = None, *, clock: Clock | None = None
) -> SchedulerStorage:
    """Return the scheduler in the memory of this process, whatever the switch says; for tests."""
    return _scheduler("Memory", load_settings(config), clock)


def open_scheduler(
    backend: str, config: ConfigSource = None, *, clock: Clock | None = None, read_only: bool = False
) -> SchedulerStorage:
    """Return the scheduler on a named driver, whatever the switch says.

    Args:
        backend: name of the driver.
        config: as for :func:`open_storage`.
        clock: the clock of the services.
        read_only: the storage is the source of a copy; see :class:`~twinstore.backend.OpenRequest`.
    """
    return _scheduler(backend, load_settings(config), clock, read_only=read_only)


def _scheduler(
    name: str, settings: Settings, clock: Clock | None, *, read_only: bool = False
) -> SchedulerStorage:
    resources = SharedResources()
    clock = clock or SystemClock()
    backend = open_module("scheduler", name, settings, resources, clock, read_only=read_only)
    return SchedulerStorage(cast("ModuleBackend[Repositories]", backend), clock, resources)


def open_module(
    module: str,
    name: str,
    settings: Settings,
    resources: SharedResources,
    clock: Clock,
    *,
    read_only: bool = False,
) -> ModuleBackend[object]:
    """Load a driver and open one module on it; it connects on first use."""
    spec = load_backend(name, module=module)
    request = OpenRequest(
        module=module_spec(module),
        settings=settings.backend_settings(module, spec),
        options=settings.options(module),
        resources=resources,
        clock=clock,
        read_only=read_only,
    )
    return opened(spec, request)
