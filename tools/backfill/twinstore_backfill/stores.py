"""Opening the stores of a command: one side is a module on a driver with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from logging import getLogger
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, Self

from typing_extensions import TypeVar

from twinstore.bulk.changes import NO_CHANGES, DocumentChanges
from twinstore.catalog.entity import CopyPolicy
from twinstore.config import Settings, load_settings
from twinstore.config.urls import SOURCE, settings_of_url
from twinstore.errors import ConfigurationError, MigrationError, UnsupportedCapabilityError, ValidationError
from twinstore.ledger import Ledger
from twinstore.migrations.migration import MigrationState, consent_required
from twinstore.plugins.drivers import load_backend
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.storage.module import ModuleStorage
from twinstore.storage.open import open_module
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.process.secrets import REDACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from twinstore.bulk.port import BulkPort, Inventory
    from twinstore.catalog.entity import Entity
    from twinstore.config.entries import SettingsEntry
    from twinstore.migrations.migration import Initializer
    from twinstore.plugins.options import ModuleOptions

T = TypeVar("T")
AnyStorage = ModuleStorage[object, object]
# A tool that knows the module names the class of its storage.
St_co = TypeVar("St_co", bound=AnyStorage, covariant=True, default=AnyStorage)


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """How to open a store again in another process. It holds secrets and is never shown."""

    module: str
    backend: str
    entries: dict[tuple[str, ...], SettingsEntry] = field(repr=False)
    read_only: bool = False
    note: str = ""

    @classmethod
    def of(cls, module: str, backend: str, settings: Settings, *, read_only: bool = False) -> Self:
        """Return the specification of a module on a driver."""
        return cls(module, backend, dict(settings.entries), read_only, settings.note)

    def settings(self) -> Settings:
        """Return the settings it was made from."""
        return Settings(MappingProxyType(self.entries), self.note)

    def open(self) -> AbstractContextManager[Store]:
        """Open the store."""
        return open_store(self.module, self.backend, self.settings(), read_only=self.read_only)


@dataclass(frozen=True, slots=True)
class Store(Generic[St_co]):
    """One open side of a copy or a comparison. Without a ``spec`` it lives in this process only."""

    backend: str
    storage: St_co
    options: ModuleOptions
    spec: StoreSpec | None = None
    module: str = field(kw_only=True)
    changes: DocumentChanges = field(default=NO_CHANGES, kw_only=True)

    @property
    def bulk(self) -> BulkPort:
        """The port for whole entities; its views show rows after the changes."""
        return self.storage.bulk.with_changes(self.changes) if self.changes else self.storage.bulk

    def changed(self, changes: DocumentChanges) -> Self:
        """Return the same store, whose rows are read as these changes leave them."""
        return replace(self, changes=changes)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the copies into this store.

        Raises:
            PreflightError: nothing is copied into it.
        """
        preflight(lambda: self.storage.capabilities.require("bulk_target"))
        return Ledger(self.bulk.access(), atomic=self.storage.capabilities.transactions)

    def described(self) -> dict[str, str]:
        """Return what reports say of a store: driver, place, identity and server, without secrets."""
        return {
            "backend": self.backend,
            "identity": self.bulk.identity,
            "place": self.bulk.place,
            "server_version": self.storage.capabilities.server_version,
        }


def module_argument(module: str) -> str:
    """Return the proper spelling of a module.

    Raises:
        ConfigurationError: no module has that name, or it cannot be used.
    """
    return module_spec(module).name


def resolve_module(given: str | None, *settings: Settings) -> str:
    """Return the module of a command: the given one, or the only one.

    Args:
        given: the option, ``None`` if it is absent.
        settings: those of each side. If they name no module, all installed modules are used.

    Raises:
        ConfigurationError: the given module cannot be used.
        ValidationError: no module is given, and none or more than one is installed.
    """
    if given is not None:
        return module_argument(given)
    named = tuple(dict.fromkeys(name for item in settings for name in item.named_modules()))
    found = named or built_modules()
    if len(found) != 1:
        where = "The settings name" if named else "There are"
        modules = f"{len(found)} modules ({', '.join(found)})" if found else "no modules"
        raise ValidationError(f"{where} {modules}; say with --module which one is meant.")
    return found[0]


