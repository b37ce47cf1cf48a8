"""Whole entities for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.documents import DocumentBulk, DocumentRow, DocumentView
from twinstore.documents.access import scope_of, unowned
from twinstore.ledger import LEDGER_MODULE
from twinstore_memory.initializer import MemoryInitializer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import KeyRange
    from twinstore.documents import DocumentUnit
    from twinstore.documents.bulk import BulkBackend


class MemoryBulk(DocumentBulk):
    """Implements :class:`~twinstore.bulk.port.BulkPort`."""

    def __init__(self, backend: BulkBackend, entities: Sequence[Entity], store: str) -> None:
        name = f"memory:{store}"
        initializer = MemoryInitializer(LEDGER_MODULE.name)
        # A store of this process is nowhere else, so its name is its place.
        super().__init__(backend, entities, identity=name, place=name, ledger_initializer=initializer)

    @override
    def _view(self, unit: DocumentUnit) -> MemoryView:
        return MemoryView(unit)


class MemoryView(DocumentView):
    """Implements :class:`~twinstore.bulk.port.BulkView` in a unit that reads one state."""

    @override
    def _paged(
        self, entity: Entity, within: KeyRange, tenant_id: str | None, size: int
    ) -> Iterator[DocumentRow]:
        """Yield the rows of a range in key order at once; no page could begin behind a broken key."""
        del size
        if not unowned(entity, tenant_id):
            yield from self._unit.scan(entity, within, scope_of(tenant_id))
