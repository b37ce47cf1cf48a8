"""Cursors that write and read values as this library does, whatever their connection is set up for.

A connection of the application may return dictionaries, take ``$1`` for placeholders, or read instants as
text. What an application registers with psycopg itself changes every connection of the process: registered
before this module is imported it is refused, and later it changes none of these cursors.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap, PyFormat
from psycopg.pq import Format
from psycopg.rows import tuple_row
from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore_postgres.codec import Row, register_loaders
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Hashable

    from psycopg.rows import RowFactory

__all__ = ["ADAPTERS", "OwnCursor", "own_cursor", "refuse_encoding", "refuse_registered", "registered"]

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
    """A cursor of this library on anybody's connection.

    Attributes:
        own: how values are written and read.
    """

    own: ClassVar[AdaptersMap] = ADAPTERS

    def __init__(self, connection: psycopg.Connection[Any], row_factory: RowFactory[T]) -> None:
        """Take the connection, and what makes rows."""
        super().__init__(connection, row_factory=row_factory)
        # Text depends on settings of the session, such as DateStyle.
        self.format = Format.BINARY

    @property
    @override
    def adapters(self) -> AdaptersMap:
        """How values are written and read."""
        return self.own


def own_cursor(connection: psycopg.Connection[Any]) -> OwnCursor[Row]:
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
    """Refuse to read and write as an application has told psycopg itself.

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
