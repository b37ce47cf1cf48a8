"""Between taking a lock of our pool of PostgreSQL and the block that gives it back nothing runs in Python."""

from __future__ import annotations

import gc
import sys
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest
from psycopg_pool.pool import WaitingClient

from twinstore_postgres.steady_pool import SteadyPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

WAIT: Final = 20


@pytest.fixture
def pool() -> Iterator[SteadyPool]:
    """Return a pool that opens no connection."""
    with SteadyPool("host=127.0.0.1 port=1", min_size=0, max_size=1, open=False) as opened:
        yield opened


def in_python(action: Callable[[], object]) -> list[str]:
    """Return the names of the functions in Python that an action calls."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    # What earlier tests left may be collected at any moment, and calls functions of its own then.
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return called


def test_whoever_waits_takes_a_lock_of_the_interpreter(pool: SteadyPool) -> None:
    client: Any = WaitingClient()
    pool._waiting.append(client)  # noqa: SLF001  # what psycopg does with who has to wait

    def take() -> None:
        with client._cond:  # noqa: SLF001
            pass

    assert in_python(take) == ["take"]


def test_a_task_is_left_to_a_queue_of_the_interpreter(pool: SteadyPool) -> None:
    tasks = pool._tasks  # noqa: SLF001
    task: Any = type("Task", (), {"run": lambda _: None})()

    def leave() -> None:
        tasks.put_nowait(task)

    assert in_python(leave) == ["leave"]


def test_who_waits_is_given_the_connection_that_comes(pool: SteadyPool) -> None:
    client: Any = WaitingClient()
    pool._waiting.append(client)  # noqa: SLF001
    given: Any = object()
    threads = [Thread(target=client.set, args=(given,), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert client.wait(WAIT) is given
    for thread in threads:
        thread.join(WAIT)


def test_whoever_is_interrupted_after_the_lock_was_given_away_says_so(
    pool: SteadyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = WaitingClient()
    pool._waiting.append(client)  # noqa: SLF001
    condition = client._cond  # noqa: SLF001

    def interrupted(_: object) -> bool:
        condition.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(condition._condition, "wait", interrupted)  # noqa: SLF001
    with pytest.raises(KeyboardInterrupt):
        client.wait(WAIT)
    assert not condition.is_mine