def url_settings(url: str, module: str, over: Settings) -> tuple[str, Settings]:
    """Return the driver of a URL, and settings with its place; secrets and user of it are shown nowhere.

    Raises:
        ConfigurationError: it has not the scheme of a driver, or cannot be read.
    """
    settings = settings_of_url(url, module, over=over)
    REDACTOR.learn(settings)
    for entry in settings.entries.values():
        if entry.source == SOURCE:
            REDACTOR.learn_user(entry.text)
    return settings.backend_name(module), settings


@contextmanager
def open_store(
    module: str, backend: str, config: Settings | Path | None = None, *, read_only: bool = False
) -> Iterator[Store]:
    """Open a module on a driver, connect to it, and close it afterwards.

    Args:
        module: name of the module.
        backend: name of the driver.
        config: settings, or the file that holds them.
        read_only: it is the source of a copy or a comparison; any role that may read is enough.

    Raises:
        ConfigurationError: unreadable settings, an unknown or incomplete driver, a wrong password.
        PreflightError: the server is not suitable.
        UnavailableError: the server cannot be reached.
    """
    settings = load_settings(config)
    REDACTOR.learn(settings)
    module = module_argument(module)
    name = load_backend(backend, module=module).name
    with open_module(module, name, settings, read_only=read_only) as storage:
        # The data of the memory driver lives in this process, so no other can open it again.
        spec = None if name == "Memory" else StoreSpec.of(module, name, settings, read_only=read_only)
        # Connects: a wrong address or password is reported before any work begins.
        preflight(lambda: storage.capabilities)
        yield Store(name, storage, settings.options(module), spec, module=module)


