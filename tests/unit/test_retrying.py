"""How often and how long an action is repeated after it lost, and how attempts are shared and cancelled.

Threads that lost against one row take turns. Callers of one storage share an attempt to reach its server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from itertools import pairwise
from threading import Event, Semaphore, Thread
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore import aio, open_storage
from twinstore.access.retry import MAX_BACKOFF, RETRY_QUEUES, RetryQueues, Ticket, backoff_delays, retry
from twinstore.access.unit_state import ReadyWithin
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DuplicateError,
    Outcome,
    TimeoutExceededError,
    UnavailableError,
    ValidationError,
)
from twinstore.runtime import single_flight
from twinstore.runtime.cancellation import RUNNING, RunningCall, cancellable, cancelled, running_call
from twinstore.runtime.single_flight import SingleFlight
from twinstore_memory.backend import MemoryBackend

if TYPE_CHECKING:
    from collections.abc import Callable

ROW: Final = ("Mongo", "scheduler", "runs", "run")


def lost(key: str = "run") -> ConcurrencyError:
    """Return the error of a writer that lost a race for a row."""
    return ConcurrencyError("lost", driver="Mongo", module="scheduler", entity="runs", key=key)


def test_the_next_one_goes_on_when_the_first_one_is_done() -> None:
    turns, has_turn, may_end, order = RetryQueues(max_wait=60), Event(), Event(), list[str]()

    def first() -> None:
        with turns.retry_block():
            assert not turns.wait(ROW, 10)
            has_turn.set()
            assert may_end.wait(60)
            order.append("first")

    def second() -> None:
        with turns.retry_block():
            assert turns.wait(ROW, 60)
            order.append("second")

    threads = [Thread(target=first), Thread(target=second)]
    threads[0].start()
    assert has_turn.wait(60)
    threads[1].start()
    while len(turns._queues[ROW]) < 2:  # noqa: SLF001  # nothing reports who joins the line
        pass
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]


def test_no_call_waits_for_another_row_or_longer_than_it_is_worth() -> None:
    turns = RetryQueues(max_wait=0.05)
    has_turn, may_end = Event(), Event()

    def holder() -> None:
        with turns.retry_block():
            turns.wait(ROW, 10)
            has_turn.set()
            assert may_end.wait(100)

    thread = Thread(target=holder)
    thread.start()
    assert has_turn.wait(60)
    with turns.retry_block():
        assert not turns.wait(("another", "row"), 10)
    with turns.retry_block():
        begun = time.monotonic()
        assert not turns.wait(ROW, 100)  # held up: it goes on without
        assert time.monotonic() - begun < 60
    may_end.set()
    thread.join(60)
    with turns.retry_block():
        assert not turns.wait(ROW, 10)  # the line is empty again
    assert turns._queues == {}  # noqa: SLF001  # no part of it remains


def test_a_nested_step_keeps_the_queue_slot_of_its_thread_until_the_outer_one_ends() -> None:
    turns = RetryQueues()
    with turns.retry_block():
        with turns.retry_block():
            assert not turns.wait(ROW, 10)
            assert not turns.wait(("another", "row"), 10)
        assert list(turns._queues) == [ROW]  # noqa: SLF001  # the first one is kept, and no second one taken
    assert turns._queues == {}  # noqa: SLF001


def test_a_queue_slot_that_was_granted_twice_is_waited_for_no_longer() -> None:
    place = Ticket(ROW)
    assert not place.wait(-1)
    place.grant()
    place.grant()
    assert place.wait(10)
    place.grant()  # no writer waits any more


@pytest.mark.parametrize("error", [ValueError("of the action"), lost()])
def test_a_queue_slot_ends_with_whatever_ends_the_repetition(error: Exception) -> None:
    def fail() -> None:
        raise lost() if not slept else error

    slept: list[float] = []
    with pytest.raises(type(error)):
        retry(fail, attempts=3, sleep=slept.append)
    # No other writer has to wait for it.
    assert ROW not in RETRY_QUEUES._queues  # noqa: SLF001
    other: list[bool] = []
    thread = Thread(target=lambda: other.append(retry(lose_once(), sleep=lambda _: None)))
    thread.start()
    thread.join(60)
    assert other == [True]
    assert ROW not in RETRY_QUEUES._queues  # noqa: SLF001


def lose_once() -> Callable[[], bool]:
    """Return an action that loses at its first call."""
    calls: list[int] = []

    def action() -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise lost()
        return True

    return action


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
        retry(time.lose, seconds=10, sleep=time.sleep, clock=time.clock)
    assert 10 <= time.now - 100 < 10 + MAX_BACKOFF + 0.03
    assert time.attempts > 30


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_the_number_caps_the_time(attempts: int) -> None:
    time = FakeTime()
    with pytest.raises(ConcurrencyError):
        retry(time.lose, attempts=attempts, seconds=10, sleep=time.sleep, clock=time.clock)
    assert (time.attempts, len(time.slept)) == (attempts, attempts - 1)


def test_an_attempt_that_takes_longer_than_the_time_is_repeated_once() -> None:
    time = FakeTime(takes=60)
    with pytest.raises(ConcurrencyError):
        retry(time.lose, seconds=10, sleep=time.sleep, clock=time.clock)
    assert time.attempts == 2


def test_pauses_grow_to_a_limit_with_jitter() -> None:
    found = list(backoff_delays(40))
    assert all(second < first * 4 for first, second in pairwise(found))
    assert 0.0025 <= found[0] <= 0.005
    assert all(MAX_BACKOFF / 2 <= pause <= MAX_BACKOFF for pause in found[7:])
    assert len(set(found[7:])) > 1


def test_a_lost_race_is_logged_without_its_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = FakeTime()

    def lose_once() -> None:
        time.attempts += 1
        if time.attempts == 1:
            raise ConcurrencyError("run 'a-key' was changed", key="a-key", driver="Mongo")

    with caplog.at_level(logging.DEBUG, "twinstore.service"):
        retry(lose_once, sleep=time.sleep, clock=time.clock)
    (record,) = caplog.records
    assert record.getMessage().startswith("lost against another writer on Mongo; repeated in ")
    assert "a-key" not in record.getMessage()


def test_nothing_else_is_repeated() -> None:
    time = FakeTime()

    def refuse() -> None:
        time.attempts += 1
        raise DuplicateError

    with pytest.raises(DuplicateError):
        retry(refuse, seconds=10, sleep=time.sleep, clock=time.clock)
    assert time.attempts == 1


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempt_at_all_is_refused_before_the_first_one(attempts: int) -> None:
    time = FakeTime()
    with pytest.raises(ValidationError, match="attempts"):
        retry(time.lose, attempts=attempts, sleep=time.sleep)
    assert time.attempts == 0


CALLERS: Final = 8
PATIENCE_SECONDS: Final = 30.0
MEMORY: Final = {"Persistence": {"Scheduler": "Memory"}}
asked_by: ContextVar[str] = ContextVar("asked_by", default="nobody")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Semaphore:
    """Return what is released by each caller who has begun to wait, or to make an attempt."""
    found = Semaphore(0)

    def monotonic() -> float:
        now = time.monotonic()
        found.release()
        return now

    monkeypatch.setattr(single_flight, "monotonic", monotonic)
    return found


def await_all(begun: Semaphore, number: int) -> None:
    """Wait until this many callers have begun."""
    for _ in range(number):
        assert begun.acquire(timeout=PATIENCE_SECONDS)


def test_who_waits_for_an_attempt_that_fails_gets_an_error_of_its_own(begun: Semaphore) -> None:
    attempt: SingleFlight[str] = SingleFlight()
    go_on, made = Event(), list[int]()

    def action() -> str:
        made.append(threading.get_ident())
        go_on.wait(PATIENCE_SECONDS)
        raise UnavailableError("silent", outcome=Outcome.NOT_APPLIED)

    with ThreadPoolExecutor(CALLERS) as pool:
        calls = [pool.submit(attempt.run, action) for _ in range(CALLERS)]
        await_all(begun, CALLERS)
        go_on.set()
        errors = [one.exception(PATIENCE_SECONDS) for one in calls]
    assert len(made) == 1
    assert {(type(error), str(error)) for error in errors} == {(UnavailableError, "silent")}
    assert len({id(error) for error in errors}) == CALLERS
    assert attempt.run(lambda: "good") == "good"


def test_a_caller_that_stops_waiting_leaves_the_attempt_to_others() -> None:
    attempt: SingleFlight[str] = SingleFlight()
    go_on, made = Event(), list[str]()

    def action() -> str:
        go_on.wait(PATIENCE_SECONDS)
        made.append("first")
        return "first"

    for _ in range(2):
        with pytest.raises(TimeoutError):
            attempt.run(action, 0.01)
    with ThreadPoolExecutor(2) as pool:
        later = [pool.submit(attempt.run, lambda: made[0], seconds) for seconds in (None, PATIENCE_SECONDS)]
        go_on.set()
        assert [one.result(PATIENCE_SECONDS) for one in later] == ["first", "first"]
    assert made == ["first"]


def test_a_mistake_of_the_program_is_not_shared(begun: Semaphore) -> None:
    attempt: SingleFlight[str] = SingleFlight()
    go_on = Event()

    def mistaken() -> str:
        go_on.wait(PATIENCE_SECONDS)
        raise LookupError("a mistake")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(attempt.run, mistaken)
        await_all(begun, 1)
        second = pool.submit(attempt.run, lambda: "good")
        await_all(begun, 1)
        go_on.set()
        assert isinstance(first.exception(PATIENCE_SECONDS), LookupError)
        assert second.result(PATIENCE_SECONDS) == "good"


def test_the_attempt_sees_the_context_of_its_caller() -> None:
    asked_by.set("request-7")
    attempt: SingleFlight[str] = SingleFlight()
    assert attempt.run(asked_by.get, PATIENCE_SECONDS) == "request-7"


class Slow:
    """A driver that is ready only when the test allows it, and that knows no time limit."""

    def __init__(self) -> None:
        self.go_on, self.asked = Event(), Event()
        self.threads: list[threading.Thread] = []

    def check_ready(self) -> None:
        self.threads.append(threading.current_thread())
        self.asked.set()
        self.go_on.wait(PATIENCE_SECONDS)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Let the driver in memory be such a one."""
    found = Slow()
    monkeypatch.setattr(MemoryBackend, "check_ready", lambda _: found.check_ready())
    return found


