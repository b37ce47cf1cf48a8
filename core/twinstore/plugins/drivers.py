"""Drivers are plug-ins: found by entry point, described by one hook, loaded by name.

A driver is a distribution with an entry point in the group ``twinstore.backends`` whose module has

    from twinstore.plugins.drivers import hookimpl

    @hookimpl
    def twinstore_register_backend() -> BackendSpec: ...

Only the configured driver is ever imported, so a broken one does not affect others.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, cast

from pluggy import HookimplMarker, HookspecMarker, PluginManager, PluginValidationError

from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.observing.observer import DB_SYSTEM_NAMES
from twinstore.plugins.backend import BACKEND_API_VERSION, BackendSpec, ModuleBackend
from twinstore.plugins.entry_points import (
    Registration,
    brief_error,
    did_you_mean,
    near_matches,
    registrations,
    single_registration,
)
from twinstore.plugins.modules import built_modules, module_plugins
from twinstore.plugins.settings import BackendSettings
from twinstore.runtime.secrets import without_locals

if TYPE_CHECKING:
    from twinstore.plugins.backend import OpenRequest

__all__ = [
    "ENTRY_POINT_GROUP",
    "BackendHooks",
    "BackendInfo",
    "hookimpl",
    "installed_backend_names",
    "list_backends",
    "load_backend",
    "opened",
    "refuse_patched_threads",
]


ENTRY_POINT_GROUP: Final = "twinstore.backends"
KIND: Final = "driver"
HOOK: Final = "twinstore_register_backend"
# 1 had no ``Access``; nothing of core could work with such a driver.
OLDEST_API_VERSION: Final = 2
GUIDE: Final = "docs/writing-a-driver.md"
DISPLAY_NAMES: Final = {name.casefold(): name for name in ("Filesystem", "Memory", "Mongo", "Postgres")}

hookspec = HookspecMarker("twinstore")
hookimpl = HookimplMarker("twinstore")

BackendState = Literal["ready", "missing extra", "broken"]


class BackendHooks:
    """The hooks that a driver may implement."""

    @hookspec
    def twinstore_register_backend(self) -> BackendSpec:
        """Describe the driver without importing its client library.

        Returns:
            The description; its ``name`` equals the name of the entry point, compared without case.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """A driver as the listing shows it.

    Attributes:
        name: value of the switch.
        distribution, version: what was installed; empty where the metadata does not say.
        state: whether it can be opened.
        detail: what is wrong and what to do; empty when ready.
        modules: the modules it stores, sorted; empty when its description could not be read.
        schemes: the schemes of the URLs that it can be reached by.
    """

    name: str
    distribution: str
    version: str
    state: BackendState
    detail: str = ""
    modules: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()


def installed_backend_names() -> tuple[str, ...]:
    """Return the names of all installed drivers, sorted, without importing any."""
    return tuple(sorted({registration.name for registration in _registrations()}, key=str.casefold))


def load_backend(name: str, *, module: str | None = None) -> BackendSpec:
    """Import one driver and return its description.

    Args:
        name: the configured name, compared without case.
        module: when given, the driver must store this module.

    Raises:
        ConfigurationError: no distribution or more than one provides the driver; it cannot be imported,
            describes itself wrongly or was written for another version of this library; its client library is
            missing; it does not store the module. The message says which and what to do.
    """
    known = _registrations()
    registration = single_registration(
        [registration for registration in known if registration.key == name.casefold()], name, known, KIND
    )
    spec = _describe(registration)
    _check_module(registration, spec, module)
    if missing := _missing_extra(registration, spec):
        raise ConfigurationError(missing, driver=registration.name)
    DB_SYSTEM_NAMES[spec.name.casefold()] = next(iter(spec.schemes), spec.name.casefold())
    return spec


def list_backends() -> tuple[BackendInfo, ...]:
    """Return all installed drivers sorted by name. A broken one is listed as broken; nothing is raised."""
    known = _registrations()
    found = [
        _inspect(registration, [other for other in known if other.key == registration.key])
        for registration in known
    ]
    return tuple(sorted(found, key=lambda info: (info.name.casefold(), info.distribution)))


def _registrations() -> list[Registration]:
    return registrations(ENTRY_POINT_GROUP, KIND, DISPLAY_NAMES)


def _describe(registration: Registration) -> BackendSpec:
    """Load the plug-in and ask its hook."""
    # A manager for each driver: a broken driver must not be registered together with another.
    manager = PluginManager("twinstore")
    manager.add_hookspecs(BackendHooks)
    _register(manager, registration)
    hook = manager.hook.twinstore_register_backend
    if not hook.get_hookimpls():
        problem = f"has no function {HOOK} marked with @twinstore.driver.hookimpl"
        raise registration.error(f"{problem}; {_remedy(registration)}.")
    try:
        answers: list[object] = hook()
    except (Exception, SystemExit) as error:
        raise registration.error(
            f"failed in {HOOK} ({brief_error(error)}); reinstall it or ask its author."
        ) from error
    return _check_spec(registration, answers[0] if answers else None)


