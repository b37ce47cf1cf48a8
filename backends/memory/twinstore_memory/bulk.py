"""Whole entities for tools."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from twinstore.bulk import BulkPort, BulkView, KeyRange, Record, Survey
from twinstore.catalog import TenancyKind
from twinstore.documents.content import extended_json, has_text_timestamp, key_of, scan_row
from twinstore.errors import DocumentDecodeError
from twinstore.keys import can_bound
from twinstore.ledger import LEDGER_MODULE
from twinstore.mapnames import lossy_map, names_lost
from twinstore.scope import UNBOUND
from twinstore.tenancy import Tenant, label_of
from twinstore_memory.access import MemoryAccess
from twinstore_memory.initializer import MemoryInitializer
from twinstore_memory.range_writer import MemoryRangeWriter
from twinstore_memory.rows import DocumentRow, decode, table
from twinstore_memory.units import Single
from twinstore_memory.writing import is_seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from twinstore.access import Access
    from twinstore.backend import Capabilities
    from twinstore.bulk import CommitCheck, OnConflict, Position, ScanRow
    from twinstore.catalog import Entity, Key, Module
    from twinstore.migrations import Initializer
    from twinstore_memory.store import MemoryDatabase, Unit

__all__ = ["MemoryBulk", "MemoryView"]

T = TypeVar("T")


class MemoryBulk(BulkPort):
    """Implements :class:`~twinstore.bulk.BulkPort`."""

    def __init__(self, store: MemoryDatabase, module: Module, capabilities: Capabilities) -> None:
        self._store = store
        self._module = module
        self._capabilities = capabilities

    @property
    @override
    def identity(self) -> str:
        """Tells this store from others."""
        return f"memory:{self._store.name}"

    @property
    @override
    def place(self) -> str:
        """The same: a store of this process is nowhere else."""
        return self.identity

    @property
    @override
    def ledger_initializer(self) -> Initializer:
        """Has nothing to create."""
        return MemoryInitializer(LEDGER_MODULE.name)

    @override
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities, parents first."""
        return self._module.entities

    @override
    def survey(self) -> tuple[Survey, ...]:
        """Return every entity: each is there, and sorted."""
        return tuple(Survey(entity=entity.name) for entity in self.entities())

    @override
    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by the label of their owner."""
        rows = rows_in(self._store.begin(), entity, tenant_id=tenant_id)
        return dict(Counter(label_of(row.owner) for row in rows))

    @override
    def now(self) -> datetime:
        """Return the time by which the store judges leases."""
        return self._store.clock.now()

    @override
    def position(self) -> Position | None:
        """Return ``None``: this store knows the present only."""
        return None

    @override
    def cut(self, entity: Entity, rows: int, *, tenant_id: str | None = None) -> Iterator[KeyRange]:
        """Yield ranges of about ``rows`` rows each that together cover every key."""
        found = rows_in(self._store.begin(), entity, tenant_id=tenant_id)
        # Rows without a usable key are covered by the open upper end.
        keys = [key for row in found if (key := key_of(row)) is not None]
        # Every other store must be able to compare with the end of a range.
        edges = [key for key in keys[rows::rows] if can_bound(key)]
        for lower, upper in zip([None, *edges], [*edges, None], strict=True):
            yield KeyRange(lower, upper)

    @contextmanager
    @override
    def view(self, *, as_of: Position | None = None) -> Iterator[MemoryView]:
        """Open a view of what is committed at its first read."""
        if as_of is not None:
            self._capabilities.require("point_in_time_reads")
        # Isolated, so that every stream of the view reads the same state.
        unit = self._store.begin(read_only=True, isolated=True)
        try:
            yield MemoryView(unit)
        finally:
            unit.rollback()

    @contextmanager
    @override
    def writer(
        self, entity: Entity, *, on_conflict: OnConflict = "fail", check: CommitCheck | None = None
    ) -> Iterator[MemoryRangeWriter]:
        """Open a writer; its one unit needs no ``check`` of its own."""
        del check
        unit = self._store.begin()
        try:
            yield MemoryRangeWriter(unit, entity, self._module.entities, on_conflict)
        finally:
            unit.rollback()

    @override
    def access(self) -> Access:
        """Return the rows of any entity, call by call."""
        return MemoryAccess(Single(self._store), UNBOUND, self._module.entities)


class MemoryView(BulkView):
    """Implements :class:`~twinstore.bulk.BulkView` in a unit that reads one state."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    @property
    @override
    def position(self) -> Position | None:
        """Nothing: changes cannot be followed here."""
        return None

    @override
    def records(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[Record]]:
        """Yield the rows of a range in key order, decoded."""
        rows = rows_in(self._unit, entity, within, tenant_id=tenant_id)
        return ([record(row) for row in batch] for batch in batches(rows, batch_size))

    @override
    def records_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[Record]:
        """Yield single rows, decoded."""
        return map(record, self._rows_of(entity, keys))

    @override
    def rows(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[ScanRow]]:
        """Yield the rows of a range in key order, as they are stored."""
        batch: list[ScanRow] = []
        for row in sorted(self._unit.values(table(entity)), key=place):
            if covers(within, row) and belongs(self._unit, row, tenant_id):
                batch.append(scan_row(row))
            if len(batch) == batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    @override
    def rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Yield single rows for comparison."""
        return map(scan_row, self._rows_of(entity, keys))

    def _rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[DocumentRow]:
        found = (self._unit.get(table(entity), key) for key in keys)
        return (row for row in found if row is not None)


def rows_in(
    unit: Unit, entity: Entity, within: KeyRange | None = None, *, tenant_id: str | None
) -> list[DocumentRow]:
    """Return the rows of a range in key order, for a copy."""
    found = [
        row
        for row in unit.values(table(entity))
        if belongs(unit, row, tenant_id) and (within is None or covers(within, row))
    ]
    return sorted(found, key=place)


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, at most ``size`` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))


def record(row: DocumentRow) -> Record:
    """Return a row decoded, or with the reason why it cannot be."""
    exported = Record(
        key=key_of(row),
        owner=row.owner,
        model=None,
        storage=row.markers,
        text_timestamp=has_text_timestamp(row),
    )
    try:
        model = decode(row.entity, row).model
    except DocumentDecodeError as error:
        exported.error, exported.original = error.message, extended_json(row)
        return exported
    if (path := lossy_map(row.document, model)) is not None:
        exported.error, exported.original = names_lost(path), extended_json(row)
        return exported
    exported.model = model
    return exported


def belongs(unit: Unit, row: DocumentRow, tenant_id: str | None) -> bool:
    """Whether a row is among those of a tenant, or of all of them."""
    if tenant_id is None:
        return True
    if row.entity.tenancy.kind is TenancyKind.PARENT:
        return is_seen(unit, Tenant(tenant_id), row)
    return row.owner == Tenant(tenant_id)


def place(row: DocumentRow) -> tuple[bool, tuple[str | int, ...]]:
    """Return the place of a row in the order of the keys; what cannot be a key comes last."""
    key = key_of(row)
    return (key is None, tuple(map(repr, row.key)) if key is None else key)


def covers(within: KeyRange, row: DocumentRow) -> bool:
    """Whether a range covers a row; an unbounded end also covers what cannot be a key."""
    key = key_of(row)
    if key is None:
        return within.upper is None
    return (within.lower is None or within.lower <= key) and (within.upper is None or key < within.upper)
