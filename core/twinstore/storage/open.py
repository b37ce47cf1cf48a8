"""Opening storage: the one switch that decides which driver answers.

settings -> name of the driver -> its plug-in (BackendSpec) -> OpenRequest -> its factory (ModuleBackend)
-> storage of the module over it; the driver connects at the first call, not before
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar, cast, overload

from twinstore.access.unit_state import Lifetime
from twinstore.clock import SystemClock
from twinstore.config import load_settings
from twinstore.config.urls import settings_of_url
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.observing.observer import Notifier, Observers
from twinstore.plugins.backend import OpenRequest
from twinstore.plugins.drivers import load_backend, opened, refuse_patched_threads
from twinstore.plugins.modules import module_spec
from twinstore.plugins.resources import SharedResources
from twinstore.runtime.forks import ForkSafeLock, NotPicklable
from twinstore.runtime.formatting import safe_repr
from twinstore.runtime.secrets import without_locals
from twinstore.storage.attributes import ModuleAttributes
from twinstore.storage.data import DataStorage
from twinstore.storage.module import ModuleStorage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from pydantic import SecretStr

    from twinstore.clock import Clock
    from twinstore.config import ConfigPathLike, ConfigSource, Settings
    from twinstore.observing.observer import Observer
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["Storage", "open_module", "open_storage"]


AnyStorage = ModuleStorage[object, object]
S = TypeVar("S", bound=AnyStorage)


class Storage(NotPicklable, ModuleAttributes):
    """The storages of all modules, an attribute for each; one is opened when first used."""

    def __init__(self, settings: Settings, clock: Clock, observers: Iterable[Observer] = ()) -> None:
        self._settings = settings
        self._clock = clock
        self._observers = Observers(observers)
        self._resources = SharedResources()
        self._opened: dict[str, AnyStorage] = {}
        self._lock = ForkSafeLock()
        self._lifetime = Lifetime()

    @overload
    def module(self, name: str) -> AnyStorage: ...
    @overload
    def module(self, name: str, kind: type[S]) -> S: ...
    @without_locals
    def module(self, name: str, kind: type[AnyStorage] = ModuleStorage) -> AnyStorage:
        """Return the storage of a module, which is opened at the first call.

        Args:
            name: the module, compared without case.
            kind: the class of its storage, for type checkers.

        Raises:
            ConfigurationError: there is no such module, its switch is not set, or its driver cannot be used.
            ValidationError: the module has a storage of another class.
        """
        key = text(name, "name").casefold()
        with self._lock:  # two threads may meet here at the first use
            if key not in self._opened:
                self._lifetime.check()
                backend = self._settings.backend_name(key)
                self._opened[key] = storage_of(
                    key, backend, self._settings, self._clock, self._resources, observers=self._observers
                )
            found = self._opened[key]
        if not isinstance(found, kind):
            raise ValidationError(
                f"The storage of the module {name!r} is a {type(found).__name__}, not a {kind.__name__}."
            )
        return found

    def close(self) -> None:
        """Close every module that was opened, then the resources they share."""
        self._lifetime.closed = True
        # An exit stack, because a module that fails to close must not keep the others open. It closes in
        # reverse: what the modules share comes last, since they may still need it while they close.
        with ExitStack() as closing:
            closing.callback(self._resources.close)
            for storage in self._opened.values():
                closing.callback(storage.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything that was opened."""
        self.close()


@without_locals
def open_storage(
    config: ConfigSource = None,
    *,
    env_file: ConfigPathLike = None,
    secrets_dir: ConfigPathLike = None,
    clock: Clock | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    observers: Iterable[Observer] = (),
    url: str | SecretStr | None = None,
    module: str | None = None,
) -> Storage:
    """Return the storage that the configuration names; it does no I/O and is a context manager.

    Args:
        config: a mapping or settings object, which wins over the environment and over the file that
            ``TWINSTORE_CONFIG`` names; the path of a JSON, TOML or YAML file, which the environment wins
            over; ``None`` for that file and the environment alone; or settings that were loaded before,
            which are taken as they are.
        env_file: a file of lines ``NAME=value``; default: the one that ``TWINSTORE_ENV_FILE`` names.
        secrets_dir: a directory of secret files; default: the one that ``TWINSTORE_SECRETS_DIR`` names. See
            :func:`~twinstore.config.load_settings`.
        clock: the clock of the services; default: the system's, in UTC with whole milliseconds.
        options: options of modules by module and name, for values that an application only knows at run time;
            they win over the configuration.
        observers: called for every call; see :mod:`twinstore.observing`. They belong to the application,
            which may give them to several storages, and are not closed.
        url: for scripts and notebooks, the URL of the server of one module, or ``env:NAME`` or ``file:PATH``
            for a variable or file that holds it. No other settings are read.
        module: the module of ``url``.

    Raises:
        ConfigurationError: unreadable, unknown or contradictory settings, or threads that gevent or eventlet
            has patched.
    """
    refuse_patched_threads()
    if url is None and module is None:
        settings = load_settings(config, env_file=env_file, secrets_dir=secrets_dir)
    elif url is None or module is None or any(given is not None for given in (config, env_file, secrets_dir)):
        raise ConfigurationError("Give url and module together, without config, env_file and secrets_dir.")
    else:
        settings = settings_of_url(url, text(module, "module"))
    if options is not None:
        settings = settings.with_options(options)
    return Storage(settings, clock_of(clock), observers)


