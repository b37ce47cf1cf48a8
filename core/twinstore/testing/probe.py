"""What a test module provides: deployments of one driver, and a probe that sees what was really stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from twinstore.backend import ModuleBackend
    from twinstore.catalog import Entity, Key
    from twinstore.clock import Clock
    from twinstore.modules import ModuleSpec
    from twinstore.scheduler.storage import SchedulerStorage

R = TypeVar("R")

__all__ = ["BackendFactory", "Deployment", "RawProbe", "StoredRow"]


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
    """Looks at the store past the repositories, and past the tenant checks of the server."""

    def count(self, entity: Entity, tenant_id: str) -> int:
        """Return the number of stored rows of a tenant, soft-deleted ones included."""
        ...

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        """Return what is stored under a key. Absent: ``None``."""
        ...

    def stamp(self, entity: Entity, key: Key) -> object | None:
        """Return a value that changes with every write of the row; ``None`` where the store keeps none."""
        ...

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        """Change a stored row so that it forms no model any more, and put ``content`` into the bad part.

        Whatever else the row holds stays, so that filters still find it.
        """
        ...


class Deployment(Protocol):
    """One empty, migrated database (or what stands for it) of the driver under test."""

    @property
    def probe(self) -> RawProbe:
        """The probe of this deployment."""
        ...

    def open(self, *, clock: Clock | None = None) -> SchedulerStorage:
        """Return another storage on the same data; the caller closes it."""
        ...

    def open_module(self, module: ModuleSpec[R]) -> AbstractContextManager[ModuleBackend[R]]:
        """Open a module on the same data, with everything in place that its description asks for.

        Repeated call: another backend on the same rows. It is closed at the end; the rows stay.
        """
        ...

    def handle(self, tenant_id: str) -> AbstractContextManager[object] | None:
        """Return a transaction of the caller's own, for ``bind``; ``None`` where the driver joins none.

        The context manager commits at normal exit and rolls back on an exception.
        """
        ...


class BackendFactory(Protocol):
    """The fixture ``backend_factory`` that a test module provides, of class scope or wider."""

    def __call__(self, *, migrated: bool = True) -> AbstractContextManager[Deployment]:
        """Make a deployment of its own and remove it at the end; without ``migrated`` it has no schema."""
        ...
