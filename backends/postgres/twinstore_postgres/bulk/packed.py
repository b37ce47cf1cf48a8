"""Packed rows on their way into a table: merged together, and row by row where the store refuses some."""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

import psycopg
from typing_extensions import override

from twinstore.bulk import Conflict
from twinstore.fast.native import Buffer
from twinstore_postgres.bulk.merging import blames_row
from twinstore_postgres.bulk.staging import ExactRows, StagedRows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from twinstore.bulk import Record
    from twinstore.catalog import Key
    from twinstore.fast.copying import NativeColumns
    from twinstore.fast.packed import PackedBatch
    from twinstore.tenancy import StoredOwner
    from twinstore_postgres.bulk.merging import Findings
    from twinstore_postgres.bulk.staging import Stage
    from twinstore_postgres.codec import Row
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.derive import Table

    Pair = tuple[Record, Row]

__all__ = ["PackedChunk", "PackedMerger"]

HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER: Final = b"\xff\xff"


class PackedChunk(StagedRows):
    """Batches of packed rows, and the rows of their other records, that are merged together."""

    def __init__(self, table: Table, columns: NativeColumns) -> None:
        """Begin without rows."""
        self._table = table
        self._columns = columns
        self._batches: list[PackedBatch] = []
        self._pairs: list[Pair] = []
        self._copied: Buffer | None = None
        self._count = 0
        self.bytes = 0

    def add(self, batch: PackedBatch, pairs: Sequence[Pair]) -> None:
        """Take a batch whose keys rise, and the rows of those of its records that are not packed."""
        self._batches.append(batch)
        self._pairs += pairs
        self._count += batch.packed + len(pairs)
        self.bytes += len(batch.rows)

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def owners(self) -> Counter[str]:
        found = ExactRows(self._table, [row for _, row in self._pairs]).owners()
        for batch in self._batches:
            if (examined := batch.examined()) is not None:
                found += examined.read
        return found

    def ends(self) -> tuple[Row, Row]:
        """Return the first key and the last, as the connection tells keys."""
        packed = (map(batch.key_of, {0, batch.packed - 1}) for batch in self._batches if batch.packed)
        keys = chain((record.key for record, _ in self._pairs), *packed)
        found = [key for key in keys if key is not None]
        return self._shown(min(found)), self._shown(max(found))

    def records(self) -> Iterator[Record]:
        """Yield the records in the order of their batches, each made when it is asked for."""
        return chain.from_iterable(self._batches)

    def conflicts(self, keys: Collection[Row], *, overwritten: bool) -> list[Conflict]:
        """Return the conflicts of some of the rows, of which the connection told the keys."""
        named = [
            cast("Key", tuple(str(part) if isinstance(part, UUID) else part for part in key)) for key in keys
        ]
        owners: dict[Key | None, StoredOwner] = {record.key: record.owner for record, _ in self._pairs}
        for batch in self._batches:
            owners |= {key: batch.owner_of(number) for key, number in batch.numbers_of(named).items()}
        return [Conflict(key, owners[key], overwritten) for key in named]

    def _shown(self, key: Key) -> Row:
        """Return a key as the connection tells it: not with the text of a UUID, but with its own class."""
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
            ExactRows(self._table, [row for _, row in self._pairs]).write(copy)
        else:
            copy.write(TRAILER)


@dataclass(frozen=True, slots=True)
class PackedMerger:
    """Merges packed rows all together or not at all."""

    connection: Connection
    stage: Stage
    findings: Findings
    overwrite: bool

    def merge(self, chunk: PackedChunk) -> bool:
        """Write the rows of a chunk; return whether the store took them, or nothing was written.

        Only row by row it shows which of them it refuses, and why.
        """
        if not chunk.prepare():
            return False
        try:
            with self.connection.transaction():
                presence = self.stage.presence(*chunk.ends())
                merged = self.stage.merge(chunk, presence, overwrite=self.overwrite)
        except psycopg.Error as error:
            if not blames_row(error):
                raise
            return False
        conflicts = chunk.conflicts(merged.others, overwritten=self.overwrite) if merged.others else []
        self.findings.note(chunk.owners(), merged.written, conflicts, overwrite=self.overwrite)
        return True
