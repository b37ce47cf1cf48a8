"""The limits of PostgreSQL: COPY of prebuilt rows in, COPY of the table out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING, Final

from benchmarks.schedule import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.databases import BenchmarkDatabases

__all__ = ["COLUMNS", "blocks_of", "copy_in", "copy_out", "prebuilt_rows"]

COLUMNS: Final = (
    "id, tenant_id, schema_version, schedule_id, error, retry_of, trigger, state, stats, reason, deltas, "
    "created_at, started_at, finished_at"
)
OUT: Final = f"COPY (SELECT {COLUMNS} FROM scheduler.runs ORDER BY id) TO STDOUT (FORMAT BINARY)"  # noqa: S608  # constants
IN: Final = f"COPY scheduler.runs ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
SCAN: Final = f"COPY (SELECT {COLUMNS} FROM scheduler.runs) TO STDOUT"  # noqa: S608  # constants
HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER: Final = b"\xff\xff"
ROWS_PER_WRITE: Final = 500


def prebuilt_rows(databases: BenchmarkDatabases) -> list[bytes]:
    """Take the rows from the table in key order, as the server itself writes them for a binary COPY."""
    with closing(databases.superuser()) as connection, connection.cursor().copy(OUT) as copy:
        rows = [bytes(row) for row in copy]
    rows[0] = rows[0].removeprefix(HEADER)
    return [row for row in rows if row not in {b"", TRAILER}]


def copy_in(databases: BenchmarkDatabases, rows: Sequence[bytes], connections: int) -> Sample:
    """COPY prebuilt rows into the table, each connection a part of the keys, and commit."""
    share = -(-len(rows) // connections)
    parts = [blocks_of(rows[first : first + share]) for first in range(0, len(rows), share)]

    def load(blocks: Sequence[bytes]) -> None:
        with closing(databases.superuser()) as connection, connection.cursor().copy(IN) as copy:
            for block in blocks:
                copy.write(block)

    began = perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(load, parts))
    return Sample(units=len(rows), seconds=perf_counter() - began)


def blocks_of(rows: Sequence[bytes]) -> list[bytes]:
    """Return what a binary COPY of prebuilt rows sends."""
    parts = (b"".join(rows[first : first + ROWS_PER_WRITE]) for first in range(0, len(rows), ROWS_PER_WRITE))
    return [HEADER, *parts, TRAILER]


def copy_out(databases: BenchmarkDatabases) -> Sample:
    """Read the whole table on one connection without looking into the rows."""
    with closing(databases.superuser()) as connection:
        began = perf_counter()
        with connection.cursor().copy(SCAN) as copy:
            rows = sum(1 for _ in copy)
        return Sample(units=rows, seconds=perf_counter() - began)
