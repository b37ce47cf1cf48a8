"""What a test module provides: deployments of one driver, and a probe that sees what was really stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage

R = TypeVar("R")

__all__ = [
    "BackendFactory",
    "Deployment",
    "DeploymentDefaults",
    "ProbeDefaults",
    "RawProbe",
    "StoredRow",
]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One row as the store holds it, in the terms of the wire form.

    Attributes:
        document: the values by wire name; instants are aware datetimes or text, enumerations are wire text,
            absent values are left out.
        markers: the storage markers of the entity; absent ones are left out.
    """

    document: Mapping[str, object]
    markers: Mapping[str, object] = field(default_factory=dict[str, object])


class RawProbe(Protocol):
    """Looks at the store past the repositories, and past the tenant checks of the server.

    :class:`ProbeDefaults` answers for what a store has nothing of.
    """

    def count(self, entity: Entity, tenant_id: str) -> int:
        """Return the number of stored rows of a tenant, soft-deleted ones included.

        Of an entity whose rows have no tenant, and none through a parent: of all rows.
        """
        ...

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        """Return what is stored under a key. Absent: ``None``."""
        ...

    def stamp(self, entity: Entity, key: Key) -> object | None:
        """Return a value that changes with every write of the row; ``None`` where there is no such row."""
        ...

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        """Change a stored row so that it forms no model any more, and put ``content`` into the bad part.

        Whatever else the row holds stays, so that filters still find it. A store with typed columns asks
        :func:`~twinstore.testing.damage.breaking_change` where.
        """
        ...

    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        """Set fields and markers of a stored row to other values that its model admits.

        The values are those of the wire form, by wire name.
        """
        ...

    def garble(self, entity: Entity, key: Key) -> bool:
        """Damage the form of a stored row: text that is cut short, a list in place of an object.

        False where the store itself prevents every such damage.
        """
        ...

    def objects(self) -> frozenset[str]:
        """Return the names of what the store has been given to hold rows: tables, indexes, collections."""
        ...

    def tamper_migration(self, name: str) -> None:
        """Change the recorded checksum of an applied migration; record one of that name where there is none.

        Repeated call: takes the change back. Never called where the driver has no migrations.
        """
        ...

    def shown_to(self, tenant_id: str, entity: Entity) -> int | None:
        """Return how many rows the server shows, unfiltered, to the role of the library set to a tenant.

        ``None`` where the server checks no tenant.
        """
        ...

    def removes_expired(self, entity: Entity) -> bool:
        """Whether the store was told to remove the expired rows of an entity by itself."""
        ...

    def changes(self, entity: Entity) -> AbstractContextManager[Callable[[], Key]] | None:
        """Follow the changes of an entity; the callable waits for the next and returns the key of its row.

        ``None`` where the store has no such feed.
        """
        ...


class ProbeDefaults:
    """What a probe of a store without schema, tenant checks, retention and feed of changes answers."""

    def garble(self, entity: Entity, key: Key) -> bool:
        """Do nothing."""
        del entity, key
        return False

    def objects(self) -> frozenset[str]:
        """Return nothing."""
        return frozenset()

    def tamper_migration(self, name: str) -> None:
        """Refuse: there are no migrations."""
        raise NotImplementedError(name)

    def shown_to(self, tenant_id: str, entity: Entity) -> int | None:
        """Return nothing."""
        del tenant_id, entity
        return None

    def removes_expired(self, entity: Entity) -> bool:
        """Return that it does not."""
        del entity
        return False

    def changes(self, entity: Entity) -> AbstractContextManager[Callable[[], Key]] | None:
        """Return nothing."""
        del entity
        return None


class Deployment(Protocol):
    """One empty, migrated database (or what stands for it) of the driver under test, for one module.

    It may have an attribute ``remote``: true where every call waits for a server. Without it the rivals of a
    race are made to take turns within a call, which costs time and which the messages to a server do anyway.

    It may have a method ``waiting() -> bool``: whether a writer waits for another one at this moment. With it
    the cases about a second writer are certain. Without it they give that writer 50 ms to arrive.
    """

    @property
    def probe(self) -> RawProbe:
        """The probe of this deployment."""
        ...

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        """Return another storage of the module on the same data; the caller closes it.

        Args:
            clock: the clock of the storage.
            expiring: migrate with the retention of the defaults. Otherwise with none where the store removes
                expired rows by itself, because tests finish their rows in the past.
        """
        ...

    def open_module(
        self, module: ModuleSpec[R], *, clock: Clock | None = None
    ) -> AbstractContextManager[ModuleBackend[R]]:
        """Open a module on the same data, with everything in place that its description asks for.

        It is the module of the deployment with other repositories, or one without migrations, which gets what
        follows from its description.
        Repeated call: another backend on the same rows. It is closed at the end; the rows stay.
        """
        ...

    def handle(self, tenant_id: str) -> AbstractContextManager[object] | None:
        """Return a transaction of the caller's own, for ``bind``; ``None`` where the driver joins none.

        The context manager commits at normal exit and rolls back on an exception.
        """
        ...

    def break_connection(self) -> AbstractContextManager[ModuleStorage[object, object]] | None:
        """Return a storage that has worked and whose store can no longer be reached.

        ``None`` where nothing lies between driver and store that could break. It gives up within seconds.
        """
        ...

    def settings(self) -> Mapping[str, object] | None:
        """Return settings that open the same data in another process; ``None`` where no other can see it."""
        ...


class DeploymentDefaults:
    """What a deployment answers whose data lives in the process of the test."""

    def break_connection(self) -> AbstractContextManager[ModuleStorage[object, object]] | None:
        """Return nothing: there is no connection."""
        return None

    def settings(self) -> Mapping[str, object] | None:
        """Return nothing: no other process sees the data."""
        return None


class BackendFactory(Protocol):
    """The fixture ``backend_factory`` that a test module provides, of class scope or wider."""

    def __call__(
        self, module: ModuleSpec[object], *, migrated: bool = True
    ) -> AbstractContextManager[Deployment]:
        """Make a deployment of its own for a module and remove it at the end.

        Args:
            module: what its storages store.
            migrated: apply the migrations that the module ships; without, there is no schema.
        """
        ...
