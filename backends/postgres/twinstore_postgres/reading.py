"""Rows of a cursor, also where a stored instant lies outside what Python can represent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.adapt import AdaptersMap, Loader
from typing_extensions import override

from twinstore_postgres.codec import UNREADABLE, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult

__all__ = ["TolerantInstantLoader", "rows_of", "tolerant_rows"]

BINARY: Final = psycopg.pq.Format.BINARY
# The server counts microseconds from here.
EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


class TolerantInstantLoader(Loader):
    """Reads an instant in UTC; ``infinity`` and years beyond 9999 become a value that every model refuses."""

    format = BINARY

    @override
    def load(self, data: Buffer) -> object:
        try:
            return EPOCH + timedelta(microseconds=int.from_bytes(data, signed=True))
        except OverflowError:
            return UNREADABLE


def rows_of(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """Return all rows of an executed cursor; empty where the statement answers with none."""
    if cursor.pgresult is None or not cursor.pgresult.nfields:
        return []
    try:
        return cursor.fetchall()
    except psycopg.DataError:
        return tolerant_rows(cursor.adapters, cursor.pgresult)


def tolerant_rows(adapters: AdaptersMap, result: PGresult) -> list[Row]:
    """Read the same answer again so that each bad value is met by the model of its own row."""
    tolerant = AdaptersMap(adapters)
    tolerant.register_loader("timestamptz", TolerantInstantLoader)
    columns = range(result.nfields)
    loads = [loader_of(tolerant, result.ftype(column)) for column in columns]
    values = ((result.get_value(row, column) for column in columns) for row in range(result.ntuples))
    return [
        tuple(None if value is None else load(value) for load, value in zip(loads, row, strict=True))
        for row in values
    ]


def loader_of(adapters: AdaptersMap, oid: int) -> Callable[[Buffer], object]:
    """Return what reads the values of a type."""
    kind = adapters.get_loader(oid, BINARY) or adapters.get_loader(0, BINARY)
    assert kind is not None  # noqa: S101  # psycopg has one for what it does not know
    return kind(oid, adapters).load
