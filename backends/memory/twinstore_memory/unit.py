"""A unit of the store as one of a store of documents, from which access and bulk port follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.errors import duplicate
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.documents import ScanningUnit
from twinstore_memory.rows import table, unique_value, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from twinstore.access.protocol import UniqueKey
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore.documents import DocumentRow
    from twinstore_memory.store import Unit


class MemoryUnit(ScanningUnit):
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
        return row if row is not None and self.is_visible(row, scope) else None

    @override
    def holder(self, entity: Entity, unique: UniqueKey) -> Key | None:
        return self.unit.holder(table(entity), unique_value(unique.index, unique.values))

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

    @override
    def rows(self, entity: Entity) -> Iterable[DocumentRow]:
        return self.unit.values(table(entity))
