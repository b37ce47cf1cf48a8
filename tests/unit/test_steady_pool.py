"""The pool of our clients of MongoDB wakes as pymongo does: one of those who wait for the same."""

from __future__ import annotations

from threading import Thread
from typing import Any, Final

import pytest
from pymongo.pool_options import PoolOptions

from twinstore_mongo.steady_pool import SteadyPool

WAIT: Final = 20
NAMES: Final = ("size_cond", "_max_connecting_cond")


@pytest.mark.parametrize(("name", "other"), [NAMES, NAMES[::-1]])
def test_one_who_waits_is_woken_and_nobody_who_waits_for_something_else(name: str, other: str) -> None:
    pool = SteadyPool(("127.0.0.1", 1), PoolOptions())
    asked, unasked = getattr(pool, name), getattr(pool, other)

    def wait(condition: Any) -> None:  # noqa: ANN401  # looks like one of pymongo
        with condition:
            condition.wait(WAIT)

    threads = [Thread(target=wait, args=(one,), daemon=True) for one in (asked, asked, unasked)]
    for thread in threads:
        thread.start()
    while (waiting(asked), waiting(unasked)) != (2, 1):
        pass
    with pool.lock:
        asked.notify()
        assert (waiting(asked), waiting(unasked)) == (1, 1)
        asked.notify_all()
        unasked.notify_all()
    for thread in threads:
        thread.join(WAIT)
    assert not any(thread.is_alive() for thread in threads)


def waiting(condition: Any) -> int:  # noqa: ANN401
    """Return how many wait for a condition; of the standard library, which tells nobody."""
    return len(condition._condition._waiters)  # noqa: SLF001


def test_whoever_is_interrupted_lets_another_one_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    condition: Any = SteadyPool(("127.0.0.1", 1), PoolOptions()).size_cond
    told: list[int] = []

    def interrupted(_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(condition._condition, "wait", interrupted)  # noqa: SLF001
    monkeypatch.setattr(condition._condition, "notify", lambda: told.append(1))  # noqa: SLF001
    with condition, pytest.raises(KeyboardInterrupt):
        condition.wait(WAIT)
    assert told == [1]


def test_whoever_is_interrupted_after_the_lock_was_given_away_has_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = SteadyPool(("127.0.0.1", 1), PoolOptions())
    condition: Any = pool.size_cond

    def interrupted(_: object) -> bool:
        pool.lock.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(condition._condition, "wait", interrupted)  # noqa: SLF001
    with pytest.raises(KeyboardInterrupt), condition:
        condition.wait(WAIT)
    assert not pool.lock.is_mine  # type: ignore[attr-defined]  # of a lock of ours
