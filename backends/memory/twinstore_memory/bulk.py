"""Whole entities for tools."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twinstore.bulk import KeyRange, Record
from twinstore.errors import DocumentDecodeError
from twinstore_memory.content import extended_json, has_text_timestamp, scan_row, text_key
from twinstore_memory.importer import MemoryImporter
from twinstore_memory.ledger import MemoryLedger
from twinstore_memory.rows import StoredRow, decode, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.backend import Capabilities
    from twinstore.bulk import Key, Position, ScanRow
    from twinstore.catalog import Entity, Module
    from twinstore_memory.store import Store

__all__ = ["MemoryBulk"]


class MemoryBulk:
    """Implements :class:`~twinstore.bulk.BulkPort`."""

    def __init__(self, store: Store, module: Module, capabilities: Capabilities) -> None:
        """Take the store and the module whose rows are read and written."""
        self._store = store
        self._module = module
        self._capabilities = capabilities

    @property
    def identity(self) -> str:
        """Tells this store from others."""
        return f"memory:{self._store.name}"

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities, parents first."""
        return self._module.entities

    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by tenant."""
        return dict(Counter(row.tenant_id or "" for row in self._rows(entity, tenant_id=tenant_id)))

    def position(self) -> Position | None:
        """Return ``None``: this store knows the present only."""
        return None

    def cut(self, entity: Entity, rows: int, *, tenant_id: str | None = None) -> Iterator[KeyRange]:
        """Yield ranges of about ``rows`` rows each that together cover every key."""
        keys = (text_key(row) for row in self._rows(entity, tenant_id=tenant_id))
        edges = [key for key in keys if key is not None][rows::rows]
        for lower, upper in zip([None, *edges], [*edges, None], strict=True):
            yield KeyRange(lower, upper)

    def export(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
        as_of: Position | None = None,
    ) -> Iterator[list[Record]]:
        """Yield the rows of a range in key order, decoded."""
        self._refuse_past(as_of)
        rows = self._rows(entity, within, tenant_id=tenant_id)
        for start in range(0, len(rows), batch_size):
            yield [record(row) for row in rows[start : start + batch_size]]

    def scan(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
        as_of: Position | None = None,
    ) -> Iterator[list[ScanRow]]:
        """Yield the rows of a range in key order, as they are stored."""
        self._refuse_past(as_of)
        batch: list[ScanRow] = []
        for row in sorted(self._store.begin().values(table(entity)), key=place):
            if covers(within, row) and tenant_id in {None, row.tenant_id}:
                batch.append(scan_row(row))
            if len(batch) == batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def fetch(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Yield single rows for comparison."""
        unit = self._store.begin()
        rows = (unit.get(table(entity), key) for key in keys)
        return (scan_row(row) for row in rows if row is not None)

    def ledger(self) -> MemoryLedger:
        """Return the ledger of this store."""
        return MemoryLedger(self._store)

    @contextmanager
    def importing(self) -> Iterator[MemoryImporter]:
        """Open an importer."""
        yield MemoryImporter(self._store)

    def _rows(
        self, entity: Entity, within: KeyRange | None = None, *, tenant_id: str | None
    ) -> list[StoredRow]:
        found = [
            row
            for row in self._store.begin().values(table(entity))
            if tenant_id in {None, row.tenant_id} and (within is None or covers(within, row))
        ]
        return sorted(found, key=place)

    def _refuse_past(self, as_of: Position | None) -> None:
        if as_of is not None:
            self._capabilities.require("point_in_time_reads")


def record(row: StoredRow) -> Record:
    """Return a row decoded, or with the reason why it cannot be."""
    exported = Record(
        key=text_key(row),
        tenant_id=row.tenant_id,
        model=None,
        storage=row.markers,
        text_timestamp=has_text_timestamp(row),
    )
    try:
        exported.model = decode(row.entity, row).model
    except DocumentDecodeError as error:
        exported.error, exported.raw = error.message, extended_json(row)
    return exported


def place(row: StoredRow) -> tuple[bool, tuple[str | int, ...]]:
    """Return the place of a row in the order of the keys; what can be no key comes last."""
    key = text_key(row)
    return (key is None, tuple(map(repr, row.key)) if key is None else key)


def covers(within: KeyRange, row: StoredRow) -> bool:
    """Whether a range covers a row; an unbounded end also covers what can be no key."""
    key = text_key(row)
    if key is None:
        return within.upper is None
    return (within.lower is None or within.lower <= key) and (within.upper is None or key < within.upper)
