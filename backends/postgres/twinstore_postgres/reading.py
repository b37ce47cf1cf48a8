"""Rows of a cursor, also where a stored instant lies outside what Python can represent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.adapt import AdaptersMap, Loader, Transformer
from typing_extensions import override

from twinstore_postgres.codec import UNREADABLE, Row

if TYPE_CHECKING:
    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult

__all__ = ["TolerantInstantLoader", "rows_of", "tolerant_rows"]

# The server counts microseconds from here.
EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


class TolerantInstantLoader(Loader):
    """Reads an instant in UTC; ``infinity`` and years beyond 9999 become a value that every model refuses."""

    format = psycopg.pq.Format.BINARY

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
    transformer = Transformer.from_context(tolerant)
    transformer.set_pgresult(result, format=psycopg.pq.Format.BINARY)
    return transformer.load_rows(0, result.ntuples, tuple)
