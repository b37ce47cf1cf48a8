"""Deployments of the memory driver, with a probe that looks into the store of the process.

A module proves itself on them without any server. Needs ``twinstore[testing]``.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from typing_extensions import override

from twinstore.catalog.tenancy import Tenant
from twinstore.storage.open import open_module
from twinstore.testing import Deployment, DeploymentDefaults, ProbeDefaults, RawProbe, StoredRow
from twinstore_memory import rows
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.store import MemoryDatabase, drop_store, shared_store
from twinstore_memory.unit import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage

R = TypeVar("R")


class MemoryProbe(ProbeDefaults, RawProbe):
    """Looks into the store of a process."""

    def __init__(self, store: MemoryDatabase) -> None:
        self._store = store

    @override
    def count(self, entity: Entity, tenant_id: str) -> int:
        unit = MemoryUnit(self._store.begin())
        return sum(1 for _ in unit.visible(entity, Tenant(tenant_id)))

    @override
    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        row = rows.stored_row(self._store, entity, key)
        return None if row is None else StoredRow(row.document, row.markers)

    @override
    def stamp(self, entity: Entity, key: Key) -> object | None:
        slot = self._store.slot(rows.table(entity).name, key)
        return None if slot is None else slot.number

    @override
    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        row = rows.stored_rows(self._store, entity)[key]
        markers = {name: value for name, value in values.items() if name in entity.markers}
        document = {name: value for name, value in values.items() if name not in markers}
        rows.store_unchecked(
            self._store,
            replace(row, document={**row.document, **document}, markers={**row.markers, **markers}),
        )

    @override
    def garble(self, entity: Entity, key: Key) -> bool:
        row = rows.stored_rows(self._store, entity)[key]
        kept = {*entity.identity, *(name for index in entity.indexes for name in index.names)}
        document = {name: value if name in kept else [value] for name, value in row.document.items()}
        rows.store_unchecked(self._store, replace(row, document=document))
        return True

    @override
    def poison(self, entity: Entity, key: Key, content: str) -> None:
        row = rows.stored_rows(self._store, entity)[key]
        rows.store_unchecked(self._store, replace(row, document={**row.document, "foreign": content}))


class MemoryDeployment(DeploymentDefaults, Deployment):
    """A named store."""

    def __init__(self, module: ModuleSpec[object], name: str) -> None:
        self._module = module
        self._name = name
        self._probe = MemoryProbe(shared_store(name))

    @property
    @override
    def probe(self) -> MemoryProbe:
        return self._probe

    def waiting(self) -> bool:
        """Whether a unit waits for another one."""
        return shared_store(self._name).waiting > 0

    @override
    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        del expiring
        settings = {"Persistence": {"Memory": {"Store": self._name}}}
        return open_module(self._module.name, "Memory", settings, clock=clock)

    @contextmanager
    @override
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        del clock  # that of the store judges
        with closing(MemoryBackend(module, shared_store(self._name))) as backend:
            yield backend

    @contextmanager
    @override
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        unit = shared_store(self._name).begin()
        try:
            yield unit
            unit.commit()
        finally:
            unit.rollback()


@contextmanager
def memory_deployments(
    module: ModuleSpec[object],
    *,
    migrated: bool = True,
    make: Callable[[ModuleSpec[object], str], Deployment] = MemoryDeployment,
) -> Iterator[Deployment]:
    """Make a separate store; it has no schema, so it is always migrated."""
    del migrated
    name = uuid4().hex
    try:
        yield make(module, name)
    finally:
        drop_store(name)
