"""Writing one range: its rows and whatever else must change with them, in one transaction."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

import psycopg
from psycopg import pq
from typing_extensions import override

from twinstore.access.guard import GuardedAccess
from twinstore.access.scope import UNBOUND
from twinstore.access.unit_state import UnitState
from twinstore.bulk.port import Conflict, RangeWriter, Rejected
from twinstore.catalog.keys import KeyType
from twinstore.catalog.row import Row
from twinstore.catalog.row import Row as StoredRow
from twinstore.errors import Outcome, TwinstoreError
from twinstore.fast.library import Buffer, library
from twinstore.fast.nodes import NodeKind, Presence
from twinstore.fast.program import Program, program_of
from twinstore.fast.records import (
    NO_SLOT,
    NULL,
    AcceptsPacked,
    ColumnKind,
    ColumnLayout,
    NativeColumns,
    PackedBatch,
    copy_field,
)
from twinstore.runtime.forks import ProcessGuard
from twinstore_postgres.access import statements
from twinstore_postgres.access.access import PostgresAccess
from twinstore_postgres.access.execution import UnitExecution
from twinstore_postgres.bulk.staging import MergeCounts, Merger, Stage, StagedRows, ValueRows, is_row_error
from twinstore_postgres.connection.errors import Subject, translated
from twinstore_postgres.mapping.codec import compile_encoder
from twinstore_postgres.mapping.columns import Origin, storable_keys
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from twinstore.access.protocol import Access
    from twinstore.bulk.port import ImportOutcome, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import StoredOwner
    from twinstore.fast.program import Slot
    from twinstore.models.canonical import CanonicalModel
    from twinstore_postgres.connection.transaction import Transaction
    from twinstore_postgres.mapping.codec import Values
    from twinstore_postgres.mapping.columns import Column
    from twinstore_postgres.mapping.table import Table

if TYPE_CHECKING:
    Pair = tuple[Record, Values]

# The server knows nothing about a stage that was filled a moment ago; probing by key is always right.
PROBE_BY_KEY: Final = (
    b"SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)",
    (),
)
# Packed rows take little memory, and a merge of this many costs the server still less.
PACKED_ROWS: Final = 5000
# Merges of this many rows cost the server a sixth less than merges of 1,000; more would take too much memory,
# because the records stay until it is known that none of them is refused.
CHUNK_ROWS: Final = 2500
# A merge has at most about this many bytes. One row in each group is weighed for all of it: that is cheap.
CHUNK_BYTES: Final = 4_000_000
SIZE_SAMPLE_EVERY: Final = 8


UUIDS: Final = frozenset({KeyType.UUID, KeyType.HEX, KeyType.BINARY_UUID})


class PostgresRangeWriter(AcceptsPacked, RangeWriter):
    """Implements :class:`~twinstore.bulk.port.RangeWriter` in a transaction that is open.

    Records wait until they are as many as one merge takes.
    """

    def __init__(self, transaction: Transaction, stage: Stage, entity: Entity, *, overwrite: bool) -> None:
        """Take the transaction, in which the stage is empty."""
        self._transaction = transaction
        self._entity = entity
        self._table = table_of(entity)
        self._has_uuid = any(part.type in UUIDS for part in entity.key_parts)
        self._process = ProcessGuard()
        self._state = UnitState()
        self._counts = MergeCounts()
        self._merger = Merger(transaction, stage, self._table, self._counts, overwrite, self._open_access)
        self._packed_merger = PackedMerger(transaction, stage, self._counts, overwrite)
        self._columns = native_columns(entity)
        self._chunk: PackedChunk | None = None
        self._pairs: list[Pair] = []
        self._keys: set[Key | None] = set()
        self._bytes = 0
        self._highest = 0

    @override
    def write(self, records: Sequence[Record]) -> None:
        with self._working():
            if isinstance(records, PackedBatch) and (columns := self._columns_for(records)) is not None:
                self._take_packed(records, columns)
                return
            # Rows are merged in the order in which they come.
            self._merge_packed()
            for record in records:
                self._take(record)

    @override
    def take_rejected(self) -> Sequence[Rejected]:
        return self._counts.take_rejected()

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        known = storable_keys(self._entity, keys)
        with self._working():
            # What was written before comes first: a key may be written and then removed.
            self._merge()
            if known:
                arrays = [list(part) for part in zip(*known, strict=True)]
                step = (statements.delete_several(self._table), arrays)
                (removed,) = self._transaction.run(step, subject=Subject(self._entity))
                self._counts.removed += removed.count

    @override
    def flush(self) -> ImportOutcome:
        with self._working():
            self._merge()
            self._raise_counter()
        return self._counts.outcome()

    @property
    @override
    def access(self) -> Access:
        return self._open_access()

    def _open_access(self) -> Access:
        # The error of one range ends its transaction, whichever call raises it.
        unit = UnitExecution(self._transaction, UNBOUND, self._state, read_only=False, fails_at_once=False)
        return GuardedAccess(PostgresAccess(unit, {}))

    @override
    def commit(self) -> None:
        with self._working():
            self._merge()
            self._raise_counter()
            self._transaction.commit()
        self.close()

    def close(self) -> None:
        """End the use of the writer; its opener rolls back anything not committed."""
        self._state.closed = True

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Work in the transaction; an error ends its use, and a lost connection undoes it."""
        self._process.check("This writer")
        self._state.check()
        try:
            with translated(Subject(self._entity), outcome=Outcome.NOT_APPLIED):
                yield
        except TwinstoreError:
            self._state.abort()
            raise

    def _columns_for(self, batch: PackedBatch) -> NativeColumns | None:
        """Return the columns of a batch that is merged as it is packed.

        The keys of such a batch rise, so that a row is found by its own.
        """
        columns = self._columns
        fits = columns is not None and columns.program is batch.program and batch.examined() is not None
        return columns if fits else None

    def _take_packed(self, batch: PackedBatch, columns: NativeColumns) -> None:
        pairs = {position: self._encoded(record) for position, record in batch.exact}
        taken = [pair for pair in pairs.values() if pair is not None]
        # What is rejected already is not met again where the rows have to be merged one by one.
        batch = batch.without((), [position for position, pair in pairs.items() if pair is None])
        if self._chunk is None:
            self._merge_pairs()
        elif self._chunk.bytes + len(batch.rows) > CHUNK_BYTES or not self._chunk.precedes(batch):
            self._merge_packed()
        self._chunk = chunk = self._chunk or PackedChunk(self._table, columns)
        chunk.add(batch, taken)
        if len(chunk) >= PACKED_ROWS or chunk.bytes > CHUNK_BYTES:
            self._merge_packed()

    def _take(self, record: Record) -> None:
        pair = self._encoded(record)
        if pair is None:
            return
        # Of several tenants the rows come one tenant after the other, and a source may know a key twice: the
        # second row has to be compared with what became of the first.
        if record.key in self._keys:
            self._merge_pairs()
        self._keys.add(record.key)
        if len(self._pairs) % SIZE_SAMPLE_EVERY == 0:
            self._bytes += SIZE_SAMPLE_EVERY * approximate_size(pair[1])
        self._pairs.append(pair)
        if len(self._pairs) == CHUNK_ROWS or self._bytes > CHUNK_BYTES:
            self._merge_pairs()

    def _encoded(self, record: Record) -> Pair | None:
        """Return a record with its row, ``None`` for one that is rejected."""
        if record.model is None or record.key is None:
            self._reject(record, record.error or "the record holds no model")
            return None
        if self._has_uuid and not storable_keys(self._entity, [record.key]):
            self._reject(record, "the key is not a UUID in lower case, which the column needs")
            return None
        number = record.storage.get(self._entity.assigned or "")
        if isinstance(number, int):
            self._highest = max(self._highest, number)
        return record, self._table.encode(StoredRow(record.model, record.storage))

    def _raise_counter(self) -> None:
        """Let new rows be numbered above those of the records, also of those that were there already."""
        if self._highest:
            self._transaction.run(statements.raise_counter(self._table, self._highest))

    def _reject(self, record: Record, reason: str) -> None:
        self._counts.rejected.append(Rejected(record, reason))

    def _merge(self) -> None:
        """Merge everything that waits; packed rows and others never wait together."""
        self._merge_packed()
        self._merge_pairs()

    def _merge_packed(self) -> None:
        chunk, self._chunk = self._chunk, None
        if not chunk or self._packed_merger.merge(chunk):
            return
        for record in chunk.records():
            self._take(record)
        self._merge_pairs()

    def _merge_pairs(self) -> None:
        if self._pairs:
            self._merger.merge(self._pairs)
            self._pairs.clear()
            self._keys.clear()
            self._bytes = 0


