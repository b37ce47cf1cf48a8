"""The names that come from the modules and drivers that are installed.

Type checkers read ``installed.pyi`` instead, which knows the modules and drivers of this distribution;
``python -m twinstore.codegen.aio`` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from twinstore.plugins.drivers import installed_backend_names
from twinstore.plugins.modules import built_modules, module_plugins, module_spec
from twinstore.runtime.secrets import without_locals

if TYPE_CHECKING:
    from twinstore.clock import Clock
    from twinstore.config import ConfigSource
    from twinstore.observing.observer import Observer
    from twinstore.storage.module import ModuleStorage

__all__ = ["names"]


# What a name must look like before any plug-in is read for it; submodules are in lower case.
DERIVED: Final = re.compile(r"add_\w+_storage|[A-Z]\w+")


def names() -> tuple[str, ...]:
    """Return the names that are derived, sorted; only the plug-ins of the modules are imported."""
    return tuple(sorted(_makers()))


def _makers() -> Mapping[str, Callable[[], object]]:
    drivers = installed_backend_names()
    makers: dict[str, Callable[[], object]] = {}
    for name in built_modules():
        session, storage = module_plugins()[name].classes
        makers[session] = lambda name=name: module_spec(name).session or _of_data("DataSession")
        makers[storage] = lambda name=name: module_spec(name).storage or _of_data("DataStorage")
        makers[f"add_{name}_storage"] = lambda name=name: opener(name, None)
        for driver in drivers:
            makers[f"add_{name}_{driver.casefold()}_storage"] = lambda name=name, driver=driver: opener(
                name, driver
            )
            makers[f"{module_plugins()[name].title}{driver}SessionFactory"] = _session_factory
    return makers


def _of_data(name: str) -> object:
    return getattr(import_module("twinstore.storage.data"), name)


def _session_factory() -> object:
    from twinstore.storage.module import SessionFactory  # noqa: PLC0415  # only if its name is asked for

    return SessionFactory


@cache
def opener(module: str, driver: str | None) -> Callable[..., ModuleStorage[object, object]]:
    """Return the function that opens a module on a driver, or on the one that its switch names."""

    @without_locals
    def add_storage(
        config: ConfigSource = None,
        *,
        clock: Clock | None = None,
        options: Mapping[str, object] | None = None,
        observers: Iterable[Observer] = (),
        role: str | None = None,
    ) -> ModuleStorage[object, object]:
        from twinstore.storage.open import open_module  # noqa: PLC0415  # storage derives from what is here

        return open_module(
            module, driver, config, clock=clock, options=options, observers=observers, role=role
        )

    add_storage.__name__ = f"add_{module}_{driver.casefold()}_storage" if driver else f"add_{module}_storage"
    add_storage.__qualname__ = add_storage.__name__
    add_storage.__doc__ = (
        f"Return the storage of {module} on {driver}, whatever the switch says."
        if driver
        else f"Return the storage of {module} on the driver that its switch names."
    )
    return add_storage


def __getattr__(name: str) -> object:
    # Whatever imports a submodule of twinstore asks for it here first; plug-ins are read for ours only.
    maker = _makers().get(name) if DERIVED.fullmatch(name) else None
    if maker is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return maker()
