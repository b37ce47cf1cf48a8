"""The PostgreSQL of a storage: its pool, opened and checked at first use, and connections beside it.

A forked child opens a pool of its own; nothing that the parent opened is used or closed there.
"""

from __future__ import annotations

import logging
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from psycopg_pool import PoolClosed, PoolTimeout
from typing_extensions import override

from twinstore.attempts import SharedAttempt
from twinstore.errors import ConfigurationError, Outcome, TwinstoreError, UnavailableError
from twinstore.forks import ForkSafeLock, Renewable, keep, renew_in_child
from twinstore.servicelog import note_back, note_connected
from twinstore_postgres.connecting import (
    Connection,
    ConnectionSource,
    adopt,
    check_version,
    is_full,
)
from twinstore_postgres.deadlines import TimedConnection
from twinstore_postgres.direct import Direct
from twinstore_postgres.errors import NOWHERE, translate, translated
from twinstore_postgres.exchange import OwnConnection, UnpreparedConnection
from twinstore_postgres.host_pool import host_pool, pool_target, refusal_of, route_of
from twinstore_postgres.loans import Loan, Loans, Pool, taken_from
from twinstore_postgres.pooling import (
    POOL_NAME,
    Openings,
    PooledConnection,
    abandon,
    all_in_use,
    keep_messages,
    pool_of_the_parent,
    serves,
    silence_of,
)
from twinstore_postgres.roles import RoleGuard
from twinstore_postgres.settings import DRIVER
from twinstore_postgres.steady_pool import SteadyPool
from twinstore_postgres.targets import target_of
from twinstore_postgres.transports import OWN, transport_of

