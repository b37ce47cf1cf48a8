"""Cursors that write and read values as this library does, whatever their connection is set up for.

A connection of the application may return dictionaries, take ``$1`` for placeholders, or read instants as
text. What an application registers with psycopg itself changes every connection of the process: registered
before this module is imported it is refused, and later it changes none of these cursors.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap, Loader, PyFormat
from psycopg.pq import Format
from psycopg.rows import tuple_row
from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore_postgres.mapping.codec import UNREADABLE, Values, register_loaders
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult
    from psycopg.rows import RowFactory

T = TypeVar("T")

# The types that are read besides those with loaders of ours, and the classes that are written.
READ: Final = ("bool", "int2", "int4", "int8", "float8", "text", "varchar", "name", "bytea", "timestamptz")
WRITTEN: Final = (str, bytes, int, bool, float, datetime, list, type(None))
OF_PSYCOPG: Final = frozenset({"psycopg", "psycopg_binary", "psycopg_c"})


def registered(adapters: AdaptersMap) -> tuple[str, ...]:
    """Return the types and classes that are read or written in another way than that of psycopg."""
    loaders = {name: adapters.get_loader(adapters.types.get_oid(name), Format.BINARY) for name in READ}
    dumpers = {kind.__name__: adapters.get_dumper(kind, PyFormat.AUTO) for kind in WRITTEN}
    return tuple(
        name
        for name, found in (*loaders.items(), *dumpers.items())
        if found is not None and found.__module__.partition(".")[0] not in OF_PSYCOPG
    )


# As psycopg has them when this module is imported, and ours.
ADAPTERS: Final = AdaptersMap(psycopg.adapters)
register_loaders(ADAPTERS)
FOREIGN: Final = registered(ADAPTERS)


class OwnCursor(psycopg.Cursor[T]):
    """A cursor of this library on any connection.

    Attributes:
        own: how values are written and read.
    """

    own: ClassVar[AdaptersMap] = ADAPTERS

    def __init__(self, connection: psycopg.Connection[Any], row_factory: RowFactory[T]) -> None:
        super().__init__(connection, row_factory=row_factory)
        # Text depends on settings of the session, such as DateStyle.
        self.format = Format.BINARY

    @property
    @override
    def adapters(self) -> AdaptersMap:
        return self.own


def own_cursor(connection: psycopg.Connection[Any]) -> OwnCursor[Values]:
    """Return a cursor of this library whose rows are tuples.

    It is also of the class of the connection, by which instrumentations see statements, unless that class
    writes placeholders or parameters in another way.
    """
    factory: Any = connection.cursor_factory
    return own_class(factory)(connection, tuple_row)


@cache
def own_class(factory: Hashable) -> type[OwnCursor[Any]]:
    """Return the class of our cursors on connections whose cursors are made by a factory."""
    others = (psycopg.RawCursor, psycopg.ClientCursor)
    if factory is psycopg.Cursor or not isinstance(factory, type) or issubclass(factory, others):
        return OwnCursor
    return type("OwnCursor", (OwnCursor, factory), {})


def refuse_registered() -> None:
    """Refuse adapters that the application has registered with psycopg itself.

    Raises:
        ConfigurationError: names the types, and what to do.
    """
    if FOREIGN:
        raise ConfigurationError(
            "The application has registered with psycopg.adapters how to read or write "
            f"{', '.join(FOREIGN)}, before this driver was loaded. Register it on connections of your own, "
            "or after the first storage has been opened.",
            driver=DRIVER,
        )


def refuse_encoding(connection: psycopg.Connection[Any]) -> None:
    """Refuse a connection of the application that does not carry every text.

    Raises:
        ConfigurationError: its client encoding is another one than UTF-8.
    """
    encoding = connection.info.encoding
    if encoding != "utf-8":
        raise ConfigurationError(
            f"The connection of the application has the client encoding {encoding}, which does not hold "
            "every text; let it connect with client_encoding=UTF8.",
            driver=DRIVER,
        )


# Rows of a cursor, also where a stored instant lies outside what Python can represent.


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


def rows_of(cursor: psycopg.Cursor[Values]) -> list[Values]:
    """Return all rows of an executed cursor; empty where the statement answers with none."""
    if cursor.pgresult is None or not cursor.pgresult.nfields:
        return []
    try:
        return cursor.fetchall()
    except psycopg.DataError:
        return tolerant_rows(cursor.adapters, cursor.pgresult)


def tolerant_rows(adapters: AdaptersMap, result: PGresult) -> list[Values]:
    """Read the same answer again so that the model of each row meets the bad values of that row."""
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
