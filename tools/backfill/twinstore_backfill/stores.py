"""Opening the stores of a command: one side is a module on a driver with its settings."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from twinstore.config import Settings, load_settings
from twinstore.errors import ConfigurationError, MigrationError, UnsupportedCapabilityError, ValidationError
from twinstore.migrations import MigrationState, consent_required
from twinstore.plugins import load_backend
from twinstore.storage import open_scheduler
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.secrets import REDACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from twinstore.bulk import BulkPort
    from twinstore.catalog import Entity
    from twinstore.config.entries import Entry
    from twinstore.options import ModuleOptions
    from twinstore.scheduler.storage import SchedulerStorage

__all__ = [
    "Recipe",
    "Store",
    "is_migrated",
    "module_argument",
    "open_store",
    "preflight",
    "prepare_target",
    "require_tenants",
    "select_entities",
]

T = TypeVar("T")

OPENERS: Final = {"scheduler": open_scheduler}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to open a store again in another process. It holds secrets and is never shown."""

    module: str
    backend: str
    entries: dict[tuple[str, ...], Entry] = field(repr=False)
    read_only: bool = False

    @classmethod
    def of(cls, module: str, backend: str, settings: Settings, *, read_only: bool = False) -> Self:
        """Return the recipe of a module on a driver."""
        return cls(module, backend, dict(settings.entries), read_only)

    def settings(self) -> Settings:
        """Return the settings it was made from."""
        return Settings(MappingProxyType(self.entries))

    def open(self) -> AbstractContextManager[Store]:
        """Open the store."""
        return open_store(self.module, self.backend, self.settings(), read_only=self.read_only)


@dataclass(frozen=True, slots=True)
class Store:
    """One open side of a copy or a comparison. Without a ``recipe`` it lives in this process only."""

    backend: str
    storage: SchedulerStorage
    options: ModuleOptions
    recipe: Recipe | None = None
    module: str = "scheduler"

    @property
    def bulk(self) -> BulkPort:
        """The port for whole entities."""
        return self.storage.bulk

    def described(self) -> dict[str, str]:
        """Return what reports say of a store: driver, place and server, without secrets."""
        version = self.storage.capabilities.server_version
        return {"backend": self.backend, "identity": self.bulk.identity, "server_version": version}


def module_argument(module: str) -> str:
    """Return the proper spelling of a module.

    Raises:
        ValidationError: there is none of that name.
    """
    if module.casefold() not in OPENERS:
        raise ValidationError(f"There is no module {module!r}; there is {', '.join(OPENERS)}.")
    return module.casefold()


@contextmanager
def open_store(
    module: str, backend: str, config: Settings | Path | None = None, *, read_only: bool = False
) -> Iterator[Store]:
    """Open a module on a driver, connect to it, and close it afterwards.

    Args:
        module: name of the module.
        backend: name of the driver.
        config: settings, or the file that holds them.
        read_only: it is the source of a copy or a comparison; any role that may read will do.

    Raises:
        ConfigurationError: unreadable settings, an unknown or incomplete driver, a wrong password.
        PreflightError: the server is not suitable.
        UnavailableError: the server cannot be reached.
    """
    settings = load_settings(config)
    REDACTOR.learn(settings)
    module = module_argument(module)
    name = load_backend(backend, module=module).name
    with OPENERS[module](name, settings, read_only=read_only) as storage:
        # The data of the memory driver lives in this process, so no other can open it again.
        recipe = None if name == "Memory" else Recipe.of(module, name, settings, read_only=read_only)
        preflight(lambda: storage.capabilities)
        yield Store(name, storage, settings.options(module), recipe, module)


def preflight(step: Callable[[], T]) -> T:
    """Return what one check or preparation of a store answers; a refusal becomes a :class:`PreflightError`.

    An error of the client library, such as a refused password, is no refusal of ours and stays what it is.
    """
    try:
        return step()
    except (MigrationError, UnsupportedCapabilityError) as error:
        raise PreflightError(error.message, driver=error.driver) from error
    except ConfigurationError as error:
        if error.__cause__ is not None or error.__context__ is not None:
            raise
        raise PreflightError(error.message, driver=error.driver) from error


def prepare_target(target: Store) -> None:
    """Bring the schema of a target up to date and check that it can be written to.

    Raises:
        PreflightError: it cannot, or its server would remove, refuse or hide rows that are there; in that
            case nothing was changed.
    """
    initializer = target.storage.initializer
    effects = preflight(initializer.effects)
    if effects:
        refusal = consent_required(
            effects, "Nothing was changed.", module=target.module, driver=target.backend
        )
        raise PreflightError(refusal.message, driver=target.backend) from refusal
    preflight(initializer.ensure_migrations)
    preflight(target.storage.check_ready)


def is_migrated(store: Store) -> bool:
    """Tell whether the schema of a store is complete, so that it can be asked for rows."""
    return all(item.state is not MigrationState.PENDING for item in store.storage.initializer.status())


def require_tenants(stores: Iterable[Store], tenants: Iterable[str]) -> None:
    """Refuse a tenant without a row in any of the stores, which would prove or copy nothing.

    Raises:
        ValidationError: no store knows one of the tenants.
    """
    ports = [store.bulk for store in stores]
    for tenant in tenants:
        counted = (port.counts(entity, tenant_id=tenant) for port in ports for entity in port.entities())
        if not any(any(counts.values()) for counts in counted):
            raise ValidationError(f"Tenant {tenant!r} has no rows on either side; check the spelling.")


def select_entities(port: BulkPort, names: Sequence[str]) -> tuple[Entity, ...]:
    """Return the named entities in copy order, all of them when none is named.

    Raises:
        ValidationError: an entity is unknown.
    """
    entities = port.entities()
    known = [entity.name for entity in entities]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValidationError(f"There is no entity {unknown[0]!r}; there are {', '.join(known)}.")
    return tuple(entity for entity in entities if not names or entity.name in names)