@without_locals
def open_module(
    module: str,
    backend: str | None = None,
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, object] | None = None,
    observers: Iterable[Observer] = (),
    role: str | None = None,
    read_only: bool = False,
) -> AnyStorage:
    """Return the storage of one module; ``twinstore.add_<module>_storage`` is this for a known module.

    Args:
        module: the module, compared without case.
        backend: name of the driver, regardless of the configured one; ``None`` for the configured one.
        config: as for :func:`open_storage`.
        clock: the clock of the services.
        options: options of the module by name; they win over the configuration.
        observers: as for :func:`open_storage`.
        role: the role of this process, such as ``worker``, which has its own sections in the settings;
            ``None``: those of every other process.
        read_only: the storage is the source of a copy; see :class:`~twinstore.plugins.backend.OpenRequest`.

    Raises:
        ConfigurationError: as for :meth:`Storage.module`.
    """
    settings, key = load_settings(config), text(module, "module").casefold()
    if role is not None:
        settings = settings.for_role(text(role, "role"))
    if options is not None:
        settings = settings.with_options({module: options})
    name = settings.backend_name(module) if backend is None else text(backend, "backend")
    return storage_of(
        key,
        name,
        settings,
        clock_of(clock),
        observers=Observers(observers),
        read_only=read_only,
    )


def text(value: object, name: str) -> str:
    """Return a name that a host has given, which no type checker may have seen."""
    if isinstance(value, str):
        return value
    raise ConfigurationError(f"Argument {name} should be a text, not {type(value).__name__}.")


def clock_of(clock: Clock | None) -> Clock:
    """Return the clock of the host, or that of the system."""
    if clock is None:
        return SystemClock()
    if isinstance(clock, type) or not callable(getattr(clock, "now", None)):
        raise ConfigurationError(
            f"Argument clock should be an object with a method now(), such as SystemClock(), "
            f"not {safe_repr(clock)}."
        )
    return clock


def storage_of(
    module: str,
    backend: str,
    settings: Settings,
    clock: Clock,
    shared: SharedResources | None = None,
    *,
    observers: Observers | None = None,
    read_only: bool = False,
) -> AnyStorage:
    """Return a storage over ``shared`` resources, or over its own, which it closes."""
    spec = module_spec(module)
    kind = storage_class(spec)
    # A module that is opened alone closes what it opened; one of several must not.
    resources = SharedResources() if shared is None else shared
    opened = module_on_driver(spec, backend, settings, resources, clock, read_only=read_only)
    notifier = Notifier(observers, spec.name, opened.driver) if observers else None
    return kind(opened, clock, resources if shared is None else None, settings.options(module), notifier)


def storage_class(spec: ModuleSpec[object]) -> type[AnyStorage]:
    """Return the class of the storage of a module."""
    if spec.storage is not None:
        return cast("type[AnyStorage]", spec.storage)
    if spec.has_repositories:
        raise ConfigurationError(
            f"The module {spec.name!r} has repositories, but no storage class; its author must name one in "
            "its ModuleSpec, or leave out both for a module of data alone.",
            module=spec.name,
        )
    return cast("type[AnyStorage]", DataStorage)


def module_on_driver(
    module: ModuleSpec[object],
    name: str,
    settings: Settings,
    resources: SharedResources,
    clock: Clock,
    *,
    read_only: bool = False,
) -> ModuleBackend[object]:
    """Load a driver and open one module on it; it connects on first use."""
    spec = load_backend(name, module=module.name)
    request = OpenRequest(
        module=module,
        settings=settings.backend_settings(module.name, spec),
        options=settings.options(module.name),
        resources=resources,
        clock=clock,
        read_only=read_only,
    )
    return opened(spec, request)
