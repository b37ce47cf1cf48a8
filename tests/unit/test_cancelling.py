"""The port through which a driver cancels on its server what its caller has given up."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from twinstore.access.retry import repeat
from twinstore.errors import ConcurrencyError, Outcome, TimeoutExceededError
from twinstore.runtime.cancellation import RUNNING, RunningCall, cancellable, given_up, running_call


def test_where_nobody_could_give_up_a_block_costs_nothing_and_cancels_nothing() -> None:
    assert running_call() is None
    assert not given_up()
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


def test_a_call_that_was_given_up_sends_nothing_more_and_is_not_repeated() -> None:
    call, attempts = RunningCall(), list[int]()
    token = RUNNING.set(call)

    def lose() -> None:
        attempts.append(1)
        call.given_up = True
        raise ConcurrencyError

    try:
        with pytest.raises(ConcurrencyError):
            repeat(lose, sleep=lambda _: pytest.fail("it was repeated"))
        with (
            pytest.raises(TimeoutExceededError, match="given this call up") as refused,
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
