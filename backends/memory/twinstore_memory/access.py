"""Access to the rows of any entity in memory: that of a store of documents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.query import label_of_value
from twinstore.documents import DocumentAccess
from twinstore.documents.access import matches
from twinstore_memory.rows import table
from twinstore_memory.unit import MemoryUnit

if TYPE_CHECKING:
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.documents import DocumentUnit


class MemoryAccess(DocumentAccess):
    """Implements :class:`~twinstore.access.protocol.Access`; every step is one unit of work."""

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        rows = self._steps.take(lambda unit: list(memory(unit).visible(entity, query.scope)))
        return dict(Counter(label_of_value(row.value(by)) for row in rows if matches(row, query)))

    @override
    def next_number(self, entity: Entity) -> int:
        return self._steps.take(lambda unit: memory(unit).unit.store.next_number(table(entity).name))


def memory(unit: DocumentUnit) -> MemoryUnit:
    """Return a unit as what every unit of this driver is."""
    if not isinstance(unit, MemoryUnit):
        raise TypeError("a unit of another driver")  # met by programmers only
    return unit
