"""What this driver uses of psycopg that its documentation does not promise, and how it does without.

- :mod:`twinstore_postgres.pipeline` sends the statements of a call at once, by the generators and the
  transformer of psycopg. Without it they travel by psycopg's own pipeline and cursors, with the same
  results and more processor time.
- :class:`~twinstore_postgres.deadlines.TimedConnection` overrides ``Connection.wait``, which psycopg calls
  for each round trip. Where it no longer does, a call to a frozen server lasts until the network ends it.

Both are tried out on the first connection of a process. What a release of psycopg has changed is off, said
once in the log and listed by ``twinstore doctor``.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import psycopg

from twinstore_postgres.batching import PipelinedConnection
from twinstore_postgres.deadlines import TimedConnection

if TYPE_CHECKING:
    from twinstore_postgres.connecting import Connection

__all__ = ["connection_kind", "sentences", "try_out"]

log = logging.getLogger("twinstore.postgres")

PIPELINE: Final = "pipeline"
LIMIT: Final = "limit of a round trip"
WITHOUT: Final = {
    PIPELINE: "Statements travel by psycopg's own pipeline: same results, more processor time.",
    LIMIT: "A call to a server that is frozen lasts until the network ends it.",
}

# By mechanism that is off; those of a process, whose psycopg is the same for all storages.
_sentences: Final[dict[str, str]] = {}
_tried: Final[set[type[object]]] = set()


def sentences() -> tuple[str, ...]:
    """Return a sentence for each mechanism that this release of psycopg does not carry."""
    return tuple(_sentences.values())


def connection_kind(*, pooled: bool) -> type[TimedConnection]:
    """Return the kind of our own connections.

    Args:
        pooled: they lead to a transaction pooler, and prepare nothing.
    """
    if PIPELINE in _sentences:
        return TimedConnection
    try:
        # Guarded, because it names parts of psycopg that may go.
        pipeline: Any = import_module("twinstore_postgres.pipeline")
        kind: type[TimedConnection] = pipeline.UnpreparedConnection if pooled else pipeline.OwnConnection
        pipeline.Wire()
    except Exception as error:  # noqa: BLE001  # whatever a changed interface raises
        switch_off(PIPELINE, f"{type(error).__name__}: {error}")
        return TimedConnection
    return kind


def try_out(connection: Connection) -> None:
    """Try both on a connection of our own that has executed a statement; once in a process for each kind.

    Raises:
        psycopg.OperationalError: the connection was lost.
    """
    if type(connection) in _tried or not isinstance(connection, TimedConnection):
        return
    _tried.add(type(connection))
    if not connection.waits_here:
        switch_off(LIMIT, "psycopg does not call Connection.wait as it did")
    if not isinstance(connection, PipelinedConnection):
        return
    try:
        if not connection.works():
            switch_off(PIPELINE, "the answers are other ones")
    except psycopg.OperationalError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a changed interface raises
        switch_off(PIPELINE, f"{type(error).__name__}: {error}")


def switch_off(mechanism: str, reason: str) -> None:
    """Go without a mechanism from now on, and say so once."""
    if mechanism in _sentences:
        return
    _sentences[mechanism] = (
        f"psycopg {psycopg.__version__} does not carry the {mechanism} of this driver ({reason}). "
        f"{WITHOUT[mechanism]}"
    )
    log.warning("%s", _sentences[mechanism])