def test_a_driver_that_knows_no_limit_is_asked_on_another_thread(slow: Slow) -> None:
    assert not issubclass(MemoryBackend, ReadyWithin)
    with open_storage(MEMORY) as opened:
        begun = time.monotonic()
        for _ in range(3):
            with pytest.raises(TimeoutExceededError, match="within 50 ms") as caught:
                opened.scheduler.check_ready(timeout_ms=50)
            assert caught.value.outcome is Outcome.NOT_APPLIED
        assert time.monotonic() - begun < PATIENCE_SECONDS / 2
        assert slow.asked.wait(PATIENCE_SECONDS)
        # One for all who have asked.
        (thread,) = slow.threads
        assert thread is not threading.current_thread()
        slow.go_on.set()
        opened.scheduler.check_ready(timeout_ms=round(PATIENCE_SECONDS * 1000))


def test_a_storage_of_asyncio_answers_as_quickly(slow: Slow) -> None:
    async def ask() -> None:
        async with aio.open_storage(MEMORY) as opened:
            with pytest.raises(TimeoutExceededError):
                await opened.scheduler.check_ready(timeout_ms=50)
            slow.go_on.set()
            await opened.scheduler.check_ready(timeout_ms=round(PATIENCE_SECONDS * 1000))

    asyncio.run(ask())


