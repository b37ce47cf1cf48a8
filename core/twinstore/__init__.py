"""Repositories stored in MongoDB or PostgreSQL, chosen by one configuration switch.

Start with :func:`open_storage`; the models and contracts of a module live in the package of the module.
For each installed module ``library`` there are ``LibraryStorage``, ``LibrarySession``,
``add_library_storage`` and, for each installed driver, a function such as ``add_library_mongo_storage`` and
``LibraryMongoSessionFactory``, which is :class:`SessionFactory` under the name of the module and the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.runtime import moved_modules

if TYPE_CHECKING:
    from twinstore.access.paging import Page, each
    from twinstore.clock import Clock, ManualClock, SystemClock
    from twinstore.config import Settings, load_settings
    from twinstore.errors import (
        ConcurrencyError,
        ConfigurationError,
        ConflictError,
        ConsentRequiredError,
        DocumentDecodeError,
        DuplicateError,
        InvalidTransitionError,
        LeaseLostError,
        LockTimeoutError,
        MigrationChecksumError,
        MigrationError,
        MigrationMissingError,
        NotFoundError,
        Outcome,
        TenantScopeError,
        TimeoutExceededError,
        TransactionAbortedError,
        TwinstoreError,
        UnavailableError,
        UnsupportedCapabilityError,
        ValidationError,
    )
    from twinstore.models.canonical import CanonicalJsonSerializer
    from twinstore.plugins.backend import Capabilities
    from twinstore.storage import installed
    from twinstore.storage.installed import *  # noqa: F403  # generated: storages and functions of our modules
    from twinstore.storage.module import SessionFactory
    from twinstore.storage.open import Storage, open_storage

    __version__: str

moved_modules.install()

__all__ = [
    "CanonicalJsonSerializer",
    "Capabilities",
    "Clock",
    "ConcurrencyError",
    "ConfigurationError",
    "ConflictError",
    "ConsentRequiredError",
    "DocumentDecodeError",
    "DuplicateError",
    "InvalidTransitionError",
    "LeaseLostError",
    "LockTimeoutError",
    "ManualClock",
    "MigrationChecksumError",
    "MigrationError",
    "MigrationMissingError",
    "NotFoundError",
    "Outcome",
    "Page",
    "SessionFactory",
    "Settings",
    "Storage",
    "SystemClock",
    "TenantScopeError",
    "TimeoutExceededError",
    "TransactionAbortedError",
    "TwinstoreError",
    "UnavailableError",
    "UnsupportedCapabilityError",
    "ValidationError",
    "__version__",
    "each",
    "load_settings",
    "open_storage",
]

if TYPE_CHECKING:
    __all__ += installed.__all__
else:
    # Each name is imported when it is asked for: most processes need few of them, and no command all.
    _HOMES = {
        "Capabilities": "plugins.backend",
        "CanonicalJsonSerializer": "models.canonical",
        "Clock": "clock",
        "ManualClock": "clock",
        "SystemClock": "clock",
        "Settings": "config",
        "load_settings": "config",
        "Page": "access.paging",
        "each": "access.paging",
        "SessionFactory": "storage.module",
        "Storage": "storage.open",
        "open_storage": "storage.open",
        "__version__": "runtime.version",
    }
    # A list would have to be complete when this package is imported, and so before any plug-in is.
    _fixed = tuple(globals().pop("__all__"))

    def __getattr__(name: str) -> object:
        from importlib import import_module, util  # noqa: PLC0415  # only where a name is asked for

        if name in _fixed:
            found = getattr(import_module(f"twinstore.{_HOMES.get(name, 'errors')}"), name)
            globals()[name] = found
            return found
        # Before the modules are asked, which would import themselves for their own parts.
        if util.find_spec(f"twinstore.{name}") is not None:
            return import_module(f"twinstore.{name}")
        installed = import_module("twinstore.storage.installed")
        if name == "__all__":
            return sorted({*_fixed, *installed.names()})
        try:
            return getattr(installed, name)
        except AttributeError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
