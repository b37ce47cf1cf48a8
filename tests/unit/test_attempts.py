"""An attempt that several callers share, and a storage that is asked for a quick answer."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import Event, Semaphore
from typing import Final, cast

import pytest

from twinstore import aio, open_storage
from twinstore.access.unit_state import ReadyWithin
from twinstore.errors import (
    ConfigurationError,
    Outcome,
    TimeoutExceededError,
    UnavailableError,
    ValidationError,
)
from twinstore.runtime import shared_attempt
from twinstore.runtime.shared_attempt import SharedAttempt
from twinstore_memory.backend import MemoryBackend

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

    monkeypatch.setattr(shared_attempt, "monotonic", monotonic)
    return found


def await_all(begun: Semaphore, number: int) -> None:
    """Wait until so many callers have begun."""
    for _ in range(number):
        assert begun.acquire(timeout=PATIENCE_SECONDS)


def test_who_waits_for_an_attempt_that_fails_gets_an_error_of_its_own(begun: Semaphore) -> None:
    attempt: SharedAttempt[str] = SharedAttempt()
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


def test_whoever_waits_no_longer_leaves_the_attempt_to_others() -> None:
    attempt: SharedAttempt[str] = SharedAttempt()
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


def test_a_mistake_of_the_program_is_nobody_elses(begun: Semaphore) -> None:
    attempt: SharedAttempt[str] = SharedAttempt()
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
    attempt: SharedAttempt[str] = SharedAttempt()
    assert attempt.run(asked_by.get, PATIENCE_SECONDS) == "request-7"


class Slow:
    """A driver that is ready only when it is told so, which it cannot say in time."""

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


def test_an_attempt_for_which_no_thread_starts_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt: SharedAttempt[str] = SharedAttempt()

    def full(self: object) -> None:
        del self
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError, match="new thread"):
            attempt.run(lambda: "nobody's", PATIENCE_SECONDS)
    assert attempt.run(lambda: "good", PATIENCE_SECONDS) == "good"


def test_a_handler_that_calls_meanwhile_does_not_wait_for_its_own_thread() -> None:
    attempt: SharedAttempt[str] = SharedAttempt()
    assert attempt.run(lambda: attempt.run(lambda: "inside")) == "inside"