def _register(manager: PluginManager, registration: Registration) -> None:
    try:
        # What the manager would do by itself, without reading the files of every distribution again.
        manager.register(registration.point.load(), name=registration.point.name)
        manager.check_pending()
    except PluginValidationError as error:
        reason = " ".join(str(error).split())
        problem = f"does not implement the hook {HOOK}() as specified ({type(error).__name__}: {reason})"
        raise registration.error(f"{problem}; update it or ask its author.") from error
    # SystemExit too: a module that exits while it is imported must not end the host.
    except (Exception, SystemExit) as error:
        client = "; its factory should import the client library, not its plug-in"
        hint = client if isinstance(error, ImportError) else ""
        raise registration.error(
            f"cannot be imported ({brief_error(error)}); reinstall it or its requirements{hint}."
        ) from error


def _check_spec(registration: Registration, answer: object) -> BackendSpec:
    if not isinstance(answer, BackendSpec):
        kind = type(answer).__name__
        raise registration.error(
            f"returned {kind} from {HOOK} instead of a BackendSpec; update it or ask its author."
        )
    _check_version(registration, answer)
    if problem := spec_problem(answer):
        raise registration.error(f"{problem}; update it or ask its author.")
    if answer.name.casefold() != registration.key:
        raise registration.error(
            f"describes itself as {answer.name!r}; its entry point must have the same name."
        )
    return answer


def _check_version(registration: Registration, spec: BackendSpec) -> None:
    """Refuse another version of the interface before anything else, because the rest may differ for that."""
    version = spec.api_version
    if type(version) is not int or OLDEST_API_VERSION <= version <= BACKEND_API_VERSION:
        return  # what is not a number is reported with the other fields
    window = sorted({OLDEST_API_VERSION, BACKEND_API_VERSION})
    outdated = "twinstore" if version > BACKEND_API_VERSION else registration.distribution or "the driver"
    changes = "" if version > BACKEND_API_VERSION else f" What its author has to change is in {GUIDE}."
    raise registration.error(
        f"was written for version {version} of the driver interface; this twinstore supports "
        f"{' to '.join(map(str, window))}. Upgrade {outdated}.{changes}"
    )


def _remedy(registration: Registration) -> str:
    """Return what to do about a hook that is not there."""
    if (registration.point.attr or "").endswith(HOOK):  # the type says text, yet it may be None
        return f"the entry point must name the module alone, without :{registration.point.attr}"
    return "add it or ask its author"


def _check_module(registration: Registration, spec: BackendSpec, module: str | None) -> None:
    if module is not None and spec.modules is not None and module not in spec.modules:
        raise registration.error(
            f"does not store the module {module!r}, only {', '.join(sorted(spec.modules)) or 'none'}. "
            "Choose another driver for this module."
        )


def _missing_extra(registration: Registration, spec: BackendSpec) -> str:
    """Return what is missing and the remedy, or nothing."""
    missing = [name for name in spec.requires if not _importable(name)]
    if not missing:
        return ""
    install = f"pip install '{_requirement(registration, spec.extra)}'"
    needs = f"{' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
    return f"The driver {registration} needs {needs}. Run: {install}"


def _importable(name: str) -> bool:
    try:
        # Looked for and not imported: a client library may take a second, and listing drivers should not.
        return find_spec(name) is not None
    except (ImportError, ValueError):
        # A missing parent package, or a module that was put into sys.modules by hand.
        return False


def _requirement(registration: Registration, extra: str) -> str:
    """Return what pip must install: an extra of the driver or of twinstore, else a distribution."""
    for name in (registration.distribution, "twinstore"):
        try:
            extras = distribution(name).metadata.get_all("Provides-Extra") or []
        except (PackageNotFoundError, ValueError):
            continue  # no metadata to look into; the extra may be that of the other distribution
        if extra in extras:
            return f"{name}[{extra}]"
    return extra


def _inspect(registration: Registration, same_name: Sequence[Registration]) -> BackendInfo:
    try:
        # Two distributions of one name are both shown as broken, because neither would be loaded.
        single_registration(same_name, registration.name, same_name, KIND)
        spec = _describe(registration)
    except ConfigurationError as error:
        return _info(registration, "broken", error.message)
    missing = _missing_extra(registration, spec)
    return _info(
        registration,
        "missing extra" if missing else "ready",
        missing or _misspelt_modules(spec),
        tuple(sorted(built_modules() if spec.modules is None else spec.modules)),
        spec.schemes if "connection_string" in spec.settings.model_fields else (),
    )


