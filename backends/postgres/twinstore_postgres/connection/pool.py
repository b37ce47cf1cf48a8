"""The PostgreSQL of a storage: its pool, opened and checked at first use, and connections outside it.

A forked child opens a separate pool; it does not use or close anything that the parent opened.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import psycopg
import psycopg_pool
from psycopg import conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests
from pydantic import SecretStr
from typing_extensions import override

from twinstore.errors import ConfigurationError, Outcome, TimeoutExceededError, UnavailableError
from twinstore.runtime.forks import ForkSafeLock, ProcessGuard, Renewable, renew_in_child, retain
from twinstore.runtime.secrets import without_locals
from twinstore.runtime.service_log import log_connected, log_recovered
from twinstore.runtime.single_flight import SingleFlight
from twinstore_postgres.connection.batch import PipelinedConnection
from twinstore_postgres.connection.cursors import ADAPTERS
from twinstore_postgres.connection.deadlines import Connection, TimedConnection
from twinstore_postgres.connection.direct import Direct
from twinstore_postgres.connection.errors import NO_SUBJECT, loggable, translate, translated
from twinstore_postgres.connection.idle import is_alive
from twinstore_postgres.connection.roles import RoleGuard
from twinstore_postgres.connection.target import (
    Route,
    Target,
    check_version,
    detach_in_child,
    is_full,
    target_of,
)
from twinstore_postgres.connection.transaction import OWN, ConnectionSource, transport_of
from twinstore_postgres.connection.undocumented import (
    REASONS,
    check_application_connection,
    connection_kind,
    probe_connection,
    switch_off,
)
from twinstore_postgres.mapping.codec import Values
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    from psycopg.adapt import AdaptersMap

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.transaction import Transport
    from twinstore_postgres.settings import PostgresSettings

log = logging.getLogger("twinstore.postgres")

# Long enough for a busy pool to hand over a connection; only then is it worth asking why none comes.
FAILURE_CHECK_SECONDS: Final = 0.5
# How long the pool tries by itself to replace a lost connection; each call that needs one makes it try again.
# By default it tries for minutes with growing pauses, and heals as long after the server as that was away.
RECONNECT_SECONDS: Final = 0.0
# Its threads end by themselves, at the latest when the attempt to connect does that one of them makes.
CLOSE_SECONDS: Final = 1.0


class ServerConnections(ConnectionSource, Renewable):
    """Connections of the application role, pooled and single.

    The first use opens one connection directly, because a pool hides why it cannot connect, and checks
    that row-level security binds the role.
    """

    # How connections of the pool write and read values outside of our cursors.
    _adapters: AdaptersMap | None = ADAPTERS

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
        self._pool = application_pool(settings)
        self._application_owned = self._pool is not None
        self._transport = transport_of(
            settings, application_owned=self._application_owned, read_only=read_only
        )
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
        self._guard = RoleGuard(pooled=self.pooled)
        # A source is only read, and a role that no policy binds reads all of it.
        self._safe = settings.allow_unsafe_role or read_only
        self._version = 0
        self._closed = False
        self._opening: SingleFlight[PsycopgPool] = SingleFlight()
        self._connect_attempts = ConnectAttempts()
        renew_in_child(self)

    @property
    @override
    def transport(self) -> Transport:
        return self._transport

    @property
    def most(self) -> int:
        """How many connections the pool has at most."""
        pool = self._pool
        return pool.max_size if self._application_owned and pool is not None else self._settings.pool_max

    @property
    def pooled(self) -> bool:
        """Whether the pool connects through a transaction pooler."""
        return self._settings.transaction_pooler

    @property
    def version(self) -> int:
        """The version of the server, such as 160004; connects at the first call."""
        self._open()
        return self._version

    @property
    def bound(self) -> bool:
        """Whether row-level security has to bind the role; it need not for a source, or on request."""
        return not self._safe

    def guard(self, module: ModuleSpec[object]) -> None:
        """Check before the next use that row-level security of a module is in force and binds the role."""
        if self.bound:
            self._guard.add(module)
            self.direct.guard(module)

    @override
    def connection(self, seconds: float | None = None) -> PooledConnection:
        """Check out a connection of the pool, in autocommit mode and outside any transaction.

        Args:
            seconds: how long to wait for one, and for the server; by default as long as the settings say.

        Raises:
            UnavailableError: the server does not answer, or all connections are in use.
            ConfigurationError: wrong password or database, unsafe role, closed storage.
        """
        return PooledConnection(self, seconds)

    def connect(self) -> Connection:
        """Open a connection outside the pool, past a transaction pooler; the caller closes it.

        Raises:
            ConfigurationError: behind a transaction pooler no other address is given.
        """
        self.direct.refuse_missing()
        # It checks the role itself: a caller that uses the whole pool needs no connection of it here.
        if self._pool is None or not self._version:
            self._open()
        return self.direct.connect()

    @override
    def renew(self) -> None:
        """Start without a pool in a forked child; we cannot open the pool of the host again."""
        retain(self._pool)
        self._pool = None
        self._connect_attempts = ConnectAttempts()

    def close(self) -> None:
        """Close the pool unless it belongs to the host; a second call does nothing."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and not self._application_owned:
            pool.close(CLOSE_SECONDS)

    def _open(self, seconds: float | None = None) -> PsycopgPool:
        # Nearly every call ends here, without a lock.
        pool = self._ready_pool()
        if pool is not None:
            return pool
        try:
            return self._opening.run(lambda: self._ready_pool() or self._checked_pool(), seconds)
        except TimeoutError:
            raise no_response(self.target.place, seconds or 0.0) from None

    def _ready_pool(self) -> PsycopgPool | None:
        """Return the pool, unless server or role must be checked before its next use."""
        return self._pool if self._version and not self._guard.schemas else None

    def _checked_pool(self) -> PsycopgPool:
        """Return the pool after a check of server and role; the first time it is opened after that."""
        self._refuse_closed()
        pool = self._pool
        if pool is None and self._application_owned:
            raise pool_of_the_parent()
        if pool is None or self._application_owned:
            with self.target.connect(self._kind) as connection, translated(outcome=Outcome.NOT_APPLIED):
                self.target.check_options(connection)
                self._check(connection)
                probe_connection(connection)
        else:
            # Not on a connection outside the pool, because then PoolMax would not be a limit.
            connection = self._take(pool, self._seconds)
            try:
                with translated(outcome=Outcome.NOT_APPLIED):
                    self._check(connection)
                if self._guard.unsafe and self._transport is OWN:
                    connection.close()  # it keeps what it began with
            finally:
                pool.putconn(connection)
        with self._lock:
            self._refuse_closed()
            if self._pool is None:
                self._pool = self._new_pool()
            return self._pool

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConfigurationError("This storage is closed; open a new one.", driver=DRIVER)

    def _check(self, connection: Connection) -> None:
        """Learn the version of the server, and whether the role is safe."""
        version = check_version(connection)
        self._guard.check(connection)
        self._version = version
        release = f"{version // 10000}.{version % 10000}"
        log_connected(DRIVER, release, self.target.database, self.target.place)

    @property
    def _kind(self) -> type[TimedConnection]:
        return connection_kind(pooled=self.pooled) if self._settings.pipeline else TimedConnection

    def _new_pool(self) -> Pool:
        kind = self._kind
        pool = Pool(
            self.target.conninfo.get_secret_value(),
            connection_class=recording_class(kind, self._connect_attempts),
            kwargs={
                "autocommit": True,
                # Each statement comes again and again; the pipeline prepares by itself.
                "prepare_threshold": None if self.pooled or issubclass(kind, PipelinedConnection) else 0,
                "context": self._adapters,
            },
            min_size=self._settings.pool_min,
            max_size=self._settings.pool_max,
            max_lifetime=self._settings.pool_max_lifetime_ms / 1000,
            open=False,
            configure=self._configure,
            reset=self._cleaner,
            reconnect_timeout=RECONNECT_SECONDS,
            name=POOL_NAME,
        )
        pool.open()
        return pool

    def _configure(self, connection: Connection) -> None:
        """Set up a new connection of the pool, which has sent nothing yet."""
        if isinstance(connection, TimedConnection):
            connection.limit = self.target.limit
        if not self._connect_attempts.has_begun:
            switch_off(REASONS, f"psycopg_pool {psycopg_pool.__version__} does not call connect as it did")
        detach_in_child(connection)
        log_recovered(DRIVER, lambda: self.target.place)

    @property
    def _cleaner(self) -> Callable[[Connection], None] | None:
        """What cleans a returned connection; nothing, since our own statements leave nothing behind.

        Not a function that does nothing: for any function the pool hands each connection to one of its
        threads, and the next call waits until that thread has returned it.
        """
        return None

    @property
    def _seconds(self) -> float:
        """How long a call waits for a connection of the pool."""
        return self._settings.pool_timeout_ms / 1000

    def take(self, seconds: float | None = None) -> tuple[PsycopgPool, Connection]:
        """Take a connection, which goes back to the pool that is returned with it.

        Args:
            seconds: how long to wait for it, the first look at the server included.
        """
        # Not in _open: a caller of the version may be about to migrate, and outside the pool all is visible.
        if seconds is None:
            pool = self._open()
            self._guard.refuse()
            return pool, self._take(pool, self._seconds)
        end = monotonic() + seconds
        pool = self._open(seconds)
        self._guard.refuse()
        return pool, self._take(pool, max(0.0, end - monotonic()))

    def _take(self, pool: PsycopgPool, seconds: float) -> Connection:
        try:
            return (
                self._from_application_pool(pool, seconds)
                if self._application_owned
                else self._wait_for_connection(pool, seconds)
            )
        except (PoolClosed, TooManyRequests) as error:
            self._refuse_closed()
            raise translate(error, NO_SUBJECT, Outcome.NOT_APPLIED) from error

    def _from_application_pool(self, pool: PsycopgPool, seconds: float) -> Connection:
        """Take a connection of a pool of the host, which checks as the host wants whether it serves."""
        try:
            connection = pool.getconn(seconds)
        except PoolTimeout:
            raise application_pool_timeout(pool.max_size, seconds) from None
        try:
            with translated(outcome=Outcome.NOT_APPLIED):
                check_application_connection(connection)
        except BaseException:
            pool.putconn(connection)
            raise
        return connection

    def _live_connection(self, pool: PsycopgPool, seconds: float) -> Connection:
        """Take a connection that the server has not closed.

        By ``check`` the pool would pause for seconds between the connections that an outage has ended.
        """
        while True:
            connection = pool.getconn(seconds)
            if is_alive(connection):
                return connection
            connection.close()
            pool.putconn(connection)

    def _wait_for_connection(self, pool: PsycopgPool, seconds: float) -> Connection:
        """Take a connection of our own pool; wait for it as long as there is hope."""
        begun, wait = monotonic(), min(FAILURE_CHECK_SECONDS, seconds)
        while True:
            try:
                return self._live_connection(pool, wait)
            except PoolTimeout:
                pass
            left = begun + seconds - monotonic()
            failure = self._connect_attempts.failure_since(begun)
            # A server without free slots serves those who have one, and they give it back.
            if failure is not None and (left <= 0 or not is_full(failure) or not self._opened(pool)):
                raise self.target.explain(failure) from failure
            if left <= 0:
                raise self._none_free(pool, seconds)
            # Asking again means the end of the queue, so only do so if the answer may have changed.
            wait = left if self._opened(pool) >= pool.max_size else min(left, FAILURE_CHECK_SECONDS)

    def _opened(self, pool: PsycopgPool) -> int:
        """Return how many connections the pool has, in use or not, without those that it is about to open."""
        return pool.get_stats()["pool_size"] - self._connect_attempts.in_progress

    def _none_free(self, pool: PsycopgPool, seconds: float) -> UnavailableError:
        if self._connect_attempts.in_progress:
            return no_response(self.target.place, seconds)
        return all_in_use(pool.max_size, seconds)


