"""Writing one range: its rows and whatever else must change with them, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.access import Row as StoredRow
from twinstore.backend import UnitState
from twinstore.bulk import RangeWriter, Rejected
from twinstore.catalog import KeyType
from twinstore.errors import Outcome, TwinstoreError
from twinstore.fast.packed import PackedBatch, TakesPacked
from twinstore.forks import OwnProcess
from twinstore.guard import GuardedAccess
from twinstore.scope import UNBOUND
from twinstore_postgres import statements
from twinstore_postgres.access import PostgresAccess
from twinstore_postgres.bulk.keys import storable_keys
from twinstore_postgres.bulk.merging import Findings, Merger
from twinstore_postgres.bulk.packed import PackedChunk, PackedMerger
from twinstore_postgres.bulk.packing import native_columns
from twinstore_postgres.bulk.staging import Stage
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import Subject, translated
from twinstore_postgres.execution import UnitExecution

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.bulk import ImportOutcome, Key, Record
    from twinstore.catalog import Entity
    from twinstore.fast.copying import NativeColumns
    from twinstore_postgres.codec import Row
    from twinstore_postgres.transactions import Transaction

    Pair = tuple[Record, Row]

__all__ = ["PROBE_BY_KEY", "PostgresRangeWriter"]

# The server knows nothing about a stage that was filled a moment ago; probing by key is always right.
PROBE_BY_KEY: Final = (
    b"SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)",
    (),
)
# Packed rows take little memory, and a merge of so many costs the server still less.
PACKED_ROWS: Final = 5000
# Merges of so many rows cost the server a sixth less than merges of 1,000; more would take too much memory,
# because the records stay until it is known that none of them is refused.
CHUNK_ROWS: Final = 2500
# A merge has at most about so many bytes. Every so many rows one is weighed for all of them: that is cheap.
CHUNK_BYTES: Final = 4_000_000
SIZE_SAMPLE_EVERY: Final = 8


class PostgresRangeWriter(TakesPacked, RangeWriter):
    """Implements :class:`~twinstore.bulk.RangeWriter` in a transaction that is open.

    Records wait until they are as many as one merge takes.
    """

    def __init__(self, transaction: Transaction, stage: Stage, entity: Entity, *, overwrite: bool) -> None:
        """Take the transaction, in which the stage is empty."""
        self._transaction = transaction
        self._entity = entity
        self._table = table_of(entity)
        self._has_uuid = any(part.type in {KeyType.UUID, KeyType.HEX} for part in entity.key_parts)
        self._process = OwnProcess()
        self._state = UnitState()
        self._findings = Findings()
        self._merger = Merger(
            transaction.connection, stage, self._table, self._findings, overwrite, self._open_access
        )
        self._packed_merger = PackedMerger(transaction.connection, stage, self._findings, overwrite)
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
        taken, self._findings.rejected = self._findings.rejected, []
        return taken

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
                self._findings.removed += removed.count

    @override
    def flush(self) -> ImportOutcome:
        with self._working():
            self._merge()
            self._raise_counter()
        return self._findings.outcome

    @property
    @override
    def access(self) -> Access:
        """The rows of any described entity inside the transaction.

        The ledger of a copy is written through it: rows and what it says of them become visible together.
        """
        return self._open_access()

    def _open_access(self) -> Access:
        unit = UnitExecution(self._transaction, UNBOUND, self._state, read_only=False)
        return GuardedAccess(PostgresAccess(unit, {}))

    @override
    def commit(self) -> None:
        with self._working():
            self._merge()
            self._raise_counter()
            self._transaction.commit()
        self.close()

    def close(self) -> None:
        """End the use of the writer; what it did not commit is rolled back by whoever opened it."""
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
        self._findings.rejected.append(Rejected(record, reason))

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
