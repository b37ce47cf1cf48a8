"""How often and how long an action is repeated after it lost."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest

from twinstore.access.retry import LONGEST_PAUSE, pauses, repeat
from twinstore.errors import ConcurrencyError, DuplicateError, ValidationError


class FakeTime:
    """A clock that moves by what is slept, and by what each attempt takes."""

    def __init__(self, takes: float = 0.0) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.attempts = 0
        self._takes = takes

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def lose(self) -> None:
        self.attempts += 1
        self.now += self._takes
        raise ConcurrencyError


def test_repetitions_end_by_time_whatever_their_number() -> None:
    time = FakeTime(takes=0.01)
    with pytest.raises(ConcurrencyError):
        repeat(time.lose, seconds=10, sleep=time.sleep, clock=time.clock)
    assert 10 <= time.now - 100 < 10 + LONGEST_PAUSE + 0.03
    assert time.attempts > 30


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_the_number_caps_the_time(attempts: int) -> None:
    time = FakeTime()
    with pytest.raises(ConcurrencyError):
        repeat(time.lose, attempts=attempts, seconds=10, sleep=time.sleep, clock=time.clock)
    assert (time.attempts, len(time.slept)) == (attempts, attempts - 1)


def test_an_attempt_that_takes_longer_than_the_time_is_repeated_once() -> None:
    time = FakeTime(takes=60)
    with pytest.raises(ConcurrencyError):
        repeat(time.lose, seconds=10, sleep=time.sleep, clock=time.clock)
    assert time.attempts == 2


def test_pauses_grow_to_a_limit_with_jitter() -> None:
    found = list(pauses(40))
    assert all(second < first * 4 for first, second in pairwise(found))
    assert 0.0025 <= found[0] <= 0.005
    assert all(LONGEST_PAUSE / 2 <= pause <= LONGEST_PAUSE for pause in found[7:])
    assert len(set(found[7:])) > 1


def test_a_lost_race_is_logged_for_whoever_looks_and_without_its_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = FakeTime()

    def lose_once() -> None:
        time.attempts += 1
        if time.attempts == 1:
            raise ConcurrencyError("run 'a-key' was changed", key="a-key", driver="Mongo")

    with caplog.at_level(logging.DEBUG, "twinstore.service"):
        repeat(lose_once, sleep=time.sleep, clock=time.clock)
    (record,) = caplog.records
    assert record.getMessage().startswith("lost against another writer on Mongo; repeated in ")
    assert "a-key" not in record.getMessage()


def test_nothing_else_is_repeated() -> None:
    time = FakeTime()

    def refuse() -> None:
        time.attempts += 1
        raise DuplicateError

    with pytest.raises(DuplicateError):
        repeat(refuse, seconds=10, sleep=time.sleep, clock=time.clock)
    assert time.attempts == 1


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempt_at_all_is_refused_before_the_first_one(attempts: int) -> None:
    time = FakeTime()
    with pytest.raises(ValidationError, match="attempts"):
        repeat(time.lose, attempts=attempts, sleep=time.sleep)
    assert time.attempts == 0
