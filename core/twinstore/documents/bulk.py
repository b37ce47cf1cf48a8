"""The bulk port over the unit of work of a store of documents.

A view is an isolated unit that only reads; a writer is a unit that is invisible before it commits, the ledger
included. Records come page by page from ``select`` and are decoded; rows to compare come from ``scan``, one
statement for a whole range, and are never decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from typing_extensions import override

from twinstore.access.query import Query, key_order
from twinstore.access.scope import UNBOUND
from twinstore.bulk.changes import NO_CHANGES, DocumentChanges
from twinstore.bulk.parts import VIEW, WriteCounts
from twinstore.bulk.port import (
    EVERY_KEY,
    NO_PARENT,
    BulkPort,
    BulkView,
    Conflict,
    Inventory,
    RangeWriter,
    Rejected,
)
from twinstore.bulk.unique_moves import conflict_reason, unique_conflicts
from twinstore.catalog.keys import KeyRange, can_bound
from twinstore.catalog.tenancy import ALL_TENANTS, label_of
from twinstore.documents.access import HeldRow, SingleUnit, batched, discard, hold, scope_of, store, unowned
from twinstore.documents.rows import changed_record, changed_scan_row, content, encode
from twinstore.errors import DuplicateError, NotFoundError, UnsupportedCapabilityError
from twinstore.migrations.migration import MigrationState
from twinstore.models.fields import parse_timestamp
from twinstore.runtime.forks import cleanup_unless_forked, guard_stream

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.access.scope import Scope
    from twinstore.bulk.port import CommitCheck, ImportOutcome, OnConflict, Position, Record
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.documents.access import DocumentUnit, Steps
    from twinstore.documents.rows import DocumentRow
    from twinstore.migrations.migration import Initializer
    from twinstore.plugins.backend import Capabilities

T = TypeVar("T")


class BulkBackend(Protocol):
    """What the bulk port needs of a backend, whatever its repositories are."""

    @property
    def capabilities(self) -> Capabilities:
        """What the driver can do."""
        ...

    @property
    def initializer(self) -> Initializer:
        """Creates and upgrades the schema of the module."""
        ...

    def begin(self, *, read_only: bool = False, isolated: bool = False) -> DocumentUnit:
        """Open a unit of work."""
        ...

    def unbound(self) -> Access:
        """Return the access whose calls are independent."""
        ...

    def access_by(self, steps: Steps, scope: Scope) -> Access:
        """Return an access that takes its steps in some units."""
        ...


class DocumentBulk(BulkPort):
    """Implements :class:`~twinstore.bulk.port.BulkPort` over a backend."""

    def __init__(
        self,
        backend: BulkBackend,
        entities: Sequence[Entity],
        *,
        identity: str,
        place: str,
        ledger_initializer: Initializer,
    ) -> None:
        """Take the backend, which opens the units, and the values that the port returns.

        Args:
            backend: opens the units.
            entities: those of its module.
            identity: a text without secrets that distinguishes this store from others; see the Protocol.
            place: driver and place for people, without secrets.
            ledger_initializer: creates and upgrades the schema of the ledger of copies.
        """
        self._identity = identity
        self._place = place
        self._ledger_initializer = ledger_initializer
        self._backend = backend
        self._entities = tuple(entities)
        self._changes = NO_CHANGES

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @property
    @override
    def place(self) -> str:
        return self._place

    @property
    @override
    def ledger_initializer(self) -> Initializer:
        return self._ledger_initializer

    @override
    def entities(self) -> tuple[Entity, ...]:
        return self._entities

    @override
    def with_changes(self, changes: DocumentChanges) -> BulkPort:
        if any(map(changes.lookups, self._entities)):
            raise UnsupportedCapabilityError(f"Rules cannot look up rows in {self._place}.")
        if changes.keys or changes.ids or changes.written:
            return super().with_changes(changes)
        found = copy(self)
        found._changes = changes  # noqa: SLF001  # of the same class
        return found

    @override
    def inventory(self) -> tuple[Inventory, ...]:
        """Return what there is of each entity: all once a migration is applied, or where there is none."""
        status = self._backend.initializer.status()
        present = not status or any(item.state is MigrationState.APPLIED for item in status)
        return tuple(Inventory(entity=entity.name, present=present) for entity in self._entities)

    @override
    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        # From the rows themselves.
        with self.view() as view:
            batches = view.rows(entity, KeyRange(), tenant_id=tenant_id)
            return dict(Counter(row.label for batch in batches for row in batch))

    @override
    def now(self) -> datetime:
        unit = self._backend.begin(read_only=True)
        with cleanup_unless_forked(unit.rollback):
            return unit.now()

    @override
    def position(self) -> Position | None:
        """Return ``None``: the store knows the present only."""
        return None

    @override
    def cut(
        self, entity: Entity, rows: int, *, tenant_id: str | None = None, within: KeyRange = EVERY_KEY
    ) -> Iterator[KeyRange]:
        lower = within.lower
        with self.view() as view:
            batches = view.rows(entity, within, tenant_id=tenant_id, batch_size=rows)
            # From the second batch on: the first range begins where all do, so that nothing lies before it.
            for first, *_ in islice(batches, 1, None):
                # What is not a key cannot end a range, nor can one that another store cannot compare with.
                if first.key is not None and can_bound(first.key):
                    yield KeyRange(lower, first.key)
                    lower = first.key
        yield KeyRange(lower, within.upper)

    @contextmanager
    def view(self, *, as_of: Position | None = None) -> Generator[DocumentView]:
        """Open a view of what is committed at its first read."""
        if as_of is not None:
            self._backend.capabilities.require("point_in_time_reads")
        unit = self._backend.begin(read_only=True, isolated=True)
        with cleanup_unless_forked(unit.rollback):
            view = self._view(unit)
            view.changes = self._changes
            yield view

    def _view(self, unit: DocumentUnit) -> DocumentView:
        return DocumentView(unit)

    @contextmanager
    def writer(
        self, entity: Entity, *, on_conflict: OnConflict = "fail", check: CommitCheck | None = None
    ) -> Generator[DocumentWriter]:
        """Open a writer; its one unit needs no separate ``check``."""
        del check
        unit = self._backend.begin()
        with cleanup_unless_forked(unit.rollback):
            access = self._backend.access_by(SingleUnit(unit), UNBOUND)
            yield DocumentWriter(unit, access, entity, self._entities, on_conflict)

    @override
    def access(self) -> Access:
        return self._backend.unbound()


class DocumentView(BulkView):
    """Implements :class:`~twinstore.bulk.port.BulkView` in a unit that reads one state.

    Attributes:
        changes: what is changed in each document before it is shown.
    """

    def __init__(self, unit: DocumentUnit) -> None:
        self._unit = unit
        self.changes = NO_CHANGES

    @property
    @override
    def position(self) -> Position | None:
        return None

    @override
    def records(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[Record]]:
        rows = self._paged(entity, within, tenant_id, batch_size)
        return guard_stream(batched(map(self._record, rows), batch_size), VIEW)

    @override
    def records_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[Record]:
        return map(self._record, self._single(entity, keys))

    @override
    def rows(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[ScanRow]]:
        if unowned(entity, tenant_id):
            return iter(())
        rows = self._unit.scan(entity, within, scope_of(tenant_id))
        # One statement where the copy reads page by page: a fault in paging would hide rows from both
        # otherwise.
        return guard_stream(batched(map(self._scanned, rows), batch_size), VIEW)

    @override
    def rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        return map(self._scanned, self._single(entity, keys))

    def _record(self, row: DocumentRow) -> Record:
        return changed_record(row, self._unit.driver, self.changes.documents.get(row.entity.name))

    def _scanned(self, row: DocumentRow) -> ScanRow:
        return changed_scan_row(row, self.changes.documents.get(row.entity.name))

    def _paged(
        self, entity: Entity, within: KeyRange, tenant_id: str | None, size: int
    ) -> Iterator[DocumentRow]:
        if unowned(entity, tenant_id):
            return
        scope, lower = scope_of(tenant_id), within.lower
        # A page starts after a key, but a range includes its lower end.
        if lower is not None and (first := self._unit.get(entity, lower, scope)) is not None:
            yield first
        page = Query(
            entity=entity.name, scope=scope, where=(), order=key_order(entity), limit=size, after=lower
        )
        while rows := self._unit.select(entity, page)[:size]:
            for row in rows:
                if within.upper is not None and entity.admits_key(row.key) and row.key >= within.upper:
                    return
                yield row
            page = replace(page, after=rows[-1].key)

    def _single(self, entity: Entity, keys: Sequence[Key]) -> Iterator[DocumentRow]:
        found = (self._unit.get(entity, key) for key in keys)
        return (row for row in found if row is not None)


class DocumentWriter(RangeWriter):
    """Implements :class:`~twinstore.bulk.port.RangeWriter` in one unit.

    Every record is written as it comes.
    """

    def __init__(
        self,
        unit: DocumentUnit,
        access: Access,
        entity: Entity,
        entities: Sequence[Entity],
        on_conflict: OnConflict,
    ) -> None:
        """Take the open unit, the access in it, what is written, and among what its children are found."""
        self._access = access
        self._unit = unit
        self._entity = entity
        self._entities = entities
        # Not even a copy that overwrites changes an audit trail.
        self._overwrite = on_conflict == "overwrite" and not entity.append_only
        self._counts = WriteCounts()
        # What finds a unique value taken that may still move.
        self._waiting: list[tuple[Record, HeldRow, DocumentRow]] = []

    @property
    @override
    def access(self) -> Access:
        return self._access

    @override
    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            self._write(record)

    @override
    def take_rejected(self) -> Sequence[Rejected]:
        return self._counts.take_rejected()

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        """Remove rows, with their children."""
        for key in keys:
            if hold(self._unit, self._entity, ALL_TENANTS, key).row is not None:
                discard(self._unit, self._entities, self._entity, key)
                self._counts.removed += 1

    @override
    def flush(self) -> ImportOutcome:
        self._write_pending()
        return self._counts.outcome()

    @override
    def commit(self) -> None:
        self._write_pending()
        self._unit.commit()

    def _write(self, record: Record) -> None:
        if record.model is None or record.key is None:
            self._counts.rejected.append(Rejected(record, record.error or "the row has no model or no key"))
            return
        row = encode(self._entity, record.model, as_stored(record))
        # In every scope: a row of another tenant under this key is a conflict too, not a place that is free.
        held = hold(self._unit, self._entity, ALL_TENANTS, row.key)
        if held.row is None:
            self._store(record, held, row)
        elif content(held.row) == content(row) and held.row.derived == row.derived:
            self._counts.unchanged[label_of(row.owner)] += 1
        elif self._overwrite:
            self._store(record, held, row)
        else:
            self._counts.conflicts.append(Conflict(record.key, row.owner))

    def _store(self, record: Record, held: HeldRow, row: DocumentRow) -> None:
        try:
            store(self._unit, ALL_TENANTS, held, row)
        # One record that is refused must not cost the range; ``store`` refuses before it writes anything.
        except DuplicateError as error:
            if self._overwrite:
                self._waiting.append((record, held, row))
            else:
                obstacles = unique_conflicts(self._access, self._entity, [record]).values()
                found = next((conflict_reason(self._entity, item) for item in obstacles), error.message)
                self._counts.rejected.append(Rejected(record, found))
        except NotFoundError:
            self._counts.rejected.append(Rejected(record, NO_PARENT))
        else:
            self._count_written(held, row)

    def _count_written(self, held: HeldRow, row: DocumentRow) -> None:
        if held.row is not None:
            self._counts.conflicts.append(Conflict(row.key, row.owner, overwritten=True))
        self._counts.written[label_of(row.owner)] += 1

    def _write_pending(self) -> None:
        """Write the rows whose unique values move between them; name what is in the way of the others."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        found = unique_conflicts(self._access, self._entity, [record for record, _, _ in waiting])
        free = [(held, row) for record, held, row in waiting if record.key not in found]
        for held, row in free:
            # All of them first, so that every value is free when it is wanted; their children stay.
            if held.row is not None:
                self._unit.delete(self._entity, row.key)
        for held, row in free:
            store(self._unit, ALL_TENANTS, held, row)
            self._count_written(held, row)
        self._counts.rejected += [
            Rejected(record, conflict_reason(self._entity, found[record.key]))
            for record, _, _ in waiting
            if record.key in found
        ]


def as_stored(record: Record) -> dict[str, object]:
    """Return the storage markers as they are stored: instants in UTC with whole milliseconds."""
    return {
        name: parse_timestamp(value) if isinstance(value, datetime) else value
        for name, value in record.storage.items()
    }