def preflight(step: Callable[[], T]) -> T:
    """Return what one check or preparation of a store answers; a refusal becomes a :class:`PreflightError`.

    An error of the client library, such as a refused password, is not a refusal of ours and stays what it is.
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
    """Bring the schemas of module and ledger in a target up to date and check that it can be written to.

    Raises:
        PreflightError: it cannot, or its server would remove, refuse or hide rows that are there; in that
            case nothing was changed.
    """
    initializers = initializers_of(target)
    effects = tuple(effect for initializer in initializers for effect in preflight(initializer.effects))
    if effects:
        refusal = consent_required(
            effects, "Nothing was changed.", module=target.module, driver=target.backend
        )
        raise PreflightError(refusal.message, driver=target.backend) from refusal
    for initializer in initializers:
        preflight(initializer.ensure_migrations)
    if not target.changes:
        preflight(target.storage.check_ready)


def refuse_undescribed(target: Store, entities: Iterable[Entity]) -> None:
    """Refuse a target that a verification could not compare in full; no rows are read.

    Raises:
        PreflightError: a table has a column that the description of its entity does not know.
    """
    with target.bulk.view() as view:
        for entity in entities:
            preflight(partial(list, view.rows_of(entity, ())))


def initializers_of(target: Store) -> tuple[Initializer, ...]:
    """Return what makes the schema of the module and that of the ledger; the latter alone in another form."""
    ledger = target.bulk.ledger_initializer
    return (ledger,) if target.changes else (target.storage.initializer, ledger)


def is_migrated(store: Store) -> bool:
    """Return whether the schema of a store is complete, so that its rows can be queried."""
    return all(item.state is not MigrationState.PENDING for item in store.storage.initializer.status())


def has_ledger(store: Store) -> bool:
    """Return whether a store has the schema of the ledger, so that its jobs can be queried.

    Raises:
        PreflightError: it has that of an earlier release, or is being migrated.
    """
    # A store may need no migration at all.
    states = [item.state is MigrationState.PENDING for item in store.bulk.ledger_initializer.status()]
    if any(states) and not all(states):
        command = f"twinstore migrate run --module {store.module} --backend {store.backend}"
        raise PreflightError(
            f"The ledger of {store.bulk.place} is being migrated, or of an earlier release; then run "
            f"`{command}`, which keeps its jobs.",
            driver=store.backend,
        )
    return not any(states)


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
    """Return the named entities in copy order, all that are copied when none is named.

    Raises:
        ValidationError: an entity is unknown, or excluded from every copy.
    """
    entities = port.entities()
    known = {entity.name: entity for entity in entities}
    for name in names:
        if name not in known:
            raise ValidationError(f"Unknown entity {name!r}; known: {', '.join(known)}.")
        if known[name].copy_policy is CopyPolicy.LEFT_OUT:
            raise ValidationError(
                f"Entity {name!r} is {CopyPolicy.LEFT_OUT.value}; it can be neither copied nor compared."
            )
    copied = [entity for entity in entities if entity.copy_policy is not CopyPolicy.LEFT_OUT]
    return tuple(entity for entity in copied if not names or entity.name in names)


def left_out_entities(port: BulkPort, names: Sequence[str]) -> tuple[Entity, ...]:
    """Return the entities that a copy skips and that reports count; none if entities are named."""
    found = (entity for entity in port.entities() if entity.copy_policy is CopyPolicy.LEFT_OUT)
    return () if names else tuple(found)


# Looking at a source before its rows are read. A source is only read: it needs no schema of ours.


log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a source lacks.

    Attributes:
        absent: entities without a collection or table; they count as empty.
        remarks: what is absent, and what its server removes meanwhile.
        costs: what makes reading slow, each a sentence with its cost.
        server_ttls: by entity, the age at which its server removes rows by itself.
        slow: entities for which each access to a range may read all rows.
    """

    absent: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    server_ttls: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])
    slow: frozenset[str] = frozenset()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Both, the costs last."""
        return self.remarks + self.costs


NOTHING_LACKED: Final = SourceState()


def inspect_source(source: Store) -> SourceState:
    """Return what a source lacks, and warn of it before it is felt.

    Raises:
        PreflightError: there is nothing of the module at all, or something cannot be read in full.
    """
    found = preflight(source.bulk.inventory)
    names = [item.entity for item in found]
    absent = frozenset(item.entity for item in found if not item.present)
    if len(absent) == len(found):
        raise PreflightError(
            f"The source {source.bulk.place} has none of {', '.join(names)}, so there is nothing to read; "
            "check the name of its database.",
            driver=source.backend,
        )
    slow = frozenset(item.entity for item in found if item.warnings)
    costs = tuple(text for item in found if item.present for text in item.warnings)
    state = SourceState(absent, tuple(_remarks(found)), costs, ttls_in(found), slow)
    for text in state.warnings:
        # The result of the command shows them.
        log.info("source: %s", text)
    return state


def _remarks(found: Sequence[Inventory]) -> Iterator[str]:
    """Yield what is absent in one sentence, because a foreign source lacks most; then the remarks."""
    absent = [item for item in found if not item.present]
    if len(absent) > 1:
        yield f"There is nothing for {', '.join(item.entity for item in absent)}; they count as empty."
    yield from (text for item in absent if len(absent) == 1 for text in item.warnings)
    # One about the whole store comes with each entity.
    yield from dict.fromkeys(text for item in found for text in item.remarks)


def server_ttls(store: Store) -> dict[str, timedelta]:
    """Return, by entity, the age at which the server of a store removes rows by itself."""
    # Not every target can be surveyed as a source is, and no other one removes anything.
    return ttls_in(store.bulk.inventory()) if store.storage.capabilities.server_ttl else {}


def ttls_in(found: Iterable[Inventory]) -> dict[str, timedelta]:
    """Return the ages in a survey, by entity."""
    return {item.entity: item.removed_after for item in found if item.removed_after is not None}


def refuse_same_store(source: BulkPort, target: BulkPort) -> None:
    """Refuse two sides that are the same store.

    Raises:
        ValidationError: they are.
        PreflightError: they may be; names what to grant.
    """
    # Also by the running server: users with different rights may learn different things of one store.
    if source.identity == target.identity or source.instance == target.instance:
        raise ValidationError(
            f"Source and target are the same store, {source.place}; "
            "give another --target-config, or another driver with --to."
        )
    if source.may_be(target):
        needs = " ".join(identity_needs(source, target))
        raise PreflightError(f"Source and target may be the same store, {source.place}. {needs}")


def identity_needs(*ports: BulkPort) -> tuple[str, ...]:
    """Return what to grant so that stores are certain to be different ones."""
    return tuple(dict.fromkeys(needs for port in ports if (needs := port.identity_needs)))


def left_out_counts(source: Store, target: Store, names: Sequence[str]) -> list[dict[str, object]]:
    """Return, by label of their owner, the rows on both sides of the entities that no copy brings over."""
    return [
        {
            "entity": entity.name,
            "why": entity.copy_policy.value,
            "source": _sorted(source.bulk.counts(entity)),
            "target": _sorted(target.bulk.counts(entity)) if is_migrated(target) else {},
        }
        for entity in left_out_entities(source.bulk, names)
    ]


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))
