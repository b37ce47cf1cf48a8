"""The names for asyncio that come from the modules that are installed.

Type checkers read ``installed.pyi`` instead, which knows the modules of this distribution;
``python -m twinstore.codegen.aio`` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from twinstore.errors import ConfigurationError
from twinstore.plugins.modules import built_modules, module_plugins, module_spec
from twinstore.storage.attributes import ModuleAttributes

if TYPE_CHECKING:
    from twinstore.aio.calls import CallThreads

__all__ = ["AsyncModuleAttributes", "facade_of", "names"]

DERIVED: Final = re.compile(r"Async\w+")


class AsyncModuleAttributes(ModuleAttributes):
    """Gives a storage for asyncio one attribute per installed module."""


def names() -> tuple[str, ...]:
    """Return the names that are derived, sorted; only the plug-ins of the modules are imported."""
    return tuple(sorted(_modules_of_names()))


def _modules_of_names() -> dict[str, str]:
    return {f"Async{name}": module for module in built_modules() for name in module_plugins()[module].classes}


def facade_of(module: str) -> Callable[[object, CallThreads], object]:
    """Return the class of the storage of a module for asyncio.

    Raises:
        ConfigurationError: the module cannot be loaded, or has no classes for asyncio.
    """
    name = f"Async{module_spec(module).title}Storage"
    return cast("Callable[[object, CallThreads], object]", _generated(module, name))


def _generated(module: str, name: str) -> object:
    """Return a class of the package that the generator writes into the package of a module."""
    package = f"{module_spec(module).package}.aio"
    try:
        return getattr(import_module(package), name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ConfigurationError(
            f"The module {module!r} has no classes for asyncio ({package}); its author writes them with "
            f"`twinstore dev aio {module}`.",
            module=module,
        ) from None


def __getattr__(name: str) -> object:
    module = _modules_of_names().get(name) if DERIVED.fullmatch(name) else None
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _generated(module, name)
