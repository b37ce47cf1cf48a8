"""Which encodings a database may have: as the target of a copy, and as its source."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.ledger import LEDGER_MODULE
from twinstore_postgres.errors import translated
from twinstore_postgres.initializer import PostgresInitializer
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.migrations import Effect
    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection

__all__ = ["LedgerInitializer", "refuse_as_source", "refuse_as_target"]

# Any text of any other store.
COMPLETE: Final = "UTF8"
# Their bytes are in the order of code points, in which the keys of all stores are compared.
ORDERED: Final = frozenset({COMPLETE, "LATIN1"})


class LedgerInitializer(PostgresInitializer):
    """That of the ledger of copies, which only a target has; its database must take every text."""

    module: ClassVar[ModuleSpec[object]] = LEDGER_MODULE

    @override
    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        with closing(self._connect()) as connection, translated():
            refuse_as_target(connection)
        return super().effects(release=release)


def refuse_as_target(connection: Connection) -> None:
    """Raise ``ConfigurationError`` for a database that cannot hold every text."""
    encoding = encoding_of(connection)
    if encoding != COMPLETE:
        raise ConfigurationError(
            f"The database {connection.info.dbname} has the encoding {encoding}, which does not hold every "
            "text; a copy would lose rows. Create it with UTF8: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE "
            "template0.",
            driver=DRIVER,
        )


def refuse_as_source(connection: Connection) -> None:
    """Raise ``ConfigurationError`` for a database whose texts come in another order, or may be none."""
    encoding = encoding_of(connection)
    if encoding in ORDERED:
        return
    why = (
        "for which the server does not know what its bytes mean"
        if encoding == "SQL_ASCII"
        else "in which texts have another order than in other stores"
    )
    raise ConfigurationError(
        f"The database {connection.info.dbname} has the encoding {encoding}, {why}. Dump it with pg_dump, "
        "restore it into a database with the encoding UTF8, and read that one.",
        driver=DRIVER,
    )


def encoding_of(connection: Connection) -> str:
    """Return the encoding of the database."""
    return connection.info.parameter_status("server_encoding") or ""
