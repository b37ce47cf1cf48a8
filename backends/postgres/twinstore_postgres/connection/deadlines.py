"""Connections that do not wait for ever for a server that has fallen silent.

The server enforces the limit of a statement. A server that is frozen, or out of reach behind a broken
network, enforces none. So every round trip has a limit here too. It is a little longer, so that a live server
reports first.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from typing_extensions import override

from twinstore_postgres.mapping.codec import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from psycopg.abc import PQGen


__all__ = [
    "Connection",
    "LongRunningConnection",
    "NoAnswer",
    "TimedConnection",
    "round_trip_seconds",
    "until",
]


RV = TypeVar("RV")

# What a busy network and a busy machine may add to the limit of the server.
MARGIN_SECONDS: Final = 5.0


class NoAnswer(psycopg.OperationalError):
    """The server has not answered in time, and the connection was closed."""


def round_trip_seconds(statement_timeout_ms: int) -> float | None:
    """Return how long a round trip may take, ``None`` where statements may take for ever."""
    return statement_timeout_ms / 1000 + MARGIN_SECONDS if statement_timeout_ms else None


class TimedConnection(psycopg.Connection[Values]):
    """A connection whose every round trip has a limit.

    Attributes:
        limit: the seconds of a round trip; ``None``: no limit.
        end: when all round trips must have ended, by ``time.monotonic()``.
        wait_was_called: psycopg has called :meth:`wait`, as it is not documented to.
    """

    wait_was_called: bool = False
    limit: float | None = None
    end: float | None = None

    @override
    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """Wait for an answer, at most until the limit.

        A caller that passes more than what to wait for sets its own limits, such as a host that awaits
        notifications.

        Raises:
            NoAnswer: none came.
        """
        if args or options:
            return super().wait(gen, *args, **options)
        self.wait_was_called = True
        seconds = self.limit if self.end is None else self._left()
        if seconds is None:
            return super().wait(gen)
        try:
            return super().wait(self._limited(gen, seconds))
        except NoAnswer:
            # The connection may still receive a late reply.
            self.close()
            raise

    def _left(self) -> float:
        """Return the seconds of the next round trip, where all must have ended at an instant."""
        left = max(0.0, (self.end or 0.0) - monotonic())
        return left if self.limit is None else min(self.limit, left)

    def _limited(self, gen: PQGen[RV], seconds: float) -> PQGen[RV]:
        return limited(gen, seconds)


class LongRunningConnection(TimedConnection):
    """A connection for statements that may take as long as they take.

    Whenever nothing has come within the limit, the server is asked on another connection whether it works on
    the statement.

    Attributes:
        is_executing: asks it, given the number of the process that serves this connection.
    """

    is_executing: Callable[[int], bool] | None = None

    @cached_property
    def stages(self) -> set[object]:
        """The tables for which a temporary one is made on this connection."""
        return set()

    @override
    def _limited(self, gen: PQGen[RV], seconds: float) -> PQGen[RV]:
        end = monotonic() + seconds
        resume = gen.send
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                wanted = resume(ready)
                if ready:
                    end = monotonic() + seconds
                elif monotonic() >= end:
                    if self.is_executing is None or not self.is_executing(self.info.backend_pid):
                        # The answer may have come meanwhile.
                        ready = yield wanted
                        if not ready:
                            raise no_response_error(seconds)
                        wanted = resume(ready)
                    end = monotonic() + seconds
        except StopIteration as stop:
            answer: RV = stop.value
            return answer


@contextmanager
def until(connection: psycopg.Connection[Values], end: float | None) -> Generator[None]:
    """Have all round trips of the block end until an instant of ``time.monotonic()``.

    A connection of the application keeps its own limits.
    """
    if not isinstance(connection, TimedConnection):
        yield
        return
    connection.end = end
    try:
        yield
    finally:
        connection.end = None


def limited(gen: PQGen[RV], seconds: float) -> PQGen[RV]:
    """Do what a generator of psycopg does, until nothing comes and the time is over.

    It is resumed ten times a second even when nothing has come; only then does it read the clock.
    """
    end = monotonic() + seconds
    resume = gen.send
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            wanted = resume(ready)
            if not ready and monotonic() >= end:
                raise no_response_error(seconds)
    except StopIteration as stop:
        answer: RV = stop.value
        return answer


def no_response_error(seconds: float) -> NoAnswer:
    """Return the error of a server that is silent."""
    return NoAnswer(f"no answer within {seconds:g} s")


Connection = psycopg.Connection[Values]
