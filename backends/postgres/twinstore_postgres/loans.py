"""What the pool has lent, and what got lost because the handler of a signal raised.

A handler may raise between any two steps of this library and of the pool: after a connection was given away
and before anybody had it, or on its way back. No order of steps excludes that. So a connection is lent for as
long as somebody holds its loan, one that is dropped goes back, and what nobody has is noticed by counting.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import ref

from psycopg_pool import ConnectionPool
from psycopg_pool.pool import WaitingClient

from twinstore.forks import OwnProcess
from twinstore_postgres.connecting import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Loan", "Loans", "Pool", "taken_from"]

log = logging.getLogger("twinstore.postgres")

Pool = ConnectionPool[Connection]

# Longer than a thread of a busy program waits for the interpreter, with a connection already given to it.
ON_ITS_WAY_SECONDS: Final = 2.0
NOBODY: Final = "A connection was dropped by whoever had it, and goes back to the pool."


class Loan:
    """A connection of a pool in the hands of one caller."""

    __slots__ = ("__weakref__", "_is_returning", "_loans", "_process", "connection", "pool")

    def __init__(self, loans: Loans, pool: Pool, connection: Connection) -> None:
        """Take the connection, where it belongs, and what counts it."""
        self._is_returning = False
        self._process = OwnProcess()
        self._loans = loans
        self.pool = pool
        self.connection = connection
        loans.add(self)

    @property
    def forked(self) -> bool:
        """Whether it is the parent's."""
        return self._process.forked

    def give_back(self) -> None:
        """Give the connection back to its pool; called once."""
        # First: whoever cannot tell whether it went back must not give it back again, when it may be lent
        # to somebody else.
        self._is_returning = True
        self._loans.discard(self)
        self.pool.putconn(self.connection)

    def __del__(self) -> None:
        """Leave the connection to the next caller where nobody gave it back."""
        # Not to the pool: a finaliser may run in the middle of any step, also of one of the pool.
        if not self._is_returning and not self._process.forked:
            self._loans.discard(self)
            self._loans.leave(self.pool, self.connection)


class Made:
    """A connection that a pool has opened, and when it was lent or given back the last time."""

    __slots__ = ("_connection", "pool", "touched")

    def __init__(self, connection: ref[Connection], pool: str) -> None:
        """Take it, and the name of its pool."""
        self._connection = connection
        self.pool = pool
        self.touched = monotonic()

    @property
    def is_open(self) -> bool:
        """Whether it is there and open."""
        connection = self._connection()
        return connection is not None and not connection.closed


class Loans:
    """The connections that are lent, and all that are open.

    Attributes:
        numbers: one for the name of each pool, which tells whose a connection is.
    """

    def __init__(self) -> None:
        """Start without any."""
        # Weak: what nobody holds is not lent. By number, because a set of them cannot be copied at once.
        self._open: dict[int, ref[Loan]] = {}
        self._left: deque[tuple[Pool, Connection]] = deque()
        self.numbers = count()
        self._made: dict[int, Made] = {}

    def __len__(self) -> int:
        """Return how many are lent."""
        return len(self._open)

    def add(self, loan: Loan) -> None:
        """Count a loan as long as somebody holds it."""
        self._open[id(loan)] = ref(loan)
        self._touch(loan.connection)

    def discard(self, loan: Loan) -> None:
        """Count a loan no longer."""
        self._open.pop(id(loan), None)
        self._touch(loan.connection)

    def _touch(self, connection: Connection) -> None:
        made = self._made.get(id(connection))
        if made is not None:
            made.touched = monotonic()

    def counted(self, pool: str, configure: Callable[[Connection], None]) -> Callable[[Connection], None]:
        """Return what sets up the connections that a pool opens, and has them counted.

        Each as long as anybody has it: the pool, who waits for it, or a loan.
        """

        def made(connection: Connection) -> None:
            number = id(connection)
            self._made[number] = Made(ref(connection, lambda _: self._made.pop(number, None)), pool)
            configure(connection)

        return made

    def open_of(self, pool: Pool) -> int:
        """Return how many connections of a pool somebody has, who waits for the interpreter included."""
        return int(pool.get_stats()["pool_available"]) + self._at_hand().count(pool.name)

    def in_use(self) -> int:
        """Return how many connections of all pools are lent, or on their way."""
        return len(self._at_hand())

    def open_beside(self, pool: Pool) -> int:
        """Return how many connections of pools before this one are still in use."""
        return sum(name != pool.name for name in self._at_hand())

    def _at_hand(self) -> list[str]:
        """Return the pools of the connections that are lent, or were a moment ago."""
        lent = {id(loan.connection) for weak in list(self._open.values()) if (loan := weak()) is not None}
        since = monotonic() - ON_ITS_WAY_SECONDS
        # A copy, which is made at once: while a list of pairs is made the collector may take some away.
        return [
            made.pool
            for number, made in self._made.copy().items()
            if (number in lent or made.touched > since) and made.is_open
        ]

    def leave(self, pool: Pool, connection: Connection) -> None:
        """Leave a connection that was not given back to whoever takes the next one."""
        self._left.append((pool, connection))

    def take_back(self) -> None:
        """Give back what was left; the pool rolls back what is open on it, and closes what is in use."""
        while self._left:
            try:
                pool, connection = self._left.popleft()
            except IndexError:  # another thread was faster
                return
            log.debug(NOBODY)
            pool.putconn(connection)

    def missing_from(self, pool: Pool) -> int:
        """Return how many connections a pool counts that nobody has.

        Those that it is about to open are among them. Not those that are on their way, from the pool to a
        thread that waits for the interpreter, or back: in a busy program there are always some.
        """
        return int(pool.get_stats()["pool_size"]) - self.open_of(pool)


def taken_from(pool: Pool, seconds: float) -> Connection:
    """Return a connection of a pool, or raise what the handler of a signal raised while it was waited for."""
    try:
        return pool.getconn(timeout=seconds)
    except RuntimeError as error:
        # A wait that was interrupted has no lock to give back, and says that instead of the reason.
        reason = interruption_of(error)
        if reason is None:
            raise
        raise reason from None


def interruption_of(error: RuntimeError) -> BaseException | None:
    """Return what the handler of a signal raised in a wait that ended with another error."""
    if error.__context__ is not None:
        return error.__context__
    # Whoever waits keeps it to raise it later, so that no exception refers to it.
    trace = error.__traceback__
    while trace is not None:
        waiting = trace.tb_frame.f_locals.get("self")
        if isinstance(waiting, WaitingClient):
            return waiting.error
        trace = trace.tb_next
    return None
