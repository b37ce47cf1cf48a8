"""The PostgreSQL of a storage: its pool, opened and checked at first use, and connections beside it.

A forked child opens a pool of its own; nothing that the parent opened is used or closed there.
"""

from __future__ import annotations

import logging
import select
from typing import TYPE_CHECKING, Final, cast

import psycopg
from psycopg import conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout
from pydantic import SecretStr
from typing_extensions import override

from twinstore.errors import ConfigurationError, Outcome, UnavailableError
from twinstore.forgetting import without_locals
from twinstore.forks import ForkSafeLock, OwnProcess, Renewable, keep, renew_in_child
from twinstore.servicelog import note_back, note_connected
from twinstore_postgres.connecting import (
    Connection,
    ConnectionSource,
    Route,
    Target,
    adopt,
    check_version,
)
from twinstore_postgres.direct import Direct
from twinstore_postgres.errors import NOWHERE, loggable, translate, translated
from twinstore_postgres.exchange import OwnConnection, UnpreparedConnection
from twinstore_postgres.roles import RoleGuard
from twinstore_postgres.settings import DRIVER
from twinstore_postgres.targets import target_of
from twinstore_postgres.transports import transport_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from twinstore_postgres.settings import PostgresSettings
    from twinstore_postgres.transports import Transport

__all__ = ["ServerConnections"]

log = logging.getLogger("twinstore.postgres")

Pool = ConnectionPool[Connection]

# Long enough for a busy pool to hand over a connection; only then is it worth asking why none comes.
PROBE_AFTER_SECONDS: Final = 0.5
WAIT_SECONDS: Final = 10.0
# How long the pool tries by itself to replace a lost connection; after that, each call that needs one tries.
# By default it tries for minutes with growing pauses, and heals as long after the server as that was away.
RECONNECT_SECONDS: Final = 1.0
CONNECTION_KEYWORDS: Final = frozenset(
    {
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "passfile",
        "service",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "options",
        "application_name",
    }
)