@pytest.mark.parametrize("given", [-1, "soon", 1.5])
def test_a_limit_that_is_none_is_refused(given: object) -> None:
    with open_storage(MEMORY) as opened, pytest.raises(ValidationError, match="timeout_ms"):
        opened.scheduler.check_ready(timeout_ms=cast("int", given))


def test_a_closed_storage_is_refused_quickly_too() -> None:
    with open_storage(MEMORY) as opened:
        pass
    with pytest.raises(ConfigurationError, match="closed"):
        opened.scheduler.check_ready(timeout_ms=1000)


def test_an_attempt_for_which_no_thread_starts_keeps_no_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt: SingleFlight[str] = SingleFlight()

    def full(self: object) -> None:
        del self
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError, match="new thread"):
            attempt.run(lambda: "nobody's", PATIENCE_SECONDS)
    assert attempt.run(lambda: "good", PATIENCE_SECONDS) == "good"


def test_a_handler_that_calls_meanwhile_does_not_wait_for_its_own_thread() -> None:
    attempt: SingleFlight[str] = SingleFlight()
    assert attempt.run(lambda: attempt.run(lambda: "inside")) == "inside"


def test_where_nothing_can_be_cancelled_a_block_costs_nothing_and_cancels_nothing() -> None:
    assert running_call() is None
    assert not cancelled()
    with cancellable(pytest.fail) as nothing:
        assert nothing is None
    assert cancellable(pytest.fail) is cancellable(pytest.fail)


