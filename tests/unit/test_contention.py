"""Turns of threads that lost against one row."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access.retry import TURNS, Place, Turns, repeat
from twinstore.errors import ConcurrencyError

if TYPE_CHECKING:
    from collections.abc import Callable

ROW: Final = ("Mongo", "scheduler", "runs", "run")


def lost(key: str = "run") -> ConcurrencyError:
    """Return the error of whoever lost against a row."""
    return ConcurrencyError("lost", driver="Mongo", module="scheduler", entity="runs", key=key)


def test_the_next_one_goes_on_when_the_first_one_is_done() -> None:
    turns, has_turn, may_end, order = Turns(longest=60), Event(), Event(), list[str]()

    def first() -> None:
        with turns.repetition():
            assert not turns.wait(ROW, 10)
            has_turn.set()
            assert may_end.wait(60)
            order.append("first")

    def second() -> None:
        with turns.repetition():
            assert turns.wait(ROW, 60)
            order.append("second")

    threads = [Thread(target=first), Thread(target=second)]
    threads[0].start()
    assert has_turn.wait(60)
    threads[1].start()
    while len(turns._lines[ROW]) < 2:  # noqa: SLF001  # nobody tells who comes into the line
        pass
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]


def test_nobody_waits_for_another_row_or_longer_than_it_is_worth() -> None:
    turns = Turns(longest=0.05)
    has_turn, may_end = Event(), Event()

    def holder() -> None:
        with turns.repetition():
            turns.wait(ROW, 10)
            has_turn.set()
            assert may_end.wait(100)

    thread = Thread(target=holder)
    thread.start()
    assert has_turn.wait(60)
    with turns.repetition():
        assert not turns.wait(("another", "row"), 10)
    with turns.repetition():
        begun = time.monotonic()
        assert not turns.wait(ROW, 100)  # held up: it goes on without
        assert time.monotonic() - begun < 60
    may_end.set()
    thread.join(60)
    with turns.repetition():
        assert not turns.wait(ROW, 10)  # the line is empty again
    assert turns._lines == {}  # noqa: SLF001  # nothing of it stays


def test_a_step_within_a_step_keeps_the_one_turn_of_its_thread_until_the_outer_one_ends() -> None:
    turns = Turns()
    with turns.repetition():
        with turns.repetition():
            assert not turns.wait(ROW, 10)
            assert not turns.wait(("another", "row"), 10)
        assert list(turns._lines) == [ROW]  # noqa: SLF001  # the first one is kept, and no second one taken
    assert turns._lines == {}  # noqa: SLF001


def test_a_place_that_was_granted_twice_is_waited_for_no_longer() -> None:
    place = Place(ROW)
    assert not place.wait(-1)
    place.grant()
    place.grant()
    assert place.wait(10)
    place.grant()  # nobody waits any more


@pytest.mark.parametrize("error", [ValueError("of the action"), lost()])
def test_a_turn_ends_with_whatever_ends_the_repetition(error: Exception) -> None:
    def fail() -> None:
        raise lost() if not slept else error

    slept: list[float] = []
    with pytest.raises(type(error)):
        repeat(fail, attempts=3, sleep=slept.append)
    # Nobody else has to wait for it.
    assert ROW not in TURNS._lines  # noqa: SLF001
    other: list[bool] = []
    thread = Thread(target=lambda: other.append(repeat(lose_once(), sleep=lambda _: None)))
    thread.start()
    thread.join(60)
    assert other == [True]
    assert ROW not in TURNS._lines  # noqa: SLF001


def lose_once() -> Callable[[], bool]:
    """Return an action that loses at its first call."""
    calls: list[int] = []

    def action() -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise lost()
        return True

    return action
