"""Open connections that no one uses: how long they are kept, and whether the server still serves them.

Not a psycopg_pool. It takes a lock that is not re-entrant, so the garbage collector could not give a
connection back. It connects in its own threads, which do not report to the caller why that failed.
"""

from __future__ import annotations

import select
from collections import deque
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Final

import psycopg
from typing_extensions import override

from twinstore.runtime.forks import ForkSafeLock, Renewable, renew_in_child, retain

if TYPE_CHECKING:
    from twinstore_postgres.connection.deadlines import Connection

KEPT_SECONDS: Final = 60.0
# After that the network may have dropped a connection silently.
TRUSTED_SECONDS: Final = 1.0


class IdleConnections(Renewable):
    """Connections without an owner. The one used last is taken first, and each is closed after a minute."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        # With the instant since when each is unused, by ``monotonic``; the one used last is on the right.
        self._idle: deque[tuple[float, Connection]] = deque()
        self._timer: Timer | None = None
        renew_in_child(self)

    def take(self) -> Connection | None:
        """Return a connection that the server still serves; ``None`` if there is none."""
        with self._lock:
            if not self._idle:
                return None
            since, connection = self._idle.pop()
        if is_alive(connection, ask=monotonic() - since > TRUSTED_SECONDS):
            return connection
        connection.close()
        self.close()  # the reason, such as a restart, has most likely ended the others too
        return None

    def give(self, connection: Connection) -> None:
        """Keep a connection; nothing of its last owner may remain on the server."""
        with self._lock:
            self._idle.append((monotonic(), connection))
            self._start_timer()

    def close(self) -> None:
        """Close all of them; others can still be given."""
        with self._lock:
            idle, self._idle = self._idle, deque()
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for _, connection in idle:
            connection.close()

    @override
    def renew(self) -> None:
        """Start without a connection in a forked child; those that are idle are the parent's."""
        retain(self._idle)
        self._idle, self._timer = deque(), None

    def _start_timer(self) -> None:
        if self._timer is not None or not self._idle:
            return
        timer = Timer(self._idle[0][0] + KEPT_SECONDS - monotonic(), self._close_unused)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # this process ends, or can have no more threads
            self.close()
        else:
            self._timer = timer

    def _close_unused(self) -> None:
        with self._lock:
            end = monotonic() - KEPT_SECONDS
            while self._idle and self._idle[0][0] <= end:
                self._idle.popleft()[1].close()
            self._timer = None
            self._start_timer()


def is_alive(connection: Connection, *, ask: bool = False) -> bool:
    """Whether the server has not closed a connection; without a round trip, unless ``ask`` wants one.

    A healthy idle connection has nothing to read. Anything readable is a shutdown message or a notice, and
    then the server is asked too.
    """
    try:
        if ask or readable(connection.fileno()):
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
