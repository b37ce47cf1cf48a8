"""Repeating an action that lost against another writer."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.errors import ConcurrencyError, ValidationError
from twinstore.runtime.cancellation import cancelled
from twinstore.runtime.forks import Renewable, renew_in_child
from twinstore.runtime.formatting import safe_repr
from twinstore.runtime.service_log import log_lost_race

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

__all__ = ["CONTENTION_SECONDS", "RETRY_QUEUES", "RetryQueues", "backoff_delays", "retry"]


T = TypeVar("T")

# Short, because most races are over as soon as the winner has committed.
INITIAL_BACKOFF: Final = 0.005
# At least forty attempts in the time there is; longer pauses would leave a row unused that is free again.
MAX_BACKOFF: Final = 0.25
# By time and not by number: how often an action loses depends on how many writers compete, and how long a
# caller may wait does not.
CONTENTION_SECONDS: Final = 10.0


def backoff_delays(
    attempts: int | None = None,
    *,
    seconds: float = CONTENTION_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[float]:
    """Return the pauses between attempts, in seconds: they double from 5 ms to 250 ms.

    With jitter, so that competing writers do not retry together. After the last pause follows the last
    attempt.

    Args:
        attempts: at most so many attempts, at least 1; ``None`` for any number.
        seconds: no pause begins later than this after the first attempt.
        clock: returns the time in seconds.

    Raises:
        ValidationError: fewer than one attempt.
    """
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise ValidationError(
            f"Argument attempts should be a whole number of at least 1, not {safe_repr(attempts)}."
        )
    # Counted from the first attempt, because a generator begins when it is first asked.
    end = clock() + seconds
    pause, number = INITIAL_BACKOFF, 1
    while (attempts is None or number < attempts) and clock() < end:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311  # jitter, not a secret
        pause, number = min(pause * 2, MAX_BACKOFF), number + 1


def retry(
    action: Callable[[], T],
    *,
    attempts: int | None = None,
    seconds: float = CONTENTION_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Return the result of ``action``, retried after ``ConcurrencyError`` as :func:`backoff_delays` allows.

    Threads of this process that lost against one row repeat one after the other; see :class:`RetryQueues`.
    """
    end = clock() + seconds
    with RETRY_QUEUES.retry_block():
        for pause in backoff_delays(attempts, seconds=seconds, clock=clock):
            try:
                return action()
            except ConcurrencyError as error:
                if cancelled():  # no caller waits any more
                    raise
                log_lost_race(error, pause)
                row = (error.driver, error.module, error.entity, error.key)
                # The winner is done when the turn is granted, which is more exact than any pause.
                if error.entity is None or not RETRY_QUEUES.wait(row, end - clock()):
                    sleep(pause)
        return action()


# Turns of threads that compete for one row: a thread that lost queues instead of losing again and again.
#
# Stores without locks let one of several competing writers win; the others repeat. With many of them most
# attempts lose again, and back-off makes long waiters retry less often. One process can avoid that: threads
# that lost a race for a row repeat one after the other, in the order in which they lost. Correctness does not
# depend on having the turn: writers in other processes still compete, and no thread waits for it for long.


# An unresponsive server may block the thread that has the turn; the others then go on without it.
MAX_WAIT: Final = 2.0


class ThreadState(threading.local):
    """What a thread has: how deep its repetitions are nested, and its one place in a queue."""

    depth = 0
    ticket: Ticket | None = None


class Ticket:
    """A place in the queue of a row."""

    def __init__(self, row: Hashable) -> None:
        self.row = row
        # Not an event: if a signal handler raises while a thread waits for one, its lock may stay taken, and
        # the thread that grants the turn would hang while it holds the lock of all queues.
        self._granted = threading.Lock()
        self._granted.acquire()

    def grant(self) -> None:
        """Let the waiting thread go on; a repeated call does nothing."""
        with suppress(RuntimeError):
            self._granted.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the turn is granted; return whether it was."""
        return self._granted.acquire(timeout=max(0.0, seconds))


class RetryBlock:
    """The block of one repetition; a class, because every write passes here."""

    __slots__ = ("_leave", "_thread_state")

    def __init__(self, state: ThreadState, leave: Callable[[Ticket], None]) -> None:
        self._thread_state = state
        self._leave = leave

    def __enter__(self) -> None:
        self._thread_state.depth += 1

    def __exit__(self, *_: object) -> None:
        """End; the outermost one gives up the turn."""
        state = self._thread_state
        state.depth -= 1
        if not state.depth and state.ticket is not None:
            ticket, state.ticket = state.ticket, None
            self._leave(ticket)


class RetryQueues(Renewable):
    """The queues of this process."""

    def __init__(self, max_wait: float = MAX_WAIT) -> None:
        """Start without any; no thread waits longer than so many seconds."""
        self._max_wait = max_wait
        self._thread_state = ThreadState()
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[Ticket]] = {}
        renew_in_child(self)

    @override
    def renew(self) -> None:
        self._thread_state, self._lock, self._queues = ThreadState(), threading.Lock(), {}

    def retry_block(self) -> RetryBlock:
        """Keep the turn that is taken inside until the outermost block of this thread ends.

        A step of a step keeps it for the whole: what lost once begins again at the outer one.
        """
        return RetryBlock(self._thread_state, self._leave)

    def wait(self, row: Hashable, seconds: float) -> bool:
        """Wait for a turn, at most so many seconds; return whether another thread was first.

        A thread has one turn at most: with two of them, two threads could wait for each other.
        """
        state = self._thread_state
        if state.ticket is not None:
            return False
        state.ticket = ticket = Ticket(row)
        with self._lock:
            queue = self._queues.setdefault(row, deque())
            queue.append(ticket)
            is_first = queue[0] is ticket
        return not is_first and ticket.wait(min(seconds, self._max_wait))

    def _leave(self, ticket: Ticket) -> None:
        """Let the next thread in the queue go on, even if this turn was never granted."""
        with self._lock:
            queue = self._queues.get(ticket.row)
            if queue is None or ticket not in queue:
                return  # it was taken before a fork
            queue.remove(ticket)
            if queue:
                queue[0].grant()
            else:
                del self._queues[ticket.row]


RETRY_QUEUES: Final = RetryQueues()