class ServerConnections(ConnectionSource, Renewable):
    """Connections of the application role, pooled and single.

    The first use opens one connection directly, because a pool hides why it cannot connect, and checks
    that row-level security binds the role.
    """

    # What the pool makes, also behind a transaction pooler, and after how many executions psycopg prepares a
    # statement on it.
    _kind: type[Connection] = OwnConnection
    _unprepared_kind: type[Connection] = UnpreparedConnection
    _threshold: int | None = None

    def __init__(self, settings: PostgresSettings, *, read_only: bool = False) -> None:
        """Take the settings; nothing is opened yet.

        Args:
            settings: those of the driver.
            read_only: a source; the server refuses writes, and any role that may read will do.

        Raises:
            ConfigurationError: neither a usable connection string nor a pool.
        """
        self._settings = settings
        self._lock = ForkSafeLock()
        self._pool = host_pool(settings)
        self._host_owned = self._pool is not None
        self._transport = transport_of(settings, host_owned=self._host_owned, read_only=read_only)
        self.target = (
            pool_target(self._pool, settings)
            if self._pool is not None
            else target_of(
                settings.connection_string,
                settings,
                purpose="The connection string of PostgreSQL",
                read_only=read_only,
                route=route_of(settings),
            )
        )
        self.direct = Direct(settings, self.target, read_only=read_only)
        self._guard = RoleGuard()
        # A source is only read, and a role that no policy binds reads all of it.
        self._safe = settings.allow_unsafe_role or read_only
        self._version = 0
        self._closed = False
        renew_in_child(self)

    @property
    @override
    def transport(self) -> Transport:
        """How statements travel on the connections of the pool."""
        return self._transport

    @property
    def pooled(self) -> bool:
        """Whether a transaction pooler stands before the server."""
        return self._settings.transaction_pooler

    @property
    def version(self) -> int:
        """The version of the server, such as 160004; connects at the first call."""
        self._open()
        return self._version

    def guard(self, schema: str) -> None:
        """Check before the next use that row-level security of a schema binds the role."""
        if not self._safe:
            self._guard.add(schema)
            self.direct.guard(schema)

    @override
    def connection(self) -> PooledConnection:
        """Lend a connection of the pool, in autocommit mode and outside any transaction.

        Raises:
            UnavailableError: the server does not answer, or all connections are in use.
            ConfigurationError: wrong password or database, unsafe role, closed storage.
        """
        return PooledConnection(self)

    def connect(self) -> Connection:
        """Open a connection beside the pool, past a transaction pooler; the caller closes it.

        Raises:
            ConfigurationError: behind a transaction pooler no other address is given.
        """
        self.direct.refuse_missing()
        self._open()
        return self.direct.connect()

    @override
    def renew(self) -> None:
        """Start without a pool in a forked child; that of the host cannot be opened anew by us."""
        pool, self._pool = self._pool, None
        if pool is not None and not self._host_owned:
            abandon(pool)

    def close(self) -> None:
        """Close the pool unless it belongs to the host; a second call does nothing."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and not self._host_owned:
            pool.close()

    def _open(self) -> Pool:
        # Nearly every call ends here, without the lock.
        pool = self._pool
        if pool is not None and not self._guard.schemas and self._version:
            return pool
        with self._lock:
            if self._closed:
                raise ConfigurationError("This storage is closed; open a new one.", driver=DRIVER)
            if self._host_owned and self._pool is None:
                raise pool_of_the_parent()
            self._check()
            if self._pool is None:
                self._pool = self._new_pool()
            return self._pool

    def _check(self) -> None:
        """Connect once to learn the version and whether the role is safe."""
        with self.target.connect() as connection, translated(outcome=Outcome.NOT_APPLIED):
            version = check_version(connection)
            self.target.check_options(connection)
            self._guard.check(connection)
            self._version = version
        release = f"{version // 10000}.{version % 10000}"
        note_connected(DRIVER, release, self.target.database, self.target.place)

    def _new_pool(self) -> Pool:
        pool: Pool = ConnectionPool(
            self.target.conninfo.get_secret_value(),
            connection_class=self._unprepared_kind if self.pooled else self._kind,
            kwargs={"autocommit": True, "prepare_threshold": None if self.pooled else self._threshold},
            min_size=self._settings.pool_min,
            max_size=self._settings.pool_max,
            open=False,
            configure=self._configure,
            check=check_alive,
            reset=self._cleaner,
            timeout=WAIT_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            name="twinstore",
        )
        pool.open()
        return pool

    def _configure(self, connection: Connection) -> None:
        """Set up a new connection of the pool."""
        adopt(connection)
        note_back(DRIVER, lambda: self.target.place)

    @property
    def _cleaner(self) -> Callable[[Connection], None] | None:
        """What cleans a connection that comes back; nothing, since our own statements leave nothing behind.

        Not a function that does nothing: for any function the pool hands each connection to a thread of its
        own, and the next call waits until that thread has given it back.
        """
        return None

    def take(self) -> tuple[Pool, Connection]:
        """Take a connection, and tell the pool to which it goes back."""
        pool = self._open()
        return pool, self._take(pool)

    def _take(self, pool: Pool) -> Connection:
        try:
            return pool.getconn(timeout=PROBE_AFTER_SECONDS)
        except PoolTimeout:
            self._probe()
        except PoolClosed as error:
            raise translate(error, NOWHERE, Outcome.NOT_APPLIED) from error
        # The server answers, so the pool is only busy.
        try:
            return pool.getconn(timeout=WAIT_SECONDS)
        except PoolTimeout as error:
            # It may have gone since; then that is the reason, and not how large the pool is.
            self._probe()
            raise UnavailableError(
                f"All {pool.max_size} connections of the pool (PoolMax) stayed in use for "
                f"{WAIT_SECONDS:.0f} s; raise PoolMax, or end sessions and transactions sooner.",
                outcome=Outcome.NOT_APPLIED,
                driver=DRIVER,
            ) from error

    def _probe(self) -> None:
        """Raise the reason when the server cannot be reached at all."""
        self.target.connect().close()


class PooledConnection:
    """A connection that goes back to its pool when the block ends, as it was taken.

    A class, because every call passes here and a generator would cost it three times as much.
    """

    __slots__ = ("_autocommit", "_connection", "_pool", "_process", "_server")

    def __init__(self, server: ServerConnections) -> None:
        self._server = server

    def __enter__(self) -> Connection:
        """Take a connection, in autocommit mode."""
        self._pool, self._connection = self._server.take()
        self._process = OwnProcess()
        self._autocommit = self._connection.autocommit
        if not self._autocommit:
            try:
                self._connection.autocommit = True
            except BaseException:
                self._give_back()
                raise
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back, but not in a forked child: it is the parent's."""
        if not self._process.forked:
            self._give_back()

    def _give_back(self) -> None:
        """Return the connection to its pool as it was taken."""
        if not self._autocommit and not self._connection.closed:
            try:
                self._connection.autocommit = False
            except psycopg.Error as error:
                # The pool would roll back and lend it in autocommit mode; a closed one it replaces.
                log.debug("A connection of the host is closed, because it is in use (%s).", loggable(error))
                self._connection.close()
        self._pool.putconn(self._connection)


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


def check_alive(connection: Connection) -> None:
    """Refuse a connection that the server has closed, without a round trip.

    A healthy idle connection has nothing to read. Anything readable is a shutdown message or a notice, and
    only then is the server asked.
    """
    if readable(connection.fileno()):
        connection.execute("SELECT 1")


def readable(descriptor: int) -> bool:
    """Whether something waits to be read."""
    if hasattr(select, "poll"):  # select() refuses descriptors from 1024 on, Windows has nothing else
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


@without_locals
def pool_target(pool: Pool, settings: PostgresSettings) -> Target:
    """Return where the pool of the host connects to, for connections beside it."""
    given, more = pool.conninfo, pool.kwargs
    text = given() if callable(given) else given
    extra = more() if callable(more) else more
    known = {name: str(value) for name, value in (extra or {}).items() if name in CONNECTION_KEYWORDS}
    return target_of(
        SecretStr(conninfo.make_conninfo(text, **known)),
        settings,
        purpose="The connection string of the pool",
        route=route_of(settings),
    )


def route_of(settings: PostgresSettings) -> Route:
    """Return what stands between the pool and the server."""
    return Route.POOLER if settings.transaction_pooler else Route.ANY


def host_pool(settings: PostgresSettings) -> Pool | None:
    """Return the pool of the host, or ``None``."""
    if settings.pool is None:
        return None
    if not isinstance(settings.pool, ConnectionPool):
        raise ConfigurationError(
            f"pool should be a psycopg_pool.ConnectionPool, not {type(settings.pool).__name__}.",
            driver=DRIVER,
        )
    return cast("Pool", settings.pool)
