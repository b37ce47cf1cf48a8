"""Deployments of the memory driver, with a probe that looks into the store of the process."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from typing_extensions import override

import twinstore
from twinstore.clock import SystemClock
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing import Deployment, DeploymentDefaults, ProbeDefaults, StoredRow
from twinstore_memory import rows
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.store import MemoryDatabase, drop_store, shared_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from twinstore.backend import ModuleBackend
    from twinstore.catalog import Entity, Key
    from twinstore.clock import Clock
    from twinstore.modules import ModuleSpec

R = TypeVar("R")

__all__ = ["MemoryDeployment", "MemoryProbe", "MemoryVariant", "memory_deployments"]


class MemoryProbe(ProbeDefaults):
    """Looks into the store of a process."""

    def __init__(self, store: MemoryDatabase) -> None:
        self._store = store

    def count(self, entity: Entity, tenant_id: str) -> int:
        return sum(row.tenant_id == tenant_id for row in rows.stored_rows(self._store, entity).values())

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        row = rows.stored_rows(self._store, entity).get(key)
        return None if row is None else StoredRow(row.document, row.markers)

    def stamp(self, entity: Entity, key: Key) -> object | None:
        slot = self._store.slot(rows.table(entity).name, key)
        return None if slot is None else slot.number

    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        row = rows.stored_rows(self._store, entity)[key]
        markers = {name: value for name, value in values.items() if name in entity.markers}
        document = {name: value for name, value in values.items() if name not in markers}
        rows.plant(
            self._store,
            replace(row, document={**row.document, **document}, markers={**row.markers, **markers}),
        )

    @override
    def garble(self, entity: Entity, key: Key) -> bool:
        row = rows.stored_rows(self._store, entity)[key]
        kept = {*entity.identity, *(name for index in entity.indexes for name in index.names)}
        document = {name: value if name in kept else [value] for name, value in row.document.items()}
        rows.plant(self._store, replace(row, document=document))
        return True

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        row = rows.stored_rows(self._store, entity)[key]
        rows.plant(self._store, replace(row, document={**row.document, "foreign": content}))


class MemoryDeployment(DeploymentDefaults):
    """A named store."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.probe = MemoryProbe(shared_store(name))

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> SchedulerStorage:
        del expiring
        settings = {"Persistence": {"Memory": {"Store": self._name}}}
        return twinstore.add_scheduler_memory_storage(settings, clock=clock)

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        del clock  # that of the store judges
        with closing(MemoryBackend(module, shared_store(self._name))) as backend:
            yield backend

    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        unit = shared_store(self._name).begin()
        try:
            yield unit
            unit.commit()
        finally:
            unit.rollback()


class MemoryVariant(MemoryDeployment):
    """A named store, opened by a backend that differs from ours in one point."""

    def __init__(self, backend: type[MemoryBackend[Any]], name: str) -> None:
        super().__init__(name)
        self._backend = backend

    @override
    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> SchedulerStorage:
        del expiring
        return SchedulerStorage(self._backend(MODULE, shared_store(self._name)), clock or SystemClock())

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        del clock  # that of the store judges
        with closing(self._backend(module, shared_store(self._name))) as backend:
            yield backend


@contextmanager
def memory_deployments(
    *, migrated: bool = True, make: Callable[[str], Deployment] = MemoryDeployment
) -> Iterator[Deployment]:
    """Make a store of its own; it has no schema, so it is always migrated."""
    del migrated
    name = uuid4().hex
    try:
        yield make(name)
    finally:
        drop_store(name)
