"""What comes out of a wait for a connection that the handler of a signal has interrupted."""

from __future__ import annotations

from typing import Any, cast

import pytest
from psycopg_pool.pool import WaitingClient

from twinstore_postgres.loans import taken_from


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