if TYPE_CHECKING:
    from collections.abc import Callable

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

    # What the pool makes, also behind a transaction pooler, and after how many executions psycopg prepares a
    # statement on it.
    _kind: type[TimedConnection] = OwnConnection
    _unprepared_kind: type[TimedConnection] = UnpreparedConnection
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
        self._guard = RoleGuard(pooled=self.pooled)
        # A source is only read, and a role that no policy binds reads all of it.
        self._safe = settings.allow_unsafe_role or read_only
        self._version = 0
        self._closed = False
        self._opening: SharedAttempt[Pool] = SharedAttempt()
        self._openings = Openings()
        self._asking: SharedAttempt[None] = SharedAttempt()
        self._loans = Loans()
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
        pool, self._pool = self._pool, None
        keep(self._loans)
        self._loans = Loans()
        self._openings = Openings()
        if pool is not None and not self._host_owned:
            abandon(pool)

    def close(self) -> None:
        """Close the pool unless it belongs to the host; a second call does nothing."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and not self._host_owned:
            pool.close(CLOSE_SECONDS)

    def _open(self, seconds: float | None = None) -> Pool:
        # Nearly every call ends here, without a lock.
        pool = self._ready_pool()
        if pool is not None:
            return pool
        try:
            return self._opening.run(lambda: self._ready_pool() or self._checked_pool(), seconds)
        except TimeoutError:
            raise silence_of(self.target.place, seconds or 0.0) from None

    def _ready_pool(self) -> Pool | None:
        """Return the pool, unless server or role must be checked before its next use."""
        return self._pool if self._version and not self._guard.schemas else None

    def _checked_pool(self) -> Pool:
        """Return the pool after a look at server and role; the first time it is opened after that."""
        self._refuse_closed()
        pool = self._pool
        if pool is None and self._host_owned:
            raise pool_of_the_parent()
        if pool is None or self._host_owned:
            with self.target.connect() as connection, translated(outcome=Outcome.NOT_APPLIED):
                self.target.check_options(connection)
                self._check(connection)
        else:
            # Not on a connection beside the pool, which would make PoolMax no limit.
            loan = self._take(pool, self._seconds)
            try:
                with translated(outcome=Outcome.NOT_APPLIED):
                    self._check(loan.connection)
                if self._guard.unsafe and self._transport is OWN:
                    loan.connection.close()  # it keeps what it began with
            finally:
                loan.give_back()
        with self._lock:
            self._refuse_closed()
            if self._pool is None:
                self._pool = self._new_pool(self._settings.pool_max)
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

    def _new_pool(self, most: int) -> Pool:
        keep_messages()
        name = f"{POOL_NAME}-{next(self._loans.numbers)}"
        pool = SteadyPool(
            self.target.conninfo.get_secret_value(),
            connection_class=self._unprepared_kind if self.pooled else self._kind,
            kwargs={
                "autocommit": True,
                "prepare_threshold": None if self.pooled else self._threshold,
                "limit": self.target.limit,
                "noted": self._openings.noted,
            },
            min_size=min(self._settings.pool_min, most),
            max_size=most,
            max_lifetime=self._settings.pool_max_lifetime_ms / 1000,
            open=False,
            configure=self._loans.counted(name, self._configure),
            reset=self._cleaner,
            reconnect_timeout=RECONNECT_SECONDS,
            name=name,
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

    @property
    def _seconds(self) -> float:
        """How long a call waits for a connection of the pool."""
        return self._settings.pool_timeout_ms / 1000

    def take(self, seconds: float | None = None) -> Loan:
        """Take a connection.

        Args:
            seconds: how long to wait for it, the first look at the server included.
        """
        # Not in _open: who asks for the version may be about to migrate, and beside the pool all is seen.
        if seconds is None:
            pool = self._open()
            self._guard.refuse()
            return self._take(pool, self._seconds)
        begun = monotonic()
        pool = self._open(seconds)
        self._guard.refuse()
        return self._take(pool, max(0.0, seconds - (monotonic() - begun)))

    def _take(self, pool: Pool, seconds: float) -> Loan:
        try:
            return self._serving(pool, min(LOOK_SECONDS, seconds))
        except PoolTimeout:
            return self._wait(pool, seconds)
        except PoolClosed as error:
            return self._take(self._successor(pool, error), seconds)

    def _serving(self, pool: Pool, seconds: float) -> Loan:
        """Take a connection that the server has not closed."""
        self._loans.take_back()
        if pool.max_size < self._settings.pool_max and not self._host_owned:
            self._widen(pool)
        while True:
            loan = Loan(self._loans, pool, taken_from(pool, seconds))
            # A pool of the host checks as the host wants.
            if self._host_owned or serves(loan.connection):
                return loan
            loan.connection.close()
            loan.give_back()

    def _wait(self, pool: Pool, seconds: float) -> Loan:
        """Go on to wait for a connection, as long as there is hope."""
        begun, missed = monotonic() - min(LOOK_SECONDS, seconds), False
        while True:
            reason, full = self._reason(begun, seconds)
            left = begun + seconds - monotonic()
            # A server without free slots serves those who have one, and they give it back.
            if reason is not None and (left <= 0 or not self._loans or not full):
                raise reason
            if left <= 0:
                raise self._none_free(pool, seconds)
            missing = self._is_missing(pool)
            if missing and missed:  # not only on its way
                pool = self._replaced(pool)
            missed = missing
            # Whoever asks again stands at the end of the queue: only where the answer may be another one.
            final = self._host_owned or len(self._loans) >= pool.max_size
            try:
                return self._serving(pool, left if final else min(left, LOOK_SECONDS))
            except PoolTimeout:
                continue
            except PoolClosed as error:
                pool = self._successor(pool, error)

    def _is_missing(self, pool: Pool) -> bool:
        """Whether a pool counts a connection that is neither there nor lent nor being opened."""
        if self._host_owned or self._openings.under_way:
            return False
        return self._loans.missing_from(pool) > 0

    def _replaced(self, pool: Pool) -> Pool:
        """Return a new pool in the place of one that has lost connections, or the one that took its place."""
        with self._lock:
            self._refuse_closed()
            if self._pool is pool:
                log.warning("Connections of the pool got lost, which is replaced by a new one.")
                # Those that are lent go on, and make room when they come back; see _widen.
                self._pool = self._new_pool(max(1, self._settings.pool_max - self._loans.in_use()))
                # Aside: whoever was interrupted may have left a lock of the pool behind for ever.
                Thread(target=pool.close, args=(CLOSE_SECONDS,), daemon=True).start()
            return self._pool or pool

    def _widen(self, pool: Pool) -> None:
        """Let a pool grow by what was lent by the one before it and has come back."""
        with self._lock:
            most = self._settings.pool_max - self._loans.open_beside(pool)
            if most > pool.max_size:
                pool.resize(min(self._settings.pool_min, most), most)

    def _successor(self, pool: Pool, error: PoolClosed) -> Pool:
        """Return the pool that took the place of a closed one."""
        successor = self._pool
        if successor is None or successor is pool:
            self._refuse_closed()
            raise translate(error, NOWHERE, Outcome.NOT_APPLIED) from error
        return successor

    def _reason(self, begun: float, seconds: float) -> tuple[TwinstoreError | None, bool]:
        """Return why the pool has opened no connection since an instant, and whether the server is full."""
        if not self._host_owned:
            failure = self._openings.failure_since(begun)
            if failure is None:
                return None, False
            reason = self.target.explain(failure)
            reason.__cause__ = failure  # what a host looks at to learn more than the message says
            return reason, is_full(failure)
        # The pool of the host does not tell. One connection beside it at a time, for all who ask.
        return refusal_of(self.target, self._asking, begun + seconds - monotonic())

    def _none_free(self, pool: Pool, seconds: float) -> UnavailableError:
        if not self._host_owned and self._loans.open_of(pool) < pool.max_size:
            return silence_of(self.target.place, seconds)
        return all_in_use(pool.max_size, seconds)
