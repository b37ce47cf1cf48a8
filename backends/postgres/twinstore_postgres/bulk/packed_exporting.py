"""Reading ranges of rows packed: native code takes what it understands, and the models all else."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.fast.packed import PackedBatch, Stored
from twinstore.fast.reversing import read_copy
from twinstore_postgres.bulk.exporting import EXPORT, range_condition, record_of
from twinstore_postgres.bulk.original import HEADER, HEADER_BYTES
from twinstore_postgres.derive import table_of
from twinstore_postgres.reading import TolerantInstantLoader

if TYPE_CHECKING:
    from psycopg import Copy

    from twinstore.bulk import KeyRange, Record
    from twinstore.fast.copying import NativeColumns
    from twinstore_postgres.bulk.viewing import Snapshot
    from twinstore_postgres.derive import Table

__all__ = ["packed_batches"]

# A batch ends at this size too: about as much as a target writes in one transaction.
BATCH_BYTES: Final = 1_500_000
# Of rows that become objects, which take several times their bytes.
EXACT_BYTES: Final = 500_000
TRAILER: Final = b"\xff\xff"


def packed_batches(
    snapshot: Snapshot, columns: NativeColumns, within: KeyRange, tenant_id: str | None, batch_size: int
) -> Generator[Sequence[Record]]:
    """Yield the rows of a range in key order, in batches; the server waits while the caller works."""
    table = table_of(columns.program.entity)
    found = snapshot.find(table)
    if found is None:
        return
    where, values = range_condition(table, within, tenant_id, nullable=found.nullable)
    statement = sql.SQL(EXPORT).format(**table.parts, where=where, order=table.key_order)
    with snapshot.copy(statement, values) as copy:
        copy.cursor.adapters.register_loader("timestamptz", TolerantInstantLoader)
        copy.set_types([column.sql_type for column in table.columns])
        reader = PackedReader(table, columns, copy)
        for messages in gathered(copy, batch_size):
            yield from reader.batches(messages)


def gathered(copy: Copy, batch_size: int) -> Generator[list[memoryview]]:
    """Yield the rows that the server sends, some at a time, each as it is sent; a large one stands alone."""
    messages: list[memoryview] = []
    size = 0
    for message in copy:
        row = memoryview(message)
        if bytes(row[: len(HEADER)]) == HEADER:
            # Rows are parsed without it later on.
            copy.formatter.parse_row(bytes(row[:HEADER_BYTES]) + TRAILER)
            row = row[HEADER_BYTES:]
        if len(row) == len(TRAILER):  # no row is as short
            continue
        if messages and (len(messages) == batch_size or size + len(row) > BATCH_BYTES):
            yield messages
            messages, size = [], 0
        messages.append(row)
        size += len(row)
        del row, message
    if messages:
        yield messages


class PackedReader:
    """Makes batches of what the server sends."""

    def __init__(self, table: Table, columns: NativeColumns, copy: Copy) -> None:
        """Take the table, how native code reads its rows, and the stream, which tells how values are read."""
        self._table = table
        self._columns = columns
        self._formatter = copy.formatter

    def batches(self, messages: list[memoryview]) -> Iterator[Sequence[Record]]:
        """Yield the rows of some messages, which are forgotten."""
        if len(messages) == 1 and len(messages[0]) > EXACT_BYTES:
            yield [self._record(messages.pop())]
            return
        data = b"".join(messages)
        read = read_copy(self._columns, data)
        if read is None or sum(size for _, size, _ in read.declined) > EXACT_BYTES:
            del data
            yield from self._records(messages)
            return
        messages.clear()
        exact = [
            (number + before, self._record(data[at : at + size]))
            for number, (at, size, before) in enumerate(read.declined)
        ]
        stored = Stored(data, read.places, self._record)
        yield PackedBatch(self._columns.program, read.rows, stored, exact)

    def _records(self, messages: list[memoryview]) -> Iterator[list[Record]]:
        """Yield the rows of some messages, all of them the exact way."""
        batch: list[Record] = []
        size = 0
        messages.reverse()
        while messages:
            size += len(messages[-1])
            batch.append(self._record(messages.pop()))
            if size > EXACT_BYTES or not messages:
                yield batch
                batch, size = [], 0

    def _record(self, message: bytes | memoryview) -> Record:
        """Return the record of a row, the exact way."""
        row = self._formatter.parse_row(message)
        if row is None:
            raise LookupError("the end of a stream is no row")  # met by programmers only
        return record_of(self._table, row, message)
