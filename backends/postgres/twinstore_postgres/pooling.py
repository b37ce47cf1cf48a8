"""What surrounds the pool of a storage: how a connection is lent, and why the pool has none to lend."""

from __future__ import annotations

import logging
import select
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final

import psycopg
from psycopg_pool import ConnectionPool
from typing_extensions import override

from twinstore.errors import ConfigurationError, Outcome, TimeoutExceededError, UnavailableError
from twinstore.forks import OwnProcess
from twinstore_postgres.codec import Row
from twinstore_postgres.connecting import Connection
from twinstore_postgres.errors import loggable
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Self

    from twinstore_postgres.deadlines import TimedConnection
    from twinstore_postgres.server import ServerConnections

__all__ = [
    "POOL_NAME",
    "Openings",
    "Pool",
    "PooledConnection",
    "all_in_use",
    "none_lent",
    "noting",
    "pool_of_the_parent",
    "readable",
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
        self._has_begun = False

    @property
    def has_begun(self) -> bool:
        """Whether an attempt was recorded; before its first connection each pool makes one."""
        return self._has_begun

    @property
    def under_way(self) -> int:
        """How many connections are being opened now."""
        return self._under_way

    @contextmanager
    def noted(self) -> Generator[None]:
        """Note how the attempt in the block ends."""
        with self._lock:
            self._has_begun = True
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


class NotedConnection(psycopg.Connection[Row]):
    """A connection of a pool that records each attempt to open one."""

    openings: ClassVar[Openings]

    @classmethod
    @override
    def connect(cls, *args: Any, **options: Any) -> Self:
        """Connect as psycopg does."""
        with cls.openings.noted():
            return super().connect(*args, **options)


def noting(kind: type[TimedConnection], openings: Openings) -> type[TimedConnection]:
    """Return a subclass that records its attempts to connect."""
    return type(kind.__name__, (NotedConnection, kind), {"openings": openings})


class Pool(ConnectionPool[Connection]):
    """The pool of this library. In a forked child it ends silently: its connections are the parent's."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # those of psycopg_pool
        """Take what psycopg_pool takes."""
        self.process = OwnProcess()
        super().__init__(*args, **options)

    @override
    def __del__(self) -> None:
        # It wakes threads that do not exist in a child, by locks that they may have held.
        if not self.process.forked:
            super().__del__()


class PooledConnection:
    """A connection that goes back to its pool when the block ends, as it was taken.

    A class, because every call passes here and a generator would cost it three times as much.
    """

    __slots__ = ("_autocommit", "_connection", "_pool", "_process", "_seconds", "_server")

    def __init__(self, server: ServerConnections, seconds: float | None = None) -> None:
        """Take whose connection, and how long to wait for it; by default as long as the settings say."""
        self._server = server
        self._seconds = seconds

    def __enter__(self) -> Connection:
        """Take a connection, in autocommit mode."""
        self._process = OwnProcess()
        self._pool, connection = self._server.take(self._seconds)
        self._connection = connection
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
        if not self._process.forked:
            self._give_back()

    def _give_back(self) -> None:
        """Return the connection to its pool as it was taken."""
        connection = self._connection
        if not self._autocommit and not connection.closed:
            try:
                connection.autocommit = False
            except psycopg.Error as error:
                # The pool would roll back and lend it in autocommit mode; a closed one it replaces.
                log.debug("A connection of the host is closed, because it is in use (%s).", loggable(error))
                connection.close()
        self._pool.putconn(connection)


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


def none_lent(most: int, seconds: float) -> TimeoutExceededError:
    """Return the error of a call that got no connection of a pool of the host, which does not tell why."""
    return TimeoutExceededError(
        f"The pool of the application gave no connection within {seconds:g} s: all {most} are in use, or "
        "PostgreSQL does not answer. Its log (psycopg.pool) says which.",
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


def readable(descriptor: int, seconds: float = 0.0) -> bool:
    """Whether something can be read, or comes within some seconds."""
    if hasattr(select, "poll"):  # select() refuses descriptors from 1024 on, Windows has nothing else
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    return bool(select.select([descriptor], [], [], seconds)[0])
