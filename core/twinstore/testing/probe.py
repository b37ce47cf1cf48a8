"""What a test module provides: deployments of one driver, and a probe that sees what was really stored.

For probes of stores with typed columns, :func:`breaking_change` finds from its description where a stored row
can be broken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from twinstore.access.scope import field_argument
from twinstore.catalog.entity import Layout
from twinstore.errors import ValidationError
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.models.shapes import FieldShape
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage

__all__ = [
    "BackendFactory",
    "BreakingChange",
    "Deployment",
    "DeploymentDefaults",
    "ProbeDefaults",
    "RawProbe",
    "StoredRow",
    "breaking_change",
]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One row as the store holds it, in the terms of the wire form.

    Attributes:
        document: the values by wire name; instants are aware datetimes or text, enumerations are wire text,
            typed values of free JSON are the objects that represent them, absent values are omitted.
        markers: the storage markers of the entity; absent ones are omitted.
    """

    document: Mapping[str, object]
    markers: Mapping[str, object] = field(default_factory=dict[str, object])


class RawProbe(Protocol):
    """Inspects the store past the repositories, and past the tenant checks of the server.

    :class:`ProbeDefaults` answers for what a store has nothing of.
    """

    def count(self, entity: Entity, tenant_id: str) -> int:
        """Return the number of stored rows of a tenant, soft-deleted ones included.

        Of an entity whose rows have no tenant, and none through a parent: of all rows.
        """
        ...

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        """Return what is stored under a key. Absent: ``None``.

        Instants may be dates or texts, decimals and bytes are as models hold them, and ids are texts.
        """
        ...

    def stamp(self, entity: Entity, key: Key) -> object | None:
        """Return a value that changes with every write of the row; ``None`` where there is no such row."""
        ...

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        """Change a stored row so that it forms no model any more, and put ``content`` into the bad part.

        Whatever else the row holds stays, so that filters still find it. A store with typed columns asks
        :func:`~twinstore.testing.probe.breaking_change` where.
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
        """Whether the store is configured to remove the expired rows of an entity by itself."""
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
    """One empty, migrated database (or its equivalent) of the driver under test, for one module.

    It may have an attribute ``remote``: true if every call waits for a server. Without it the threads of a
    race are switched within a call. That costs time, and the messages to a server cause such switches anyway.

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
        """Make a separate deployment for a module and remove it at the end.

        Args:
            module: what its storages store.
            migrated: apply the migrations that the module ships; without, there is no schema.
        """
        ...


# No model of ours has a property of this name.
FOREIGN: Final = "foreign"
# Added to a text that a field would admit: few texts may hold such a character, and no name is so long.
CONTROL: Final = "\x01"
FILLING: Final = "." * 10_000


@dataclass(frozen=True, slots=True)
class BreakingChange:
    """A change that leaves a row without model, although the types of the columns admit it.

    Attributes:
        field: the wire name; ``None`` for the payload as a whole.
        value: what to put there, as JSON.
        merged: whether it is added to the object that is stored; otherwise it takes the place of what is.
    """

    field: str | None
    value: object
    merged: bool


def breaking_change(entity: Entity, content: str) -> BreakingChange:
    """Return where a row can be broken with a text, outside of what keys, indexes and lists use.

    Raises:
        LookupError: there is no such place.
    """
    if entity.layout is Layout.PAYLOAD:
        return BreakingChange(None, {FOREIGN: content}, merged=True)
    for spot in _spots(entity, content):
        return spot
    raise LookupError(f"{entity.name} has no field that could be broken")


def _spots(entity: Entity, content: str) -> Iterator[BreakingChange]:
    looked_at: set[str | None] = {name for index in entity.indexes for name in index.names}
    looked_at |= {*entity.key, entity.tenant_field, entity.retention.field if entity.retention else None}
    looked_at.add(None if entity.parent is None else entity.parent.field)
    shapes = [shape for shape in entity.shapes.values() if shape.wire not in looked_at]
    # Optional ones last: rows have a value there after the change only.
    for written in (True, False):
        for kind in (Kind.OBJECT, Kind.MAP, Kind.TEXT):
            for shape in shapes:
                if shape.value.kind is kind and shape.always_written is written:
                    yield from _spots_in(entity, shape, content)


def _spots_in(entity: Entity, shape: FieldShape, content: str) -> Iterator[BreakingChange]:
    if shape.value.kind is Kind.OBJECT:
        yield BreakingChange(shape.wire, {FOREIGN: content}, merged=True)
    elif shape.value.kind is Kind.MAP:
        # A map admits any key, and a free one any value as well; but never a list in its own place.
        yield BreakingChange(shape.wire, [content], merged=False)
    else:
        for text in (content, content + CONTROL, content + FILLING):
            if not _admits(entity, shape, text):
                yield BreakingChange(shape.wire, text, merged=False)


def _admits(entity: Entity, shape: FieldShape, content: str) -> bool:
    """Whether the annotation of a text admits a value."""
    try:
        field_argument(entity.model, shape.name, content, shape.name)
    except ValidationError:
        return False
    return True