POOL_NAME: Final = "twinstore"


class ConnectAttempts:
    """How the attempts of a pool to open connections go, for those who wait for one.

    A pool keeps to itself why it has no connection, and to ask the server on one more connection would make
    the limit that an operator has set none.
    """

    def __init__(self) -> None:
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
    def in_progress(self) -> int:
        """How many connections are being opened now."""
        return self._under_way

    @contextmanager
    def recorded(self) -> Generator[None]:
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


class RecordedConnection(psycopg.Connection[Values]):
    """A connection of a pool that records each attempt to open one."""

    connect_attempts: ClassVar[ConnectAttempts]

    @classmethod
    @override
    def connect(cls, *args: Any, **options: Any) -> Self:
        with cls.connect_attempts.recorded():
            return super().connect(*args, **options)


def recording_class(kind: type[TimedConnection], connect_attempts: ConnectAttempts) -> type[TimedConnection]:
    """Return a subclass that records its attempts to connect."""
    return type(kind.__name__, (RecordedConnection, kind), {"connect_attempts": connect_attempts})


class Pool(ConnectionPool[Connection]):
    """The pool of this library. In a forked child it ends silently: its connections are the parent's."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # those of psycopg_pool
        self.process = ProcessGuard()
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
        self._process = ProcessGuard()
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

    def __exit__(self, *_: object) -> None:
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
                # The pool would roll back and reuse it in autocommit mode; it replaces a closed one.
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


def application_pool_timeout(most: int, seconds: float) -> TimeoutExceededError:
    """Return the error of a call that got no connection from the host's pool, which does not report why."""
    return TimeoutExceededError(
        f"The pool of the application gave no connection within {seconds:g} s: all {most} are in use, or "
        "PostgreSQL does not answer. Its log (psycopg.pool) says which.",
        outcome=Outcome.NOT_APPLIED,
        driver=DRIVER,
    )


def no_response(place: str, seconds: float) -> TimeoutExceededError:
    """Return the error of a server that did not answer."""
    return TimeoutExceededError(
        f"PostgreSQL at {place} did not answer within {seconds:g} s. Check that the server "
        "runs and can be reached.",
        outcome=Outcome.NOT_APPLIED,
        driver=DRIVER,
    )


PsycopgPool = ConnectionPool[Connection]

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


@without_locals
def pool_target(pool: PsycopgPool, settings: PostgresSettings) -> Target:
    """Return where the pool of the host connects to, for connections outside it."""
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
    """Return what is between the pool and the server."""
    return Route.POOLER if settings.transaction_pooler else Route.ANY


def application_pool(settings: PostgresSettings) -> PsycopgPool | None:
    """Return the pool of the host, or ``None``."""
    if settings.pool is None:
        return None
    if not isinstance(settings.pool, ConnectionPool):
        raise ConfigurationError(
            f"pool should be a psycopg_pool.ConnectionPool, not {type(settings.pool).__name__}.",
            driver=DRIVER,
        )
    return cast("PsycopgPool", settings.pool)
