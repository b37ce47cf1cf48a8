"""The PostgreSQL of a storage: its pool, opened and checked at first use, and connections beside it.

A forked child opens a pool of its own; nothing that the parent opened is used or closed there.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final

import psycopg_pool
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests
from typing_extensions import override

from twinstore.attempts import SharedAttempt
from twinstore.errors import ConfigurationError, Outcome, UnavailableError
from twinstore.forks import ForkSafeLock, Renewable, keep, renew_in_child
from twinstore.servicelog import note_back, note_connected
from twinstore_postgres.batching import PipelinedConnection
from twinstore_postgres.connecting import (
    Connection,
    ConnectionSource,
    check_version,
    is_full,
    let_go_in_child,
)
from twinstore_postgres.cursors import ADAPTERS
from twinstore_postgres.deadlines import TimedConnection
from twinstore_postgres.direct import Direct
from twinstore_postgres.errors import NOWHERE, translate, translated
from twinstore_postgres.host_pool import HostPool, host_pool, pool_target, route_of
from twinstore_postgres.pooling import (
    POOL_NAME,
    Openings,
    Pool,
    PooledConnection,
    all_in_use,
    none_lent,
    noting,
    pool_of_the_parent,
    serves,
    silence_of,
)
from twinstore_postgres.roles import RoleGuard
from twinstore_postgres.settings import DRIVER
from twinstore_postgres.targets import target_of
from twinstore_postgres.transports import OWN, transport_of
from twinstore_postgres.undocumented import REASONS, connection_kind, refuse_host, switch_off, try_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.adapt import AdaptersMap

    from twinstore.modules import ModuleSpec
    from twinstore_postgres.settings import PostgresSettings
    from twinstore_postgres.transports import Transport

__all__ = ["ServerConnections"]

log = logging.getLogger("twinstore.postgres")

# Long enough for a busy pool to hand over a connection; only then is it worth asking why none comes.
LOOK_SECONDS: Final = 0.5
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
        self._guard = RoleGuard(pooled=self.pooled)
        # A source is only read, and a role that no policy binds reads all of it.
        self._safe = settings.allow_unsafe_role or read_only
        self._version = 0
        self._closed = False
        self._opening: SharedAttempt[HostPool] = SharedAttempt()
        self._openings = Openings()
        renew_in_child(self)

    @property
    @override
    def transport(self) -> Transport:
        """How statements travel on the connections of the pool."""
        return self._transport

    @property
    def most(self) -> int:
        """How many connections the pool has at most."""
        pool = self._pool
        return pool.max_size if self._host_owned and pool is not None else self._settings.pool_max

    @property
    def pooled(self) -> bool:
        """Whether a transaction pooler stands before the server."""
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
        """Lend a connection of the pool, in autocommit mode and outside any transaction.

        Args:
            seconds: how long to wait for one, and for the server; by default as long as the settings say.

        Raises:
            UnavailableError: the server does not answer, or all connections are in use.
            ConfigurationError: wrong password or database, unsafe role, closed storage.
        """
        return PooledConnection(self, seconds)

    def connect(self) -> Connection:
        """Open a connection beside the pool, past a transaction pooler; the caller closes it.

        Raises:
            ConfigurationError: behind a transaction pooler no other address is given.
        """
        self.direct.refuse_missing()
        # It checks the role itself: whoever uses all of the pool needs no connection of it here.
        if self._pool is None or not self._version:
            self._open()
        return self.direct.connect()

    @override
    def renew(self) -> None:
        """Start without a pool in a forked child; that of the host cannot be opened anew by us."""
        keep(self._pool)
        self._pool = None
        self._openings = Openings()

    def close(self) -> None:
        """Close the pool unless it belongs to the host; a second call does nothing."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and not self._host_owned:
            pool.close(CLOSE_SECONDS)

    def _open(self, seconds: float | None = None) -> HostPool:
        # Nearly every call ends here, without a lock.
        pool = self._ready_pool()
        if pool is not None:
            return pool
        try:
            return self._opening.run(lambda: self._ready_pool() or self._checked_pool(), seconds)
        except TimeoutError:
            raise silence_of(self.target.place, seconds or 0.0) from None

    def _ready_pool(self) -> HostPool | None:
        """Return the pool, unless server or role must be checked before its next use."""
        return self._pool if self._version and not self._guard.schemas else None

    def _checked_pool(self) -> HostPool:
        """Return the pool after a look at server and role; the first time it is opened after that."""
        self._refuse_closed()
        pool = self._pool
        if pool is None and self._host_owned:
            raise pool_of_the_parent()
        if pool is None or self._host_owned:
            with self.target.connect(self._kind) as connection, translated(outcome=Outcome.NOT_APPLIED):
                self.target.check_options(connection)
                self._check(connection)
                try_out(connection)
        else:
            # Not on a connection beside the pool, which would make PoolMax no limit.
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
        note_connected(DRIVER, release, self.target.database, self.target.place)

    @property
    def _kind(self) -> type[TimedConnection]:
        """The kind of the connections of the pool."""
        return connection_kind(pooled=self.pooled) if self._settings.pipeline else TimedConnection

    def _new_pool(self) -> Pool:
        kind = self._kind
        pool = Pool(
            self.target.conninfo.get_secret_value(),
            connection_class=noting(kind, self._openings),
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
        if not self._openings.has_begun:
            switch_off(REASONS, f"psycopg_pool {psycopg_pool.__version__} does not call connect as it did")
        let_go_in_child(connection)
        note_back(DRIVER, lambda: self.target.place)

    @property
    def _cleaner(self) -> Callable[[Connection], None] | None:
        """What cleans a connection that comes back; nothing, since our own statements leave nothing behind.

        Not a function that does nothing: for any function the pool hands each connection to a thread of its
        own, and the next call waits until that thread has given it back.
        """
        return None

    @property
    def _seconds(self) -> float:
        """How long a call waits for a connection of the pool."""
        return self._settings.pool_timeout_ms / 1000

    def take(self, seconds: float | None = None) -> tuple[HostPool, Connection]:
        """Take a connection, which goes back to the pool that is returned with it.

        Args:
            seconds: how long to wait for it, the first look at the server included.
        """
        # Not in _open: who asks for the version may be about to migrate, and beside the pool all is seen.
        if seconds is None:
            pool = self._open()
            self._guard.refuse()
            return pool, self._take(pool, self._seconds)
        end = monotonic() + seconds
        pool = self._open(seconds)
        self._guard.refuse()
        return pool, self._take(pool, max(0.0, end - monotonic()))

    def _take(self, pool: HostPool, seconds: float) -> Connection:
        try:
            return self._lent(pool, seconds) if self._host_owned else self._awaited(pool, seconds)
        except (PoolClosed, TooManyRequests) as error:
            self._refuse_closed()
            raise translate(error, NOWHERE, Outcome.NOT_APPLIED) from error

    def _lent(self, pool: HostPool, seconds: float) -> Connection:
        """Take a connection of a pool of the host, which checks as the host wants whether it serves."""
        try:
            connection = pool.getconn(seconds)
        except PoolTimeout:
            raise none_lent(pool.max_size, seconds) from None
        try:
            with translated(outcome=Outcome.NOT_APPLIED):
                refuse_host(connection)
        except BaseException:
            pool.putconn(connection)
            raise
        return connection

    def _serving(self, pool: HostPool, seconds: float) -> Connection:
        """Take a connection that the server has not closed.

        By ``check`` the pool would pause for seconds between the connections that an outage has ended.
        """
        while True:
            connection = pool.getconn(seconds)
            if serves(connection):
                return connection
            connection.close()
            pool.putconn(connection)

    def _awaited(self, pool: HostPool, seconds: float) -> Connection:
        """Take a connection of our own pool; wait for it as long as there is hope."""
        begun, wait = monotonic(), min(LOOK_SECONDS, seconds)
        while True:
            try:
                return self._serving(pool, wait)
            except PoolTimeout:
                pass
            left = begun + seconds - monotonic()
            failure = self._openings.failure_since(begun)
            # A server without free slots serves those who have one, and they give it back.
            if failure is not None and (left <= 0 or not is_full(failure) or not self._opened(pool)):
                raise self.target.explain(failure) from failure
            if left <= 0:
                raise self._none_free(pool, seconds)
            # Whoever asks again stands at the end of the queue: only where the answer may be another one.
            wait = left if self._opened(pool) >= pool.max_size else min(left, LOOK_SECONDS)

    def _opened(self, pool: HostPool) -> int:
        """Return how many connections the pool has, lent or not, without those that it is about to open."""
        return pool.get_stats()["pool_size"] - self._openings.under_way

    def _none_free(self, pool: HostPool, seconds: float) -> UnavailableError:
        if self._openings.under_way:
            return silence_of(self.target.place, seconds)
        return all_in_use(pool.max_size, seconds)
