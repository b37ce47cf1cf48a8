"""What this driver uses of psycopg that its documentation does not promise, and how it does without.

- :mod:`twinstore_postgres.connection.pipeline` sends the statements of a call at once, by the generators
  and the transformer of psycopg. Without it they travel by psycopg's own pipeline and cursors, with the
  same results and more processor time.
- :class:`~twinstore_postgres.connection.deadlines.TimedConnection` overrides ``Connection.wait``, which
  psycopg calls for each round trip. Where it no longer does, a call to a frozen server lasts until the
  network ends it.
- :class:`~twinstore_postgres.connection.cursors.OwnCursor` overrides ``Cursor.adapters``. Where psycopg no
  longer reads it, loaders of an application would change what is read, so its connections are refused.
- :class:`~twinstore_postgres.connection.pool.RecordedConnection` overrides ``Connection.connect``, which
  psycopg_pool calls. Where it no longer does, an error does not say why the pool has no connection.

The first connection of a process tries out all but the last, which the first one of a pool shows. What a
release of psycopg has changed is off, logged once and listed by ``twinstore doctor``.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row
from typing_extensions import override

from twinstore.errors import ConfigurationError, Outcome
from twinstore_postgres.connection.batch import PipelinedConnection
from twinstore_postgres.connection.cursors import ADAPTERS, OwnCursor, refuse_encoding, refuse_registered
from twinstore_postgres.connection.deadlines import LongRunningConnection, TimedConnection
from twinstore_postgres.connection.errors import translated
from twinstore_postgres.mapping.codec import Values
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from psycopg.abc import Buffer

    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.connection.target import Target

log = logging.getLogger("twinstore.postgres")

PIPELINE: Final = "pipeline"
LIMIT: Final = "limit of a round trip"
LOADERS: Final = "loaders of a cursor"
REASONS: Final = "reason of a failed connection"
FALLBACKS: Final = {
    PIPELINE: "Statements travel by psycopg's own pipeline: same results, more processor time.",
    LIMIT: "A call to a server that is frozen lasts until the network ends it.",
    LOADERS: "Connections of the application are refused; install an earlier release of psycopg.",
    REASONS: "The error does not say why the pool has no connection; see the log of psycopg.pool.",
}

# By mechanism that is off; those of a process, whose psycopg is the same for all storages.
_limitations: Final[dict[str, str]] = {}
_probed: Final[set[type[object]]] = set()


def sentences() -> tuple[str, ...]:
    """Return a sentence for each mechanism that this release of psycopg does not carry."""
    return tuple(_limitations.values())


def connection_kind(*, pooled: bool, bulk: bool = False) -> type[TimedConnection]:
    """Return the kind of our own connections.

    Args:
        pooled: they lead to a transaction pooler, and prepare nothing.
        bulk: their statements may take as long as they take.
    """
    plain = LongRunningConnection if bulk else TimedConnection
    if PIPELINE in _limitations:
        return plain
    try:
        # Guarded, because it names parts of psycopg that may go.
        pipeline: Any = import_module("twinstore_postgres.connection.pipeline")
        own = pipeline.LongRunningPipeline if bulk else pipeline.OwnConnection
        kind: type[TimedConnection] = pipeline.UnpreparedConnection if pooled else own
        pipeline.PipelineCodec()
    except Exception as error:  # noqa: BLE001  # whatever a changed interface raises
        switch_off(PIPELINE, f"{type(error).__name__}: {error}")
        return plain
    return kind


def bulk_connection(target: Target, *, pipeline: bool) -> Connection:
    """Open a connection for bulk work, which may lead past a pooler."""
    while True:
        kind = connection_kind(pooled=False, bulk=True) if pipeline else LongRunningConnection
        connection = target.connect(kind, qualified=True)
        try:
            with translated(outcome=Outcome.NOT_APPLIED):
                probe_connection(connection)
        except BaseException:
            connection.close()
            raise
        if issubclass(LongRunningConnection, kind) or PIPELINE not in _limitations:
            return connection
        connection.close()  # what it sends at once would be answered in another way


class NullLoader(Loader):
    """Reads every value as ``None``."""

    format = Format.BINARY

    @override
    def load(self, data: Buffer) -> None:
        """Read no value."""


class Probe(OwnCursor[Values]):
    """A cursor that reads numbers as no connection does."""

    own = AdaptersMap(ADAPTERS)


Probe.own.register_loader("int4", NullLoader)


def probe_connection(connection: Connection) -> None:
    """Try all on a connection of our own; once in a process for each kind.

    Raises:
        psycopg.OperationalError: the connection was lost.
    """
    if type(connection) in _probed or not isinstance(connection, TimedConnection):
        return
    _probed.add(type(connection))
    connection.execute("SELECT 1", prepare=False)
    if not connection.wait_was_called:
        switch_off(LIMIT, "psycopg does not call Connection.wait as it did")
    probe_loaders(connection)
    if not isinstance(connection, PipelinedConnection):
        return
    try:
        if not connection.is_supported():
            switch_off(PIPELINE, "the answers are other ones")
    except psycopg.OperationalError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a changed interface raises
        switch_off(PIPELINE, f"{type(error).__name__}: {error}")


def probe_loaders(connection: Connection) -> None:
    """Try on any connection whether a cursor reads values in its own way; once in a process."""
    if Probe in _probed:
        return
    found = Probe(connection, tuple_row).execute("SELECT 1::int4", prepare=False).fetchone()
    _probed.add(Probe)
    if found != (None,):
        switch_off(LOADERS, "psycopg does not read Cursor.adapters as it did")


def check_application_connection(connection: Connection) -> None:
    """Refuse a connection of the application that does not carry every text, or reads in its own way.

    Raises:
        ConfigurationError: says which, and what to change.
        psycopg.Error: the connection is of no use, or its transaction has failed.
    """
    refuse_registered()
    refuse_encoding(connection)
    probe_loaders(connection)
    if LOADERS in _limitations:
        raise ConfigurationError(_limitations[LOADERS], driver=DRIVER)


def switch_off(mechanism: str, reason: str) -> None:
    """Go without a mechanism from now on, and say so once."""
    if mechanism in _limitations:
        return
    _limitations[mechanism] = (
        f"psycopg {psycopg.__version__} does not carry the {mechanism} of this driver ({reason}). "
        f"{FALLBACKS[mechanism]}"
    )
    log.warning("%s", _limitations[mechanism])
