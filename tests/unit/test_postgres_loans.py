"""What comes out of a wait for a connection that the handler of a signal has interrupted."""

from __future__ import annotations

import gc
from typing import Any, cast

import pytest
from psycopg_pool.pool import WaitingClient

from twinstore_postgres.loans import Loans, taken_from


class GivenUpError(Exception):
    """What a handler raises."""


class Interrupted:
    """A condition whose wait is interrupted before it has its lock again."""

    def __enter__(self) -> None:
        """Take the lock."""

    def __exit__(self, *raised: object) -> None:
        """Find that there is none to give back."""
        raise RuntimeError("cannot release un-acquired lock")

    def wait(self, timeout: float) -> bool:
        """Be interrupted."""
        del timeout
        raise GivenUpError


class WaitingPool:
    """A pool whose only caller waits."""

    def getconn(self, timeout: float) -> object:
        """Wait as a caller of the real pool does."""
        waiting: Any = WaitingClient()
        waiting._cond = Interrupted()  # noqa: SLF001  # there is no moment to hit from outside
        return waiting.wait(timeout)


def test_what_a_handler_raises_in_a_wait_comes_out_of_it() -> None:
    with pytest.raises(GivenUpError):
        taken_from(cast("Any", WaitingPool()), 1.0)


class Opened:
    """A connection that nothing else than itself may refer to."""

    closed = False
    itself: Opened | None = None


def test_a_connection_may_be_collected_while_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # A collection takes longer in a large process.
    monkeypatch.setattr("twinstore_postgres.loans.ON_ITS_WAY_SECONDS", 1000.0)
    loans = Loans()
    count: Any = loans.counted("pool", lambda _: None)
    # So many that the collector comes while they are looked at, whatever the interpreter has at hand.
    held = [Opened() for _ in range(6000)]
    for connection in held:
        count(connection)
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(gc.get_count()[0] + 4000)
    try:
        count(connection := Opened())
        connection.itself = connection
        del connection
        assert loans.in_use() >= len(held)
    finally:
        gc.set_threshold(*before)