def _misspelt_modules(spec: BackendSpec) -> str:
    """Return a warning of unknown modules that look like a known one, or nothing."""
    known = module_plugins()
    hints = [
        f"It names the module {name!r}, which does not exist.{did_you_mean(name, known)}"
        for name in sorted(spec.modules or ())
        if name not in known and near_matches(name, known)
    ]
    return " ".join(hints)


def _info(
    registration: Registration,
    state: BackendState,
    detail: str,
    modules: tuple[str, ...] = (),
    schemes: tuple[str, ...] = (),
) -> BackendInfo:
    return BackendInfo(
        name=registration.name,
        distribution=registration.distribution,
        version=registration.version,
        state=state,
        detail=detail,
        modules=modules,
        schemes=schemes,
    )


# The description of a driver and the result of its factory, checked where the error can still name the
# driver and refer to its author.


# Libraries that replace threads by greenlets: the module and its function that says so, and of what.
GREENLET_PATCHES: Final = (
    ("gevent", "gevent.monkey", "is_module_patched", "threading"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
)


def refuse_patched_threads() -> None:
    """Refuse a process whose threads are greenlets.

    Raises:
        ConfigurationError: gevent or eventlet has patched ``threading``.
    """
    for library, module, function, name in GREENLET_PATCHES:
        is_patched: Callable[[str], bool] | None = getattr(sys.modules.get(module), function, None)
        if is_patched is not None and is_patched(name):
            raise ConfigurationError(
                f"{library} has patched threading in this process, and twinstore needs threads of the "
                f"operating system: start it without the patches of {library}."
            )


def spec_problem(spec: BackendSpec) -> str | None:
    """Return which field of a description is of another type than it should be; ``None`` for none."""
    for name, (wanted, holds) in FIELDS.items():
        value: object = getattr(spec, name)
        if not holds(value):
            return f"describes itself wrongly: {name} should be {wanted}, not {_value_text(value)}"
    return None


@without_locals
def opened(spec: BackendSpec, request: OpenRequest) -> ModuleBackend[object]:
    """Return what the factory of a driver makes.

    Raises:
        ConfigurationError: it fails, returns something that is not a backend, or threads are patched.
    """
    refuse_patched_threads()
    try:
        backend = spec.factory(request)
    # It already says which setting is wrong; wrapped it would say only that something is.
    except TwinstoreError:
        raise
    # SystemExit too: a driver that exits must not end the host.
    except (Exception, SystemExit) as error:
        # Its text may repeat the settings, which hold secrets; the cause has it.
        raise ConfigurationError(
            f"The factory of the driver {spec.name} failed with {type(error).__name__}; see the cause, and "
            "ask its author. It must not connect yet, and raise errors of twinstore only.",
            module=request.module.name,
            driver=spec.name,
        ) from error
    missing = [name for name in BACKEND_NAMES if not _has(backend, name)]
    if missing:
        raise ConfigurationError(
            f"The factory of the driver {spec.name} returned {type(backend).__name__}, which is not a "
            f"ModuleBackend: it lacks {', '.join(missing)}. Ask its author.",
            module=request.module.name,
            driver=spec.name,
        )
    return backend


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_text, cast("tuple[object, ...]", value)))


def _are_modules(value: object) -> bool:
    return isinstance(value, frozenset) and all(map(_is_text, cast("frozenset[object]", value)))


def _takes_a_request(value: object) -> bool:
    """Whether a function can be called with one argument; what hides its parameters is believed."""
    if not callable(value):
        return False
    try:
        inspect.signature(value).bind(None)
    except TypeError:
        return False
    # A function written in C may not report a signature.
    except ValueError:
        return True
    return True


def _has(backend: object, name: str) -> bool:
    """Whether an object has a name, without asking its properties, which may connect."""
    return inspect.getattr_static(backend, name, None) is not None


def _value_text(value: object) -> str:
    return repr(cast("object", value)) if isinstance(value, (str, tuple, list, set)) else str(value)


FIELDS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "name": ("a text", _is_text),
    "api_version": ("a whole number", lambda value: type(value) is int),
    "schemes": ("a tuple of one or more texts", lambda value: _are_texts(value) and bool(value)),
    "settings": (
        "a class that inherits BackendSettings",
        lambda value: isinstance(value, type) and issubclass(value, BackendSettings),
    ),
    "factory": ("a function of one argument, the OpenRequest", _takes_a_request),
    "extra": ("a text", _is_text),
    "requires": ("a tuple of texts", _are_texts),
    "modules": (
        "None or a frozenset of texts",
        lambda value: value is None or _are_modules(value),
    ),
    "draft": ("None or a function", lambda value: value is None or callable(value)),
    "corruption_writer": ("None or a function", lambda value: value is None or callable(value)),
}
BACKEND_NAMES: Final = sorted(name for name in vars(ModuleBackend) if not name.startswith("_"))
