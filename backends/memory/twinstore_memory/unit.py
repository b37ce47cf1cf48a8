"""A unit of the store as one of a store of documents, from which access and bulk port follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.errors import duplicate
from twinstore.catalog.tenancy import ALL_TENANTS, TenancyKind
from twinstore.documents import DocumentUnit
from twinstore.documents.access import select
from twinstore.documents.rows import key_of
from twinstore_memory.rows import table, unique_value, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.access.protocol import UniqueKey
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.catalog.tenancy import Tenants
    from twinstore.documents import DocumentRow
    from twinstore_memory.store import Unit


class MemoryUnit(DocumentUnit):
    """Implements :class:`~twinstore.documents.DocumentUnit`."""

    driver = DRIVER

    def __init__(self, unit: Unit) -> None:
        super().__init__(read_only=unit.read_only)
        self.state = unit.state
        self.unit = unit

    @override
    def now(self) -> datetime:
        return self.unit.store.clock.now()

    @override
    def get(self, entity: Entity, key: Key, scope: Tenants = ALL_TENANTS) -> DocumentRow | None:
        row = self.unit.get(table(entity), key)
        return row if row is not None and self._sees(scope, row) else None

    @override
    def holder(self, entity: Entity, unique: UniqueKey) -> Key | None:
        return self.unit.holder(table(entity), unique_value(unique.index, unique.values))

    @override
    def select(self, entity: Entity, query: Query) -> list[DocumentRow]:
        return select(self.rows(entity, query.scope), query)

    @override
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[DocumentRow]:
        return iter(sorted((row for row in self.rows(entity, scope) if covers(within, row)), key=place))

    @override
    def hold(self, entity: Entity, key: Key) -> None:
        self.unit.lock(table(entity), key)

    @override
    def hold_value(self, entity: Entity, unique: UniqueKey) -> None:
        self.unit.lock(table(entity), unique_value(unique.index, unique.values))

    @override
    def write(self, row: DocumentRow) -> None:
        """Store a row.

        Raises:
            DuplicateError: another unit has taken a unique value since it was looked for.
        """
        for index, value in row.unique:
            self.unit.lock(table(row.entity), value)
            if self.unit.holder(table(row.entity), value) not in {None, row.key}:
                raise duplicate(row.entity, row.key, DRIVER, index, row.value(index.names[-1]))
        write(self.unit, row)

    @override
    def delete(self, entity: Entity, key: Key) -> None:
        self.unit.remove(table(entity), key)

    @override
    def commit(self) -> None:
        self.unit.commit()

    @override
    def rollback(self) -> None:
        self.unit.rollback()

    def rows(self, entity: Entity, scope: Tenants) -> list[DocumentRow]:
        """Return the rows of a scope, in no particular order."""
        return [row for row in self.unit.values(table(entity)) if self._sees(scope, row)]

    def _sees(self, scope: Tenants, row: DocumentRow) -> bool:
        """Whether a row belongs to a scope; one that belongs to its parent, whether that does."""
        kind, parent = row.entity.tenancy.kind, row.entity.parent
        if scope is ALL_TENANTS or kind is TenancyKind.NONE:
            return True
        if kind is not TenancyKind.PARENT or parent is None:
            return row.owner == scope
        return row.parent_key is not None and self.get(parent.entity, row.parent_key, scope) is not None


def covers(within: KeyRange, row: DocumentRow) -> bool:
    """Whether a range covers a row; an unbounded end also covers what cannot be a key."""
    key = key_of(row)
    if key is None:
        return within.upper is None
    return (within.lower is None or within.lower <= key) and (within.upper is None or key < within.upper)


def place(row: DocumentRow) -> tuple[bool, tuple[str | int, ...]]:
    """Return the place of a row in the order of the keys; what cannot be a key comes last."""
    key = key_of(row)
    return (key is None, tuple(map(repr, row.key)) if key is None else key)
