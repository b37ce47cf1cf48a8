"""What surrounds the pool of a storage: how a connection is lent, and why the pool has none to lend."""

from __future__ import annotations

import logging
import select
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

import psycopg
from typing_extensions import override

from twinstore.errors import ConfigurationError, Outcome, TimeoutExceededError, UnavailableError
from twinstore.forks import keep
from twinstore_postgres.deadlines import TimedConnection
from twinstore_postgres.errors import loggable
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.loans import Pool
    from twinstore_postgres.server import ServerConnections

__all__ = [
    "POOL_NAME",
    "Openings",
    "PooledConnection",
    "abandon",
    "all_in_use",
    "keep_messages",
    "pool_of_the_parent",
    "serves",
    "silence_of",
]

log = logging.getLogger("twinstore.postgres")

POOL_NAME: Final = "twinstore"


class Openings:
    """How the attempts of a pool to open connections go, for those who wait for one.

    A pool keeps to itself why it has no connection, and to ask the server on one more connection would make
    the limit that an operator has set none.
    """

    def __init__(self) -> None:
        """Nothing is attempted yet."""
        self._lock = Lock()
        self._under_way = 0
        self._failure: psycopg.Error | None = None
        self._failed = 0.0

    @property
    def under_way(self) -> int:
        """How many connections are being opened now."""
        return self._under_way

    @contextmanager
    def noted(self) -> Generator[None]:
        """Note how the attempt in the block ends."""
        with self._lock:
            self._under_way += 1
        failure: psycopg.Error | None = None
        try:
            yield
        except psycopg.Error as error:
            failure = error
            raise
        finally:
            with self._lock:
                self._under_way -= 1
                self._failure, self._failed = failure, monotonic()

    def failure_since(self, instant: float) -> psycopg.Error | None:
        """Return why the last attempt has failed, if it has and if that was after an instant."""
        with self._lock:
            return self._failure if self._failed >= instant else None


class PooledConnection:
    """A connection that goes back to its pool when the block ends, as it was taken.

    A class, because every call passes here and a generator would cost it three times as much.
    """

    __slots__ = ("_autocommit", "_loan", "_seconds", "_server")

    def __init__(self, server: ServerConnections, seconds: float | None = None) -> None:
        """Take whose connection, and how long to wait for it; by default as long as the settings say."""
        self._server = server
        self._seconds = seconds

    def __enter__(self) -> Connection:
        """Take a connection, in autocommit mode."""
        self._loan = self._server.take(self._seconds)
        connection = self._loan.connection
        self._autocommit = connection.autocommit
        if not self._autocommit:
            try:
                connection.autocommit = True
            except BaseException:
                self._give_back()
                raise
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back, but not in a forked child: it is the parent's."""
        if not self._loan.forked:
            self._give_back()

    def _give_back(self) -> None:
        """Return the connection to its pool as it was taken."""
        connection = self._loan.connection
        if not self._autocommit and not connection.closed:
            try:
                connection.autocommit = False
            except psycopg.Error as error:
                # The pool would roll back and lend it in autocommit mode; a closed one it replaces.
                log.debug("A connection of the host is closed, because it is in use (%s).", loggable(error))
                connection.close()
        self._loan.give_back()


class OwnMessages(logging.Filter):
    """Keeps what is said of the pool of this library in its own log, without the texts of the server.

    Whoever needs a connection is told why there is none, so that a log of every attempt tells nothing more.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is about something else."""
        values = record.args if isinstance(record.args, tuple) else ()
        if record.levelno < logging.WARNING or not any(map(is_ours, values)):
            return True
        log.debug("Of the pool: %s", record.msg % tuple(map(shown, values)))
        return False


def is_ours(value: object) -> bool:
    """Whether a value of a message is a connection, the pool or a thread of the pool of this library."""
    if isinstance(value, str):
        return value == POOL_NAME or value.startswith(f"{POOL_NAME}-")
    return isinstance(value, TimedConnection)


def shown(value: object) -> object:
    """Return what a log may show of a value."""
    return loggable(value) if isinstance(value, BaseException) else value


def keep_messages() -> None:
    """Let the messages of the pool go to the log of this library; a second call does nothing."""
    # The same object each time, which a logger takes once.
    logging.getLogger("psycopg.pool").addFilter(_own_messages)


_own_messages: Final = OwnMessages()


def abandon(pool: Pool) -> None:
    """Give up a pool that a forked child inherited.

    Its finaliser would wait for locks that threads of the parent held, and wake threads that do not exist
    here; a closed pool has none.
    """
    pool._closed = True  # noqa: SLF001  # close() would close the connections of the parent on the wire
    keep(pool)


def pool_of_the_parent() -> ConfigurationError:
    """Return the error of a host's own pool in a forked child."""
    return ConfigurationError(
        "The pool of this storage was opened before the process was forked, so its connections belong to "
        "the parent process; open a pool and a storage in this process, for instance in the hook that your "
        "server runs after it forks a worker.",
        driver=DRIVER,
    )


def all_in_use(most: int, seconds: float) -> UnavailableError:
    """Return the error of a call for which no connection came free."""
    return UnavailableError(
        f"All {most} connections of the pool (PoolMax) stayed in use for {seconds:g} s; raise "
        "PoolMax or PoolTimeoutMs, or end sessions and transactions sooner.",
        outcome=Outcome.NOT_APPLIED,
        driver=DRIVER,
    )


def silence_of(place: str, seconds: float) -> TimeoutExceededError:
    """Return the error of a server that did not answer."""
    return TimeoutExceededError(
        f"PostgreSQL at {place} did not answer within {seconds:g} s. Check that the server "
        "runs and can be reached.",
        outcome=Outcome.NOT_APPLIED,
        driver=DRIVER,
    )


def serves(connection: Connection) -> bool:
    """Whether the server has not closed a connection; asked without a round trip.

    A healthy idle connection has nothing to read. Anything readable is a shutdown message or a notice, and
    only then is the server asked.
    """
    try:
        if readable(connection.fileno()):
            connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def readable(descriptor: int) -> bool:
    """Whether something waits to be read."""
    if hasattr(select, "poll"):  # select() refuses descriptors from 1024 on, Windows has nothing else
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])
