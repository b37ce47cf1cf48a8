"""What the repositories share: who may call, which unit answers, and when a unit becomes unusable."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, TypeVar

from twinstore.backend import UnitState, write_refused
from twinstore.errors import ConcurrencyError, DuplicateError, UnavailableError
from twinstore.paging import SortKey
from twinstore.query import AtMost, Query, batch_size_argument
from twinstore.scheduler.rules.missing import duplicate_id
from twinstore.scope import instant_argument, model_argument
from twinstore_memory.compile import select, sort_key
from twinstore_memory.rows import Row, decode, table
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.paging import Page
    from twinstore.scope import Scope
    from twinstore_memory.store import Store, Unit

__all__ = ["Joined", "Link", "MemoryRepository", "Single"]

T = TypeVar("T")
M = TypeVar("M", bound="CanonicalModel")

STORE_ERRORS = (DuplicateError, ConcurrencyError, UnavailableError)


class Link(Protocol):
    """How a repository reaches the store."""

    @property
    def state(self) -> UnitState:
        """Whether the set of repositories can still be used."""
        ...

    def reading(self) -> AbstractContextManager[Unit]:
        """Return the unit in which one call reads."""
        ...

    def writing(self) -> AbstractContextManager[Unit]:
        """Return the unit in which one call writes, or reads in order to write."""
        ...


class Single:
    """Each call is a unit of its own: repositories without a transaction."""

    def __init__(self, store: Store, *, unbound: bool = False) -> None:
        """Take the store, and whether the repositories belong to no session."""
        self.state = UnitState(unbound=unbound)
        self._store = store

    def reading(self) -> AbstractContextManager[Unit]:
        """Return a unit for one call."""
        return self.writing()

    @contextmanager
    def writing(self) -> Iterator[Unit]:
        """Commit the unit of one call at its end."""
        unit = self._store.begin()
        try:
            yield unit
            unit.commit()
        finally:
            unit.rollback()


class Joined:
    """All calls belong to one unit: repositories in a transaction."""

    def __init__(self, unit: Unit) -> None:
        """Take the unit."""
        self.state = unit.state
        self._unit = unit

    def reading(self) -> AbstractContextManager[Unit]:
        """Return the unit; reads meet no error of the store."""
        return nullcontext(self._unit)

    @contextmanager
    def writing(self) -> Iterator[Unit]:
        """Leave the unit open; after an error of the store it cannot be used any more."""
        if self._unit.read_only:
            raise write_refused(DRIVER)
        try:
            yield self._unit
        except STORE_ERRORS:
            self.state.abort()
            raise


class MemoryRepository:
    """Base of the repositories."""

    def __init__(self, link: Link, scope: Scope) -> None:
        """Take the way to the store and the tenant of the set."""
        self._link = link
        self._scope = scope

    def _admit(self, tenant_id: str) -> str:
        self._link.state.check()
        return self._scope.admit(tenant_id)

    def _admit_system(self, purpose: str) -> None:
        self._link.state.check()
        self._scope.admit_system(purpose)

    def _admit_optional(self, tenant_id: str | None, purpose: str) -> str | None:
        self._link.state.check()
        return self._scope.admit_optional(tenant_id, purpose)

    def _model(self, value: object, cls: type[T], name: str) -> T:
        self._link.state.check()
        return model_argument(value, cls, name)

    def _get(self, entity: Entity, tenant: str, *key: str) -> Row | None:
        with self._link.reading() as unit:
            return own(unit, entity, tenant, *key)

    def _select(self, entity: Entity, query: Query) -> list[Row]:
        with self._link.reading() as unit:
            return select(unit.values(table(entity)), query)

    def _page(self, entity: Entity, query: Query, cls: type[M]) -> Page[M]:
        rows = self._select(entity, query)
        return query.page(rows, lambda row: decode(row, cls), lambda row: sort_key(row, query.order))

    def _purge_before(self, entity: Entity, tenant: str | None, before: datetime, batch_size: int) -> int:
        instant = instant_argument(before, "before")
        due = expired(entity, tenant, instant, batch_size)
        removed = 0
        while True:
            with self._link.writing() as unit:
                batch = select(unit.values(table(entity)), due)[:batch_size]
                removed += sum(discard(unit, row) for row in batch)
            if not batch:
                return removed


def expired(entity: Entity, tenant: str | None, before: datetime, batch_size: int) -> Query:
    """Return the query of the rows that retention removes next."""
    if entity.retention is None:
        raise LookupError(f"{entity.name} is kept for ever")
    time = entity.retention.field
    order = (SortKey(time, time=True), *map(SortKey, entity.key))
    where = (AtMost(time, before),)
    limit = batch_size_argument(batch_size)
    return Query(entity=entity.name, tenant_id=tenant, where=where, order=order, limit=limit)


def discard(unit: Unit, row: Row) -> bool:
    """Remove a row unless another unit has changed it since it was read."""
    unit.claim(table(row.entity), row.key)
    unchanged = unit.get(table(row.entity), row.key) is row
    if unchanged:
        unit.remove(table(row.entity), row.key)
    return unchanged


def own(unit: Unit, entity: Entity, tenant: str, *key: str) -> Row | None:
    """Return a row of this tenant."""
    row = unit.get(table(entity), key)
    return row if row is not None and row.tenant_id == tenant else None


def own_for_write(unit: Unit, entity: Entity, tenant: str, *key: str) -> Row | None:
    """Return a row of this tenant, which no other unit can change until this one ends."""
    unit.claim(table(entity), key)
    return own(unit, entity, tenant, *key)


def refuse_foreign(unit: Unit, entity: Entity, tenant: str, key: str) -> None:
    """Raise ``DuplicateError`` when another tenant owns the key."""
    row = unit.get(table(entity), (key,))
    if row is not None and row.tenant_id != tenant:
        raise duplicate_id(entity, key, DRIVER)