def test_a_statement_is_cancelled_while_it_lasts_and_not_after() -> None:
    call, cancelled = RunningCall(), list[str]()
    token = RUNNING.set(call)
    try:
        with cancellable(lambda: cancelled.append("outer")):
            with cancellable(lambda: cancelled.append("inner")):
                assert call.cancel()
            assert call.cancel()
        assert call.cancel()
        call.end()
        assert not call.cancel()
    finally:
        RUNNING.reset(token)
    assert cancelled == ["outer", "inner", "outer"]


def test_a_statement_does_not_end_while_a_cancellation_is_on_its_way() -> None:
    call, sent, arrived, ended = RunningCall(), Event(), Event(), Event()

    def cancel() -> None:
        sent.set()
        assert arrived.wait(60)
        assert not ended.is_set()

    call.begin(cancel)
    canceller = Thread(target=call.cancel)
    canceller.start()
    assert sent.wait(60)

    def end() -> None:
        call.end_statement()
        ended.set()

    statement = Thread(target=end)
    statement.start()
    assert not ended.wait(0.05)
    arrived.set()
    canceller.join(60)
    statement.join(60)
    assert ended.is_set()


def test_a_cancelled_call_sends_nothing_more_and_is_not_repeated() -> None:
    call, attempts = RunningCall(), list[int]()
    token = RUNNING.set(call)

    def lose() -> None:
        attempts.append(1)
        call.cancelled = True
        raise ConcurrencyError

    try:
        with pytest.raises(ConcurrencyError):
            retry(lose, sleep=lambda _: pytest.fail("it was repeated"))
        with (
            pytest.raises(TimeoutExceededError, match="cancelled this call") as refused,
            cancellable(pytest.fail),
        ):
            pytest.fail("a statement was sent")
    finally:
        RUNNING.reset(token)
    assert (len(attempts), refused.value.outcome) == (1, Outcome.NOT_APPLIED)


def test_a_cancellation_that_fails_leaves_the_call_to_its_own_limit() -> None:
    call = RunningCall()

    def fail() -> None:
        raise ConnectionError

    call.begin(fail)
    assert call.cancel()
    call.end_statement()
    call.end()
    assert not call.cancel()