def approximate_size(value: object) -> int:
    """Return about how many bytes a value takes; the items of a list are taken to be alike."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(approximate_size, value.values()))
    if isinstance(value, list):
        return len(value) * approximate_size(value[0]) if value else 0
    return sum(map(approximate_size, value)) if isinstance(value, tuple) else 8


HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER: Final = b"\xff\xff"


class PackedChunk(StagedRows):
    """Batches of packed rows, and the rows of their other records, that are merged together."""

    def __init__(self, table: Table, columns: NativeColumns) -> None:
        self._table = table
        self._columns = columns
        self._batches: list[PackedBatch] = []
        self._pairs: list[Pair] = []
        self._copied: Buffer | None = None
        self._count = 0
        self._last: Key | None = None
        self.bytes = 0

    def add(self, batch: PackedBatch, pairs: Sequence[Pair]) -> None:
        """Take a batch whose keys rise, and the rows of those of its records that are not packed."""
        self._batches.append(batch)
        self._pairs += pairs
        self._count += batch.packed + len(pairs)
        self.bytes += len(batch.rows)
        self._last = batch.key(-1) if len(batch) else self._last

    def precedes(self, batch: PackedBatch) -> bool:
        """Whether no row of a batch can have the key of one that is here.

        Of several tenants the rows come one tenant after the other, and a source may know a key twice: the
        second row has to be compared with what became of the first.
        """
        first = batch.key(0) if len(batch) else None
        return not len(batch) or self._last is None or (first is not None and first > self._last)

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def owners(self) -> Counter[str]:
        found = ValueRows(self._table, [row for _, row in self._pairs]).owners()
        for batch in self._batches:
            if (examined := batch.examined()) is not None:
                found += examined.read
        return found

    def ends(self) -> tuple[Values, Values]:
        """Return the first key and the last, as the connection reports keys."""
        packed = (map(batch.key_of, {0, batch.packed - 1}) for batch in self._batches if batch.packed)
        keys = chain((record.key for record, _ in self._pairs), *packed)
        found = [key for key in keys if key is not None]
        return self._shown(min(found)), self._shown(max(found))

    def records(self) -> Iterator[Record]:
        """Yield the records in the order of their batches, each made when it is asked for."""
        return chain.from_iterable(self._batches)

    def conflicts(self, keys: Collection[Values], *, overwritten: bool) -> list[Conflict]:
        """Return the conflicts of some of the rows, whose keys the connection reported."""
        named = [
            cast("Key", tuple(str(part) if isinstance(part, UUID) else part for part in key)) for key in keys
        ]
        owners: dict[Key | None, StoredOwner] = {record.key: record.owner for record, _ in self._pairs}
        for batch in self._batches:
            owners |= {key: batch.owner_of(number) for key, number in batch.numbers_of(named).items()}
        return [Conflict(key, owners[key], overwritten) for key in named]

    def _shown(self, key: Key) -> Values:
        """Return a key as the connection reports it: a UUID as its own class, not as text."""
        parts = zip(self._table.key, key, strict=True)
        return tuple(UUID(str(part)) if column.sql_type == "uuid" else part for column, part in parts)

    def prepare(self) -> bool:
        """Make rows of a binary COPY; return whether the columns hold every value of the packed ones."""
        self._copied = Buffer(self._columns.library)
        return all(self._columns.write(batch.rows, self._copied) for batch in self._batches)

    @override
    def write(self, copy: psycopg.Copy) -> None:
        copied = self._copied
        if copied is None:
            raise LookupError("the rows are not prepared")  # met by programmers only
        copy.write(HEADER)
        if len(copied):
            # Not copied: the client reads it where the library wrote it.
            copy.write(memoryview((ctypes.c_char * len(copied)).from_address(copied.address or 0)))
        if self._pairs:
            ValueRows(self._table, [row for _, row in self._pairs]).write(copy)
        else:
            copy.write(TRAILER)


@dataclass(frozen=True, slots=True)
class PackedMerger:
    """Merges packed rows all together or not at all."""

    transaction: Transaction
    stage: Stage
    counts: MergeCounts
    overwrite: bool

    def merge(self, chunk: PackedChunk) -> bool:
        """Write the rows of a chunk; return whether the store took them, or nothing was written.

        Only row by row it shows which of them it refuses, and why.
        """
        if not chunk.prepare():
            return False
        try:
            with self.transaction.savepoint():
                presence = self.stage.presence(*chunk.ends())
                merged = self.stage.merge(chunk, presence, overwrite=self.overwrite)
        except psycopg.Error as error:
            if not is_row_error(error):
                raise
            return False
        conflicts = chunk.conflicts(merged.others, overwritten=self.overwrite) if merged.others else []
        self.counts.add_merge(chunk.owners(), merged.written, conflicts, overwrite=self.overwrite)
        return True


TEXTS: Final = frozenset({NodeKind.TEXT, NodeKind.CONST})
JSON: Final = frozenset({NodeKind.OBJECT, NodeKind.LIST, NodeKind.MAP, NodeKind.JSON})
LISTS: Final = frozenset({NodeKind.LIST})
# By the type of a column: how it holds a value, and which nodes have such values.
KINDS: Final[Mapping[str, tuple[ColumnKind, frozenset[NodeKind]]]] = {
    "text": (ColumnKind.TEXT, TEXTS | {NodeKind.OBJECT_ID}),
    "int2": (ColumnKind.INT2, frozenset({NodeKind.INT})),
    "int4": (ColumnKind.INT4, frozenset({NodeKind.INT})),
    "int8": (ColumnKind.INT8, frozenset({NodeKind.INT})),
    "jsonb": (ColumnKind.JSONB, JSON),
    "timestamptz": (ColumnKind.TIMESTAMPTZ, frozenset({NodeKind.INSTANT})),
    "bool": (ColumnKind.BOOL, frozenset({NodeKind.FLAG})),
    "text[]": (ColumnKind.TEXTS, LISTS),
    "int4[]": (ColumnKind.INT4S, LISTS),
    "int8[]": (ColumnKind.INT8S, LISTS),
    "float8": (ColumnKind.FLOAT8, frozenset({NodeKind.NUMBER})),
    "uuid": (ColumnKind.UUID, TEXTS | {NodeKind.UUID}),
    "numeric": (ColumnKind.NUMERIC, frozenset({NodeKind.DECIMAL})),
    "bytea": (ColumnKind.BYTEA, frozenset({NodeKind.BYTES})),
}


Found = dict[int, tuple["Entity", NativeColumns | None]]
# By identity, as tables; what has none is remembered too.
_columns: Final[Found] = {}
_readable: Final[Found] = {}


def native_columns(entity: Entity) -> NativeColumns | None:
    """Return how the table of an entity holds packed rows, ``None`` where native code cannot write it."""
    return _cached(_columns, entity, _build)


def readable_columns(entity: Entity) -> NativeColumns | None:
    """Return how native code reads rows of the table of an entity, ``None`` where it cannot."""
    return _cached(_readable, entity, _build_readable)


def _cached(
    made: Found, entity: Entity, make: Callable[[ctypes.CDLL, Entity], NativeColumns | None]
) -> NativeColumns | None:
    found = library()
    if found is None:
        return None
    known = made.get(id(entity))
    if known is None:
        known = made.setdefault(id(entity), (entity, make(found, entity)))
    return known[1]


def _build_readable(found: ctypes.CDLL, entity: Entity) -> NativeColumns | None:
    program, table = program_of(entity), table_of(entity)
    if not isinstance(program, Program) or any(item.name in entity.key for item in entity.derived):
        return None
    layouts = [
        # What follows from the others is not read.
        ColumnLayout(NO_SLOT, ColumnKind.TEXT)
        if column.origin is Origin.DERIVED
        else _layout(program, table, column)
        for column in table.columns
    ]
    known = [layout for layout in layouts if layout is not None]
    return NativeColumns(found, program, known) if len(known) == len(layouts) else None


def _build(found: ctypes.CDLL, entity: Entity) -> NativeColumns | None:
    program, table = program_of(entity), table_of(entity)
    # If the database assigns numbers, a writer of rows has to know the highest one.
    if not isinstance(program, Program) or entity.assigned is not None:
        return None
    layouts = [_layout(program, table, column) for column in table.columns]
    known = [layout for layout in layouts if layout is not None]
    return NativeColumns(found, program, known) if len(known) == len(layouts) else None


def _layout(program: Program, table: Table, column: Column) -> ColumnLayout | None:
    """Return how a column holds its slot, ``None`` where native code cannot make its value."""
    if column.origin is Origin.PAYLOAD:
        return ColumnLayout(NO_SLOT, ColumnKind.PAYLOAD)
    slots = [
        (number, slot)
        for number, slot in enumerate(program.slots)
        if slot.name == column.field and slot.is_marker == (column.origin is Origin.MARKER)
    ]
    if not slots or column.origin is Origin.DERIVED:
        return None
    ((number, slot),) = slots
    absent = _absent(program, slot, table.entity, column)
    if slot.kind is NodeKind.ENUM:
        return ColumnLayout(number, ColumnKind.ENUM, absent, _members(program, slot, column))
    kind, nodes = KINDS.get(column.sql_type, (ColumnKind.PAYLOAD, frozenset[NodeKind]()))
    return ColumnLayout(number, kind, absent) if slot.kind in nodes else None


def _members(program: Program, slot: Slot, column: Column) -> tuple[bytes, ...]:
    """Return the fields of the texts of an enumeration."""
    texts = [item.text for item in program.nodes[slot.node].texts]
    numbers = column.numbers
    return tuple(_field(column, text if numbers is None else numbers(text).number) for text in texts)


def _absent(program: Program, slot: Slot, entity: Entity, column: Column) -> bytes:
    """Return the field of a value that a packed row lacks, empty where each row has one."""
    if slot.is_marker:
        (marker,) = (item for item in program.markers if item.name == slot.name)
        return b"" if marker.required else NULL
    (field,) = (item for item in program.nodes[program.root].fields if item.name == slot.name)
    if field.presence is not Presence.OPTIONAL and not field.left_out:
        return b""
    name = entity.shapes[column.field].name
    default = entity.model.model_fields[name].get_default(call_default_factory=True)
    if default is None:
        return NULL
    encode = compile_encoder(entity, (column,))
    (value,) = encode(Row(cast("CanonicalModel", SimpleNamespace(**{name: default}))))
    return _field(column, value)


def _field(column: Column, value: object) -> bytes:
    """Return the field that COPY has of a value, as the client sends it for this type of a column."""
    if value is None:
        return copy_field(None)
    oid = psycopg.adapters.types.get_oid(column.sql_type)
    dumper = psycopg.adapters.get_dumper_by_oid(oid, pq.Format.BINARY)
    sent = dumper(type(value)).dump(value)
    return copy_field(None if sent is None else bytes(sent))
