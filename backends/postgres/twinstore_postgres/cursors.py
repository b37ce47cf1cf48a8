"""Cursors that write and read values as this library does, whatever their connection is set up for.

A connection of the application may return dictionaries, take ``$1`` for placeholders, or read instants as
text; what an application registers with psycopg itself changes every connection of the process.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import Format
from psycopg.rows import tuple_row
from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore_postgres.codec import Row, register_loaders
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Hashable

    from psycopg.rows import RowFactory

__all__ = ["ADAPTERS", "OwnCursor", "own_cursor", "refuse_encoding"]

T = TypeVar("T")

# As psycopg has them when this module is imported, and ours.
ADAPTERS: Final = AdaptersMap(psycopg.adapters)
register_loaders(ADAPTERS)


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
